//! `cargo xtask check`: what is wrong with the form of the repository. All steps run; all failures are told at the end.

use crate::step::{Step, Summary};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_args: &Args) -> anyhow::Result<()> {
    let mut summary = Summary::default();
    for step in steps() {
        summary.run(step.name, || step.run());
    }
    summary.close()
}

/// In the order in which they run: the quickest first.
fn steps() -> Vec<Step> {
    vec![
        Step::cargo("fmt", args(&["fmt", "--all", "--check"]), "run `cargo fmt --all`"),
        Step::cargo(
            "clippy",
            args(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]),
            "mend what it names; an exception is `#[expect(lint, reason = \"...\")]`",
        ),
    ]
}

fn args(list: &[&str]) -> Vec<String> {
    list.iter().map(|&arg| arg.to_owned()).collect()
}
