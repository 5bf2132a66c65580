//! `cargo xtask bench scale`: builds everything for release and replaces itself with the benchmark.

use std::env;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

use crate::cargo;

/// The benchmark parses these arguments itself, so it prints help and usage errors before anything is built.
pub(super) use e2e_tools::bench::Args;

/// The programs that the benchmark runs. Adapters of other vendors take minutes to build and are left out.
const PROGRAMS: [&str; 6] =
    ["adapter-sim", "bench-scale", "node-controller", "route-controller", "service-controller", "simcloud"];
const PACKAGES: [&str; 5] =
    ["adapter-sim", "e2e", "node-controller", "route-controller", "service-controller"];

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let folder = target()?;
    let built = Command::new(cargo::program())
        .args(["build", "--release", "--target-dir"])
        .arg(&folder)
        .args(PROGRAMS.iter().flat_map(|program| ["--bin", program]))
        .args(PACKAGES.iter().flat_map(|package| ["--package", package]))
        .current_dir(cargo::root())
        .status()
        .context("cannot start cargo")?;
    if !built.success() {
        bail!("the benchmark, the controllers or the adapter do not build; fix what cargo reports above");
    }
    // This process replaces itself with `exec` instead of waiting for a child, so that only the benchmark receives Ctrl-C and cleans up.
    let program = folder.join("release").join("bench-scale");
    let error = Command::new(&program).args(args.to_flags()).exec();
    Err(error).with_context(|| format!("cannot start {}", program.display()))
}

/// The target folder of cargo: the parent of the folder of this program.
fn target() -> anyhow::Result<PathBuf> {
    let program = env::current_exe().context("cannot find cargo's folder of programs")?;
    let target = program.parent().and_then(Path::parent);
    Ok(target.context("this program is not in a target folder of cargo")?.to_path_buf())
}
