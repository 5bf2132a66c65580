//! Runs short-lived programs. If a program fails, the error contains its output.

use std::ffi::OsStr;
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};

pub(crate) fn run(command: &mut Command) -> anyhow::Result<String> {
    let shown = format!("{} {}", command.get_program().display(), shown(command.get_args()));
    let output = command.stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("cannot start `{shown}`"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "`{shown}`: {}: {}", output.status, said.trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Splits a line into the words of a command. The words must not contain spaces.
pub(crate) fn words(line: &str) -> Command {
    let mut words = line.split_whitespace();
    let mut command = Command::new(words.next().unwrap_or_default());
    command.args(words);
    command
}

/// Runs a command given as one line. The words of the command must not contain spaces.
pub(crate) fn run_words(line: &str) -> anyhow::Result<String> {
    run(&mut words(line))
}

fn shown<'a>(args: impl Iterator<Item = &'a OsStr>) -> String {
    args.map(|arg| arg.to_string_lossy()).collect::<Vec<_>>().join(" ")
}
