//! Compares the contract with what it was: who was built against the old one must still be understood.

use std::fs;
use std::process::Command;

use anyhow::{Context, bail};

use super::tool::Tool;
use crate::cargo;
use crate::step::say;

const PROTO: &str = "cloud-api-proto/proto";

/// Fails if a message of the old contract would be misread under the new one. Where there is no old one, says so and passes.
pub(crate) fn breaking() -> anyhow::Result<()> {
    let Some(commit) = baseline() else {
        say(
            "there is no earlier contract to compare with: neither `main` nor a commit before this one has it",
        );
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
        bail!("git cannot show the contract as it was at {commit}");
    }
    let status = Command::new(Tool::Buf.get()?)
        .arg("breaking")
        .arg("--against")
        .arg(format!("{}#subdir={PROTO}", archive.display()))
        .current_dir(cargo::root())
        .status()
        .context("cannot start buf")?;
    if !status.success() {
        bail!("the contract breaks with the one at {commit}");
    }
    Ok(())
}

/// The commit that has the contract as others know it: where this branch left `main`; on `main` itself, the one before.
fn baseline() -> Option<String> {
    let head = git(&["rev-parse", "HEAD"])?;
    let left_main = ["origin/main", "main"].iter().find_map(|main| git(&["merge-base", "HEAD", main]));
    let commit = match left_main {
        Some(commit) if commit != head => commit,
        _ => git(&["rev-parse", "--verify", "--quiet", "HEAD~1"])?,
    };
    let has_contract = git(&["ls-tree", "--name-only", &commit, &format!("{PROTO}/")])?;
    (!has_contract.is_empty()).then_some(commit)
}

/// What git answers, trimmed. Nothing if it refuses, which a shallow clone or a missing branch makes it do.
fn git(args: &[&str]) -> Option<String> {
    let answer = Command::new("git").args(args).current_dir(cargo::root()).output().ok()?;
    let text = String::from_utf8(answer.stdout).ok()?;
    answer.status.success().then(|| text.trim().to_owned())
}
