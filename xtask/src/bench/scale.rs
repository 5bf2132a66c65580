//! `cargo xtask bench scale`: builds everything for release and becomes the benchmark.

use std::env;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
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

/// So that `perf` can tell who called whom. The code is the same but for one register.
const WITH_NAMES: [(&str, &str); 3] = [
    ("CARGO_PROFILE_RELEASE_DEBUG", "line-tables-only"),
    ("CARGO_PROFILE_RELEASE_STRIP", "none"),
    ("RUSTFLAGS", "-C force-frame-pointers=yes"),
];

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let folder = target()?;
    // Other flags build everything anew: beside what is there, and not in its place.
    let folder = if args.profile.is_some() { folder.join("profile") } else { folder };
    let mut build = Command::new(cargo::program());
    if args.profile.is_some() {
        build.envs(WITH_NAMES);
    }
    let built = build
        .args(["build", "--release", "--target-dir"])
        .arg(&folder)
        .args(PROGRAMS.iter().flat_map(|program| ["--bin", program]))
        .args(PACKAGES.iter().flat_map(|package| ["--package", package]))
        .current_dir(cargo::root())
        .status()
        .context("cannot start cargo")?;
    if !built.success() {
        bail!("the benchmark, the controllers or the adapter do not build; mend what cargo names above");
    }
    // Becoming it, instead of waiting for it, leaves one process to hear Ctrl-C: the one that cleans up.
    let program = folder.join("release").join("bench-scale");
    let error = Command::new(&program).args(args.to_flags()).exec();
    Err(error).with_context(|| format!("cannot start {}", program.display()))
}

/// Where cargo puts what it builds: around the folder of this one.
fn target() -> anyhow::Result<PathBuf> {
    let program = env::current_exe().context("cannot tell where cargo puts programs")?;
    let target = program.parent().and_then(Path::parent);
    Ok(target.context("this program is in no folder of cargo's")?.to_path_buf())
}
