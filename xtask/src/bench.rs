//! `cargo xtask bench`: measures figures that must stay within bounds, and figures for comparison only. The benchmark of each crate prints
//! the figures of that crate. The benchmark of a whole cluster is a separate program.

mod scale;

use std::process::Command;

use anyhow::{Context, ensure};
use clap::Subcommand;

use crate::cargo;

#[derive(Debug, clap::Args)]
#[command(
    about = "Measures figures with bounds, and figures for comparison",
    long_about = "Measures figures with bounds, and figures for comparison.\n\nBuilds for release. \
    Progress goes to standard error, the table to standard output. The figures depend \
    on this computer, so run nothing else at the same time.",
    after_help = "Exit codes:\n  0  all figures are within their bounds\n  1  a figure is outside of its bound, or a benchmark \
                  failed; the table shows the figure"
)]
pub(crate) struct Args {
    /// What to measure
    #[command(subcommand)]
    subject: Subject,
}

#[derive(Debug, Subcommand)]
enum Subject {
    /// The runtime of adapters: memory and speed
    Runtime,
    // The scale benchmark prints its own help.
    Scale(scale::Args),
}

/// The packages whose benchmarks measure the runtime, in the order in which their rows are printed.
const RUNTIME: [&str; 2] = ["cloud-budget", "adapter-sim"];

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    match &args.subject {
        Subject::Runtime => runtime(),
        Subject::Scale(args) => scale::run(args),
    }
}

fn runtime() -> anyhow::Result<()> {
    let packages = RUNTIME.iter().flat_map(|package| ["--package", package]);
    let status = Command::new(cargo::program())
        .args(["bench", "--quiet", "--no-fail-fast", "--bench", "runtime"])
        .args(packages)
        .current_dir(cargo::root())
        .status()
        .context("cannot start cargo")?;
    ensure!(
        status.success(),
        "a figure is outside of its bound, or a benchmark failed; see the output above"
    );
    Ok(())
}
