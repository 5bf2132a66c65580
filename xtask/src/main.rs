//! The commands for developers and users of this repository: `cargo xtask <command>`. This file parses the command line and calls the
//! command; each command has its own file.

mod bench;
mod cargo;
mod chart;
mod check;
mod cluster;
mod codegen;
mod conformance;
mod demo;
mod docs;
mod git;
mod images;
mod manifests;
mod metrics;
mod new_adapter;
mod openstack;
mod python;
mod reference;
mod release;
mod step;
mod test;
mod tool;
mod tools;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(
    name = "cargo xtask",
    bin_name = "cargo xtask",
    about = "Development commands of this repository",
    version
)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Demo(demo::Args),
    /// Runs all tests that must pass at each commit, or one tier of tests
    Test(test::Args),
    Bench(bench::Args),
    /// Runs the conformance suite against an adapter of this repository
    Conformance(conformance::Args),
    /// Runs checks of form: formatting, lints, dependencies, contract, chart, docs
    Check(check::Args),
    Images(images::Args),
    /// Installs etcd, kube-apiserver, kubectl and helm, and prints their paths
    Tools(tools::Args),
    Openstack(openstack::Args),
    Cluster(cluster::Args),
    /// Creates a driver for another cloud from the skeleton
    NewAdapter(new_adapter::Args),
    /// Generates the code and the reference of the contract
    Codegen,
    /// Generates the page of all flags from the output of each program's --help
    Reference,
    /// Builds the documentation as a book
    Docs(docs::Args),
    /// Generates the files that depend on the chart's values: the table in its README, and the defaults that templates read
    Chart,
    Manifests(manifests::Args),
    Release(release::Args),
    /// Generates the tables of docs/reference/metrics.md from the processes' metrics
    Metrics,
    /// Generates the map from the rows of docs/behaviour.md to tests
    Behaviour,
}

/// Returns the error message if the arguments of `cargo xtask` are invalid.
fn refuse(words: &[&str]) -> Option<String> {
    let refusal = Args::try_parse_from(["cargo xtask"].iter().chain(words)).err()?;
    refusal.use_stderr().then(|| format!("cargo xtask {}: {refusal}", words.join(" ")))
}

fn main() -> ExitCode {
    let done = match Args::parse().command {
        Command::Demo(args) => demo::run(&args),
        Command::Test(args) => test::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Conformance(args) => conformance::run(&args),
        Command::Images(args) => images::run(&args),
        Command::Tools(args) => tools::run(&args),
        Command::Openstack(args) => openstack::run(&args),
        Command::Cluster(args) => return ended(cluster::run(&args)),
        Command::NewAdapter(args) => new_adapter::run(&args),
        Command::Codegen => codegen::write(),
        Command::Reference => reference::write(),
        Command::Docs(args) => docs::run(&args),
        Command::Chart => chart::write(),
        Command::Manifests(args) => manifests::run(&args),
        Command::Release(args) => return ended(release::run(&args)),
        Command::Metrics => metrics::write(),
        Command::Behaviour => check::behaviour::write(),
    };
    ended(done.map(|()| ExitCode::SUCCESS))
}

fn ended(done: anyhow::Result<ExitCode>) -> ExitCode {
    done.unwrap_or_else(|error| {
        step::say(&format!("error: {error:#}"));
        ExitCode::FAILURE
    })
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::Args;

    #[test]
    fn invalid_command_lines_are_reported_with_the_usage() {
        Args::command().debug_assert();
        let said = |args: &[&str]| Args::try_parse_from([&["/target/xtask"], args].concat()).unwrap_err();
        for (wrong, named) in [
            (&["demo", "--onc"][..], ["'--once'", "Usage: cargo xtask demo"]),
            (&["demo", "--nodes=0"], ["1..=1000", "--nodes"]),
            (&["cluster", "up", "--nodes=4"], ["1..=3", "--nodes"]),
            (&["cluster", "stop"], ["'stop'", "Usage: cargo xtask cluster"]),
            (&["tests"], ["'test'", "Usage: cargo xtask"]),
            (&["openstack", "stop"], ["'stop'", "Usage: cargo xtask openstack"]),
            (&["images", "--only=node"], ["'--only", "simcloud"]),
            (&["release", "prepare", "next"], ["0.2.0", "'<VERSION>'"]),
        ] {
            let error = said(wrong);
            assert_eq!(error.exit_code(), 2);
            assert!(named.iter().all(|words| error.to_string().contains(words)), "{error}");
        }
        let help = said(&["demo", "--help"]);
        assert_eq!(help.exit_code(), 0);
        let expected =
            ["running until Ctrl-C", "--nodes <N>", "Usage: cargo xtask demo", "130  interrupted before"];
        assert!(expected.iter().all(|words| help.to_string().contains(words)), "{help}");
    }
}
