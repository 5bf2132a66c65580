//! The commands of developers and visitors: `cargo xtask <command>`. This file parses and dispatches; each command has
//! a file of its own.

mod cargo;
mod check;
mod demo;
mod step;
mod test;
mod tools;

use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(name = "cargo xtask", about = "What one does with this repository", version)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Shows the whole system at work on a real control plane
    Demo(demo::Args),
    /// Runs everything that must pass: unit, integration and end-to-end tests
    Test(test::Args),
    /// Checks form: formatting, lints, dependencies, contract, chart, docs
    Check(check::Args),
    /// Gets etcd, kube-apiserver, kubectl and helm, and prints where they are
    Tools(tools::Args),
}

fn main() -> anyhow::Result<()> {
    match Args::parse().command {
        Command::Demo(args) => demo::run(&args),
        Command::Test(args) => test::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Tools(args) => tools::run(&args),
    }
}
