//! `cargo xtask bench scale`: builds everything for release and becomes the benchmark.

use std::env;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, bail};

use crate::cargo;

/// The benchmark's own: help and wrong usage are told before anything is built.
pub(super) use e2e_tools::bench::Args;

/// What runs. No other vendor's adapter is built, which takes minutes for release.
const PROGRAMS: [&str; 6] =
    ["adapter-sim", "bench-scale", "node-controller", "route-controller", "service-controller", "simcloud"];
const PACKAGES: [&str; 5] =
    ["adapter-sim", "e2e", "node-controller", "route-controller", "service-controller"];

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let built = Command::new(cargo::program())
        .args(["build", "--release"])
        .args(PROGRAMS.iter().flat_map(|program| ["--bin", program]))
        .args(PACKAGES.iter().flat_map(|package| ["--package", package]))
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
