//! `cargo xtask conformance`: the suite against the adapter of the simulated cloud, or against the one in Python.

mod python;

use std::fs;
use std::process::Command;

use anyhow::{Context, bail};

use crate::cargo;
use crate::step::{Outcome, Step, Summary};

const BUILD: [&str; 8] = [
    "build",
    "--bins",
    "--package",
    "adapter-conformance",
    "--package",
    "conformance-sim",
    "--package",
    "adapter-sim",
];
const REPAIR: &str = "read the failure above; one check again: the same command with `-- --include <ID>`";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Tier T1 against examples/python-adapter, after its types and its own tests
    #[arg(long)]
    python: bool,
    /// Handed to `adapter-conformance`. Without --junit, the report is target/conformance/sim.xml or python.xml
    #[arg(last = true)]
    args: Vec<String>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let mut summary = Summary::default();
    let build =
        Step::cargo("build the suite", BUILD.map(str::to_owned).to_vec(), "mend what cargo names above");
    let built = summary.run(build.name, || build.run());
    if args.python {
        let right = summary.run("types and tests of the adapter", || outcome(crate::python::check()));
        if built && right {
            summary.run("tier T1", || outcome(python::run(&args.args)));
        } else {
            summary.skip("tier T1", "it needs the suite, and an adapter that passes its own tests");
        }
    } else if built {
        summary.run("all tiers", || outcome(simulated(&args.args)));
    }
    summary.close()
}

/// The simulated cloud starts all that the suite needs by itself.
fn simulated(args: &[String]) -> anyhow::Result<()> {
    let mut suite = program("conformance-sim");
    suite.arg("run").arg("--").args(with_junit("sim", args)?);
    succeed(&mut suite)
}

/// The suite's flags, with a JUnit report below target/ unless they name another one.
pub(crate) fn with_junit(name: &str, args: &[String]) -> anyhow::Result<Vec<String>> {
    let mut args = args.to_vec();
    if !args.iter().any(|arg| arg.starts_with("--junit")) {
        let folder = cargo::root().join("target").join("conformance");
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        args.push(format!("--junit={}", folder.join(format!("{name}.xml")).display()));
    }
    Ok(args)
}

/// A binary of this repository, as it has just been built.
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
    fn a_report_is_written_below_target_unless_another_one_is_asked_for() {
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
