//! `cargo xtask bench scale`: builds everything for release and becomes the benchmark.

use std::env;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, bail};

use crate::cargo;

/// The benchmark's own: help and wrong usage are told before anything is built.
pub(super) use e2e_tools::bench::Args;

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let built = Command::new(cargo::program())
        .args(cargo::build_servers())
        .args(["--release", "--package", "e2e"])
        .current_dir(cargo::root())
        .status()
        .context("cannot start cargo")?;
    if !built.success() {
        bail!("the benchmark, the controllers or the adapter do not build; mend what cargo names above");
    }
    // Becoming it, instead of waiting for it, leaves one process to hear Ctrl-C: the one that cleans up.
    let program = release()?.join("bench-scale");
    let error = Command::new(&program).args(args.to_flags()).exec();
    Err(error).with_context(|| format!("cannot start {}", program.display()))
}

/// Where cargo puts programs for release: beside the folder of this one.
fn release() -> anyhow::Result<PathBuf> {
    let program = env::current_exe().context("cannot tell where cargo puts programs")?;
    let target = program.parent().and_then(|profile| profile.parent());
    Ok(target.context("this program is in no folder of cargo's")?.join("release"))
}
