//! `cargo xtask conformance`: runs the suite against the adapter of the simulated cloud, or against the Python adapter.

mod python;

use std::fs;
use std::process::Command;

use anyhow::{Context, bail};

use crate::cargo;
use crate::step::{NamedCommand, Outcome, Summary};

const BUILD: [&str; 8] = [
    "build",
    "--bins",
    "--package",
    "adapter-conformance",
    "--features",
    "adapter-conformance/sim",
    "--package",
    "adapter-sim",
];
const REPAIR: &str =
    "see the failure above; to repeat one check, run the same command with `-- --include <ID>`";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Run tier T1 against examples/python-adapter, after its type checks and its own tests
    #[arg(long)]
    python: bool,
    /// Flags for `adapter-conformance`. Without --junit, the report is target/conformance/sim.xml or python.xml
    #[arg(last = true)]
    args: Vec<String>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let mut summary = Summary::default();
    let build = NamedCommand::cargo(
        "build the suite",
        BUILD.map(str::to_owned).to_vec(),
        "fix what cargo reports above",
    );
    let built = summary.run(build.name, || build.run());
    if args.python {
        let right = summary.run("types and tests of the adapter", || outcome(crate::python::check()));
        if built && right {
            summary.run("tier T1", || outcome(python::run(&args.args)));
        } else {
            summary.skip(
                "tier T1",
                "the conformance suite and an adapter that passes its own tests are required",
            );
        }
    } else if built {
        summary.run("all tiers", || outcome(simulated(&args.args)));
    }
    summary.close()
}

/// Runs `conformance-sim`, which starts everything that the suite needs.
fn simulated(args: &[String]) -> anyhow::Result<()> {
    let mut suite = program("conformance-sim");
    suite.arg("run").arg("--").args(with_junit("sim", args)?);
    succeed(&mut suite)
}

/// Returns the suite's flags. Adds a JUnit report below target/ unless the flags name another file.
pub(crate) fn with_junit(name: &str, args: &[String]) -> anyhow::Result<Vec<String>> {
    let mut args = args.to_vec();
    if !args.iter().any(|arg| arg.starts_with("--junit")) {
        let folder = cargo::root().join("target").join("conformance");
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        args.push(format!("--junit={}", folder.join(format!("{name}.xml")).display()));
    }
    Ok(args)
}

/// Returns a command that runs a program of this repository, which cargo has built before.
fn program(name: &str) -> Command {
    let mut command = Command::new(cargo::built(name));
    command.current_dir(cargo::root());
    command
}

fn succeed(suite: &mut Command) -> anyhow::Result<()> {
    let status = suite.status().context("cannot start the suite")?;
    if !status.success() {
        bail!("{status}");
    }
    Ok(())
}

fn outcome(done: anyhow::Result<()>) -> Outcome {
    match done {
        Ok(()) => Outcome::Passed,
        Err(error) => Outcome::Failed(format!("{error:#}; {REPAIR}")),
    }
}

#[cfg(test)]
mod tests {
    use super::with_junit;

    #[test]
    fn report_is_below_target_unless_a_flag_names_another() {
        let flags = |args: &[&str]| {
            let args: Vec<String> = args.iter().map(|&arg| arg.to_owned()).collect();
            with_junit("sim", &args).expect("a folder").join(" ")
        };
        let usual = flags(&["--include", "LB"]);
        assert!(
            usual.starts_with("--include LB --junit=") && usual.ends_with("target/conformance/sim.xml"),
            "{usual}"
        );
        assert_eq!(flags(&["--junit", "mine.xml"]), "--junit mine.xml");
        assert_eq!(flags(&["--junit=mine.xml"]), "--junit=mine.xml");
    }
}
