//! `cargo xtask reference`: generates the page of all flags from the output of each program's `--help`.

mod help;
mod page;

use std::env;
use std::fs;
use std::process::Command;

use anyhow::{Context, bail, ensure};

use self::page::{Family, Program};
use crate::cargo;
use crate::step::{NamedCommand, Outcome, say};

const PAGE: &str = "docs/reference/flags.md";

/// Groups of programs with common flags. The first field is the name of the group.
const FAMILIES: [(&str, &[&[&str]]); 5] = [
    ("All controllers", &[&["node-controller"], &["service-controller"], &["route-controller"]]),
    ("All adapters", &[&["adapter-openstack"], &["adapter-sim"]]),
    ("", &[&["service-controller", "self-test"]]),
    ("", &[&["simcloud"], &["adapter-conformance"]]),
    ("", &CLOUDCTL),
];

/// The command lines that print help, one for each subcommand.
const CLOUDCTL: [&[&str]; 10] = [
    &["cloudctl", "options"],
    &["cloudctl", "check"],
    &["cloudctl", "status"],
    &["cloudctl", "plan"],
    &["cloudctl", "adopt"],
    &["cloudctl", "clusters"],
    &["cloudctl", "explain"],
    &["cloudctl", "orphans"],
    &["cloudctl", "version"],
    &["cloudctl", "limits", "simulate"],
];

pub(crate) fn write() -> anyhow::Result<()> {
    say(&format!("writing {PAGE}"));
    fs::write(cargo::root().join(PAGE), fresh()?).with_context(|| format!("cannot write {PAGE}"))
}

/// Fails if the page does not match the output of the programs.
pub(crate) fn check() -> anyhow::Result<()> {
    let page = fs::read_to_string(cargo::root().join(PAGE)).with_context(|| format!("cannot read {PAGE}"))?;
    ensure!(page == fresh()?, "{PAGE} differs from the output of --help");
    Ok(())
}

/// Builds the programs, as the tests do, and runs them with `--help`.
fn fresh() -> anyhow::Result<String> {
    let repair = "fix what cargo reports above";
    let build = NamedCommand::cargo("build", cargo::build_all(), repair);
    if let Outcome::Failed(why) | Outcome::Skipped(why) = build.run() {
        bail!(why);
    }
    let families = FAMILIES.iter().map(|&(name, programs)| {
        let programs = programs.iter().map(|words| ask(words)).collect::<anyhow::Result<Vec<_>>>()?;
        Ok(Family { name, programs })
    });
    Ok(page::page(&families.collect::<anyhow::Result<Vec<_>>>()?))
}

fn ask(words: &[&str]) -> anyhow::Result<Program> {
    let (name, rest) = words.split_first().context("a program has a file name")?;
    let path = env::current_exe().context("cannot find cargo's folder of programs")?.with_file_name(name);
    // Environment variables must not influence the page.
    let asked = Command::new(&path).args(rest).arg("--help").env_clear().output();
    let asked = asked.with_context(|| format!("cannot start {}", path.display()))?;
    ensure!(asked.status.success(), "{} --help: {}", path.display(), asked.status);
    let text = String::from_utf8(asked.stdout).context("the output of --help is not valid UTF-8")?;
    Ok(Program { name: words.join(" "), help: help::read(&text) })
}
