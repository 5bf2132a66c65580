//! `cargo xtask check`: what is wrong with the form of the repository. All steps run; all failures are told at the end.

mod alerts;
mod behaviour;
mod contract;
mod metrics;
mod pages;
mod reasons;
pub(crate) mod tool;

use clap::builder::PossibleValuesParser;

use self::tool::Tool;
use crate::chart;
use crate::python;
use crate::reference;
use crate::step::{Outcome, Step, Summary};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only these steps; without any, all
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

/// One thing that is looked at.
struct Check {
    name: &'static str,
    how: How,
    /// What a person does when it fails: one sentence, best a command.
    repair: &'static str,
}

enum How {
    /// A program that fails when something is wrong, and its arguments.
    Program(Tool, &'static [&'static str]),
    /// A function of ours.
    Function(fn() -> anyhow::Result<()>),
}

/// What the chart cannot be rendered without.
const CHART_VALUES: &str = "clusterId=6e0ecd3b-34ac-4a0f-9f1c-6f0a1c5c2b7d,routeController.clusterCidr=10.244.0.0/16,\
    adapter.tls.mode=secret,adapter.tls.secretName=cloud-adapter-tls";

/// In the order in which they run: the quickest first.
const CHECKS: [Check; 20] = [
    Check {
        name: "fmt",
        how: How::Program(Tool::Cargo, &["fmt", "--all", "--check"]),
        repair: "run `cargo fmt --all`",
    },
    Check {
        name: "typos",
        how: How::Program(Tool::Typos, &["--format", "brief"]),
        repair: "mend the words, or list those that are right in typos.toml with whose they are",
    },
    Check {
        name: "toml",
        how: How::Program(Tool::Taplo, &["fmt", "--check", "--diff"]),
        repair: "write the files as the difference shows; taplo.toml has the rules",
    },
    Check {
        name: "behaviour",
        how: How::Function(behaviour::tests_are_there),
        repair: "name the test that shows the row, or change what docs/behaviour.md promises",
    },
    Check {
        name: "metrics",
        how: How::Function(metrics::are_listed),
        repair: "let the unit test of the reference count them once, and run `cargo xtask metrics`",
    },
    Check {
        name: "alerts",
        how: How::Function(alerts::check),
        repair: "give each alert its page, its cases and its row; docs/runbooks has others to go by",
    },
    Check {
        name: "links",
        how: How::Function(pages::hang_together),
        repair: "mend the links, and list each page in docs/SUMMARY.md",
    },
    Check {
        name: "guides",
        how: How::Function(pages::commands_are_known),
        repair: "say above each block of commands whether a test runs it; CONTRIBUTING.md has the words",
    },
    Check {
        name: "reasons",
        how: How::Function(reasons::are_told),
        repair: "mend the tables of docs/troubleshoot.md",
    },
    Check {
        name: "contract-lint",
        how: How::Program(Tool::Buf, &["lint"]),
        repair: "mend the .proto files; buf.yaml names the rules",
    },
    Check {
        name: "contract-breaking",
        how: How::Function(contract::breaking),
        repair: "keep numbers, names and types, and add what is new; what goes is `reserved`",
    },
    Check {
        name: "chart-lint",
        how: How::Program(Tool::Helm, &["lint", "--strict", "--set", CHART_VALUES, "helm/cloud-controllers"]),
        repair: "mend the chart",
    },
    Check {
        name: "chart-example",
        how: How::Function(python::chart),
        repair: "mend the chart, or the example's values",
    },
    Check {
        name: "python-adapter",
        how: How::Function(python::check),
        repair: "mend what mypy or the test names; examples/python-adapter/README.md tells how one runs them",
    },
    Check { name: "chart-table", how: How::Function(chart::check), repair: "run `cargo xtask chart`" },
    Check {
        name: "codegen",
        how: How::Program(
            Tool::Cargo,
            &["run", "--quiet", "--package", "cloud-api-codegen", "--", "--check"],
        ),
        repair: "run `cargo xtask codegen`",
    },
    Check { name: "reference", how: How::Function(reference::check), repair: "run `cargo xtask reference`" },
    Check {
        name: "deny",
        how: How::Program(
            Tool::CargoDeny,
            &["--workspace", "--locked", "--log-level", "warn", "check", "bans", "licenses", "sources"],
        ),
        repair: "choose another dependency, or say in deny.toml why this one may stay and until when",
    },
    Check {
        name: "clippy",
        how: How::Program(
            Tool::Cargo,
            &["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"],
        ),
        repair: "mend what it names; an exception is `#[expect(lint, reason = \"...\")]`",
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
        repair: "mend the comments that it names",
    },
];

impl Check {
    fn run(&self) -> Outcome {
        match self.how {
            How::Program(tool, args) => match tool.get() {
                Ok(program) => {
                    let args = args.iter().map(|&arg| arg.to_owned()).collect();
                    Step { name: self.name, program: program.into(), args, repair: self.repair }.run()
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
    fn each_check_can_be_chosen_by_its_own_name() {
        let names: BTreeSet<_> = CHECKS.iter().map(|check| check.name).collect();
        assert_eq!(names.len(), CHECKS.len());
        assert!(names.iter().all(|name| !name.contains(' ')), "{names:?}");
    }
}
