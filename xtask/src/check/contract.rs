//! Compares the contract with its earlier version. The contract must stay compatible with programs that were built against the earlier
//! version.

use std::fs;
use std::process::Command;

use anyhow::{Context, bail};

use crate::step::say;
use crate::tool::Tool;
use crate::{cargo, git};

const PROTO: &str = "cloud-api-proto/proto";

/// Fails if programs that use the new contract would misread a message of the earlier contract. Passes with a note if there is no earlier
/// contract.
pub(crate) fn breaking() -> anyhow::Result<()> {
    let Some(commit) = baseline() else {
        say("no earlier contract to compare with: neither `main` nor an earlier commit has one");
        return Ok(());
    };
    let dir = cargo::root().join("target").join("check");
    fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let archive = dir.join("contract.tar");
    let archived = Command::new("git")
        .args(["archive", "--format=tar", "--output"])
        .args([archive.as_os_str(), commit.as_ref(), PROTO.as_ref()])
        .current_dir(cargo::root())
        .status()
        .context("cannot start git")?;
    if !archived.success() {
        bail!("git cannot read the contract at {commit}");
    }
    let status = Command::new(Tool::Buf.get()?)
        .arg("breaking")
        .arg("--against")
        .arg(format!("{}#subdir={PROTO}", archive.display()))
        .current_dir(cargo::root())
        .status()
        .context("cannot start buf")?;
    if !status.success() {
        bail!("the contract is not compatible with the one at {commit}");
    }
    Ok(())
}

/// Returns the commit of the published contract: the commit where this branch left `main`, or the previous commit on `main` itself. Returns
/// `None` if git does not find the commit.
fn baseline() -> Option<String> {
    let git = |args: &[&str]| git::output(args.iter().copied()).ok();
    let head = git(&["rev-parse", "HEAD"])?;
    let left_main = ["origin/main", "main"].iter().find_map(|main| git(&["merge-base", "HEAD", main]));
    let commit = match left_main {
        Some(commit) if commit != head => commit,
        _ => git(&["rev-parse", "--verify", "--quiet", "HEAD~1"])?,
    };
    let has_contract = git(&["ls-tree", "--name-only", &commit, &format!("{PROTO}/")])?;
    (!has_contract.is_empty()).then_some(commit)
}
