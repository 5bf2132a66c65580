//! `cargo xtask demo`: builds what the demo needs and hands over to it.

use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::{Context, bail};

use crate::cargo;

#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Args {
    /// Handed to the demo; `cargo xtask demo --help` lists them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<String>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let built = Command::new(cargo::program())
        .args(cargo::build_servers())
        .current_dir(cargo::root())
        .status()
        .context("cannot start cargo")?;
    if !built.success() {
        bail!("the controllers and the adapter do not build; mend what cargo names above");
    }
    // Becoming the demo, instead of waiting for it, leaves one process to hear Ctrl-C: the one that cleans up.
    let error = Command::new(cargo::program())
        .args(["run", "--quiet", "--package", "e2e", "--bin", "demo", "--"])
        .args(&args.args)
        .current_dir(cargo::root())
        .exec();
    Err(error).context("cannot start the demo")
}
