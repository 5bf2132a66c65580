//! Runs the named steps of a command in their order. At the end prints the outcome and duration of each step, and how to fix failures.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};

use crate::cargo;

/// Environment variable with the file to which failures are appended.
pub(crate) const FAILURES: &str = "XTASK_FAILURES";

/// A program to run in the root of the repository.
#[derive(Debug)]
pub(crate) struct NamedCommand {
    /// The name of the step, which is printed and selects the step on the command line.
    pub(crate) name: &'static str,
    pub(crate) program: OsString,
    pub(crate) args: Vec<String>,
    /// How to fix a failure: one sentence, preferably with a command.
    pub(crate) repair: &'static str,
}

impl NamedCommand {
    pub(crate) fn cargo(name: &'static str, args: Vec<String>, repair: &'static str) -> Self {
        Self { name, program: cargo::program(), args, repair }
    }

    /// Runs the program with inherited standard output and standard error.
    pub(crate) fn run(&self) -> Outcome {
        match Command::new(&self.program).args(&self.args).current_dir(cargo::root()).status() {
            Ok(status) if status.success() => Outcome::Passed,
            Ok(status) => Outcome::Failed(format!("{status}; {}", self.repair)),
            Err(error) => {
                let program = self.program.to_string_lossy();
                Outcome::Failed(format!("cannot start `{program}` ({error}); {}", self.repair))
            }
        }
    }
}

/// The outcome of a step. Both texts are printed at the end.
#[derive(Debug)]
pub(crate) enum Outcome {
    Passed,
    Failed(String),
    /// The step was skipped because a step that it needs failed.
    Skipped(String),
}

#[derive(Debug, Default)]
pub(crate) struct Summary {
    done: Vec<Done>,
}

#[derive(Debug)]
struct Done {
    name: &'static str,
    outcome: Outcome,
    took: Duration,
}

impl Summary {
    /// Prints the name of the step, runs it and records the outcome. Returns whether it passed.
    #[expect(clippy::disallowed_methods, reason = "how long a step takes is measured in real time")]
    pub(crate) fn run(&mut self, name: &'static str, step: impl FnOnce() -> Outcome) -> bool {
        say(&format!("\n==> {name}"));
        let begun = Instant::now();
        let outcome = step();
        let passed = matches!(outcome, Outcome::Passed);
        self.done.push(Done { name, outcome, took: begun.elapsed() });
        passed
    }

    pub(crate) fn skip(&mut self, name: &'static str, why: &str) {
        self.done.push(Done { name, outcome: Outcome::Skipped(why.to_owned()), took: Duration::ZERO });
    }

    /// Prints one line per step, and fails unless all steps passed.
    pub(crate) fn close(self) -> anyhow::Result<()> {
        say("\n==> summary");
        for Done { name, outcome, took } in &self.done {
            let seconds = format!("{:5.0} s", took.as_secs_f64());
            say(&match outcome {
                Outcome::Passed => format!("  ok       {seconds}  {name}"),
                Outcome::Failed(what) => format!("  FAILED   {seconds}  {name}: {what}"),
                Outcome::Skipped(why) => format!("  not run           {name}: {why}"),
            });
        }
        let bad = self.done.iter().filter(|done| !matches!(done.outcome, Outcome::Passed)).count();
        write_failures(&self.done)?;
        if bad > 0 {
            bail!("{bad} of {} steps failed or did not run", self.done.len());
        }
        Ok(())
    }
}

/// Appends failures to the file that `.ci/run` names in [`FAILURES`]. `.ci/run` prints this file again at the end.
fn write_failures(done: &[Done]) -> anyhow::Result<()> {
    let Some(file) = std::env::var_os(FAILURES) else { return Ok(()) };
    let mut text = String::new();
    for Done { name, outcome, .. } in done {
        if let Outcome::Failed(what) = outcome {
            text.push_str(&format!("  {name}: {what}\n"));
        }
    }
    let written = OpenOptions::new()
        .create(true)
        .append(true)
        .open(&file)
        .and_then(|mut it| it.write_all(text.as_bytes()));
    written.with_context(|| format!("{FAILURES}: cannot write {}", file.display()))
}

/// Prints headings and errors to standard error. cargo prints its progress there, too, so their order is kept.
pub(crate) fn say(line: &str) {
    // Printing fails if standard error is closed. The exit code still reports the result.
    io::stderr().write_all(format!("{line}\n").as_bytes()).ok();
}
