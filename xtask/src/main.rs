//! The commands of developers and visitors: `cargo xtask <command>`. This file parses and dispatches; each command has
//! a file of its own.

mod bench;
mod cargo;
mod chart;
mod check;
mod cluster;
mod codegen;
mod conformance;
mod demo;
mod docs;
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
mod tools;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(
    name = "cargo xtask",
    bin_name = "cargo xtask",
    about = "What one does with this repository",
    version
)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    // Its help is its own.
    Demo(demo::Args),
    /// Runs tests: what must hold at each commit, or a tier of them
    Test(test::Args),
    // Its help is its own.
    Bench(bench::Args),
    /// Runs the conformance suite against an adapter of ours
    Conformance(conformance::Args),
    /// Checks form: formatting, lints, dependencies, contract, chart, docs
    Check(check::Args),
    // Its help is its own.
    Images(images::Args),
    /// Gets etcd, kube-apiserver, kubectl and helm, and prints where they are
    Tools(tools::Args),
    // Its help is its own.
    Openstack(openstack::Args),
    // Its help is its own.
    Cluster(cluster::Args),
    /// Writes a driver for another cloud, to begin with
    NewAdapter(new_adapter::Args),
    /// Writes the code and the reference that come from the contract
    Codegen(codegen::Args),
    /// Writes the page of all flags, from what each program says to --help
    Reference(reference::Args),
    /// Builds the documentation as a book
    Docs(docs::Args),
    /// Writes what comes from the chart's values: the table in its README, and the defaults that templates read
    Chart(chart::Args),
    // Its help is its own.
    Manifests(manifests::Args),
    // Its help is its own.
    Release(release::Args),
    /// Writes the tables of docs/reference/metrics.md, from what the processes show
    Metrics(metrics::Args),
}

/// What is wrong with a command, given by its words behind `cargo xtask`; nothing if it could be run.
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
        Command::Codegen(args) => codegen::run(&args),
        Command::Reference(args) => reference::run(&args),
        Command::Docs(args) => docs::run(&args),
        Command::Chart(args) => chart::run(&args),
        Command::Manifests(args) => manifests::run(&args),
        Command::Release(args) => return ended(release::run(&args)),
        Command::Metrics(args) => metrics::run(&args),
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
    fn what_is_wrong_is_told_with_the_words_to_type() {
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
        let told = ["until Ctrl-C; a process", "--nodes <N>", "Usage: cargo xtask demo", "130  ended before"];
        assert!(told.iter().all(|words| help.to_string().contains(words)), "{help}");
    }
}
