//! `cargo xtask check`: checks the form of code, documentation and chart. All steps run, and all failures are listed at the end.

mod alerts;
pub(crate) mod behaviour;
mod circles;
mod contract;
mod metrics;
mod pages;
mod reasons;
mod words;

use clap::builder::PossibleValuesParser;

use crate::chart;
use crate::codegen;
use crate::python;
use crate::reference;
use crate::step::{NamedCommand, Outcome, Summary};
use crate::tool::Tool;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Run only these steps; default: all steps
    #[arg(value_parser = PossibleValuesParser::new(CHECKS.map(|check| check.name)))]
    steps: Vec<String>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let wanted = |name: &str| args.steps.is_empty() || args.steps.iter().any(|step| step == name);
    let mut summary = Summary::default();
    for check in CHECKS.iter().filter(|check| wanted(check.name)) {
        summary.run(check.name, || check.run());
    }
    summary.close()
}

struct Check {
    name: &'static str,
    how: How,
    /// How to fix a failure: one sentence, preferably with a command.
    repair: &'static str,
}

enum How {
    /// A program that exits with an error if the check fails, with its arguments.
    Program(Tool, &'static [&'static str]),
    Function(fn() -> anyhow::Result<()>),
}

/// The only value that the chart requires.
const CHART_VALUES: &str = "adapter.kind=openstack";

/// All steps in their order, the fastest first.
const CHECKS: [Check; 22] = [
    Check {
        name: "fmt",
        how: How::Program(Tool::Cargo, &["fmt", "--all", "--check"]),
        repair: "run `cargo fmt --all`",
    },
    Check {
        name: "typos",
        how: How::Program(Tool::Typos, &["--format", "brief"]),
        repair: "fix the words, or add correct ones to typos.toml with their origin",
    },
    Check {
        name: "toml",
        how: How::Program(Tool::Taplo, &["fmt", "--check", "--diff"]),
        repair: "format the files as the diff shows; taplo.toml has the rules",
    },
    Check {
        name: "behaviour",
        how: How::Function(behaviour::tests_are_there),
        repair: "name the row above its test, or change what docs/behaviour.md promises; then run `cargo xtask behaviour`",
    },
    Check {
        name: "metrics",
        how: How::Function(metrics::are_listed),
        repair: "use each of them once in the unit test that writes its reference, and run `cargo xtask metrics`",
    },
    Check {
        name: "alerts",
        how: How::Function(alerts::check),
        repair: "give each alert its page, its test cases and its row; follow the examples in docs/runbooks",
    },
    Check {
        name: "links",
        how: How::Program(Tool::Lychee, &["**/*.md"]),
        repair: "fix the links; lychee.toml has the rules",
    },
    Check {
        name: "guides",
        how: How::Function(pages::commands_are_known),
        repair: "list each page in docs/SUMMARY.md, and declare above each block of commands whether a test runs it; \
                 CONTRIBUTING.md has the syntax",
    },
    Check {
        name: "reasons",
        how: How::Function(reasons::are_explained),
        repair: "fix the tables of docs/troubleshoot.md",
    },
    Check {
        name: "words",
        how: How::Function(words::are_plain),
        repair: "write what docs/glossary.md says instead",
    },
    Check {
        name: "circles",
        how: How::Function(circles::none_exist),
        repair: "move what both modules need to a module that imports neither",
    },
    Check {
        name: "contract-lint",
        how: How::Program(Tool::Buf, &["lint"]),
        repair: "fix the .proto files; buf.yaml names the rules",
    },
    Check {
        name: "contract-breaking",
        how: How::Function(contract::breaking),
        repair: "keep numbers, names and types, and only add fields; removed ones become `reserved`",
    },
    Check {
        name: "chart-lint",
        how: How::Program(Tool::Helm, &["lint", "--strict", "--set", CHART_VALUES, "helm/cloud-controllers"]),
        repair: "fix the chart",
    },
    Check {
        name: "chart-example",
        how: How::Function(python::chart),
        repair: "fix the chart, or the values of the example",
    },
    Check {
        name: "python-adapter",
        how: How::Function(python::check),
        repair: "fix what mypy or the test reports; examples/python-adapter/README.md describes how to run them",
    },
    Check { name: "chart-table", how: How::Function(chart::check), repair: "run `cargo xtask chart`" },
    Check { name: "codegen", how: How::Function(codegen::check), repair: "run `cargo xtask codegen`" },
    Check { name: "reference", how: How::Function(reference::check), repair: "run `cargo xtask reference`" },
    Check {
        name: "deny",
        how: How::Program(
            Tool::CargoDeny,
            &["--workspace", "--locked", "--log-level", "warn", "check", "bans", "licenses", "sources"],
        ),
        repair: "use another dependency, or add an exception with a reason and an expiry to deny.toml",
    },
    Check {
        name: "clippy",
        how: How::Program(
            Tool::Cargo,
            &["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"],
        ),
        repair: "fix what it reports; an exception is `#[expect(lint, reason = \"...\")]`",
    },
    Check {
        name: "docs",
        how: How::Program(
            Tool::Cargo,
            &[
                "--config",
                "build.rustdocflags=['-D', 'warnings']",
                "doc",
                "--workspace",
                "--no-deps",
                "--locked",
            ],
        ),
        repair: "fix the comments that it names",
    },
];

impl Check {
    fn run(&self) -> Outcome {
        match self.how {
            How::Program(tool, args) => match tool.get() {
                Ok(program) => {
                    let args = args.iter().map(|&arg| arg.to_owned()).collect();
                    NamedCommand { name: self.name, program: program.into(), args, repair: self.repair }.run()
                }
                Err(error) => Outcome::Failed(format!("{error:#}")),
            },
            How::Function(check) => match check() {
                Ok(()) => Outcome::Passed,
                Err(error) => Outcome::Failed(format!("{error:#}; {}", self.repair)),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::CHECKS;

    #[test]
    fn each_check_can_be_selected_by_name() {
        let names: BTreeSet<_> = CHECKS.iter().map(|check| check.name).collect();
        assert_eq!(names.len(), CHECKS.len());
        assert!(names.iter().all(|name| !name.contains(' ')), "{names:?}");
    }
}
