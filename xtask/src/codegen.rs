//! `cargo xtask codegen`: generates Rust code and the reference from the contract.

use crate::step::{Outcome, Step};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Write nothing, and fail if a file would change
    #[arg(long)]
    check: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let mut cargo_args = vec!["run", "--quiet", "--package", "cloud-api-codegen", "--"];
    cargo_args.extend(args.check.then_some("--check"));
    let cargo_args = cargo_args.into_iter().map(str::to_owned).collect();
    match Step::cargo("codegen", cargo_args, "fix the .proto files as reported above").run() {
        Outcome::Passed => Ok(()),
        Outcome::Failed(why) | Outcome::Skipped(why) => anyhow::bail!(why),
    }
}
