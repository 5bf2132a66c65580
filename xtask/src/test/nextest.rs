//! Runs tests with cargo-nextest, each in a separate process, with the parallelism of `.config/nextest.toml`, and lists the commands that
//! repeat failed tests.

mod report;

use std::ffi::OsStr;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;
use signal_hook::consts::SIGINT;

use self::report::Report;
use super::control_planes::ControlPlanes;
use crate::cargo;
use crate::step::{FAILURES, Outcome, say};
use crate::tool::Tool;

/// Number of tests at once per CPU. More than one test runs per CPU, because tests mostly wait for processes or timers.
const LANES_PER_CORE: usize = 3;
/// Maximum number of tests at once, because a scenario needs up to a gigabyte of memory.
const LANES_MAX: usize = 24;
const SLOWEST: usize = 10;

#[derive(Debug)]
pub(super) struct Run<'a> {
    /// A profile of `.config/nextest.toml`.
    pub(super) profile: &'static str,
    /// A nextest expression that selects tests; without it, all tests of the profile.
    pub(super) filter: Option<String>,
    pub(super) args: &'a [String],
    pub(super) env: Vec<(&'static str, String)>,
    pub(super) scenarios: bool,
}

fn lanes() -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    (cores * LANES_PER_CORE + 1).min(LANES_MAX)
}

impl Run<'_> {
    /// Runs all selected tests, even after failures.
    pub(super) fn start(&self) -> Outcome {
        match self.try_start() {
            Ok(outcome) => outcome,
            Err(error) => Outcome::Failed(format!("{error:#}")),
        }
    }

    fn try_start(&self) -> anyhow::Result<Outcome> {
        let program = Tool::Nextest.get()?;
        let junit = cargo::target().join("nextest").join(self.profile).join("junit.xml");
        // Remove the report of an earlier run.
        std::fs::remove_file(&junit).ok();
        let mut command = Command::new(program);
        command.args(["nextest", "run", "--workspace", "--bins", "--lib", "--tests", "--no-fail-fast"]);
        command.args(["--profile", self.profile]).current_dir(cargo::root());
        if let Some(filter) = &self.filter {
            command.args(["--filterset", filter]);
        }
        command
            .args(self.args.iter().map(OsStr::new))
            .envs(self.env.iter().map(|(name, value)| (name, value)));
        if !self.args.iter().any(|arg| arg.starts_with("--test-threads") || arg.starts_with("-j")) {
            command.arg(format!("--test-threads={}", lanes()));
        }
        // Some tests run a `cargo xtask` command that fails intentionally. Without this variable, that failure is not reported.
        command.env_remove(FAILURES);
        // Nextest and its tests also receive Ctrl-C and clean up; this program waits for them.
        let interrupted = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(SIGINT, Arc::clone(&interrupted)).context("cannot catch Ctrl-C")?;
        let control_planes = self.scenarios.then(ControlPlanes::start).transpose()?;
        command.envs(control_planes.as_ref().map(ControlPlanes::variable));
        let status = command.status().context("cannot start cargo-nextest")?;
        drop(control_planes);
        let report = std::fs::read_to_string(&junit).map(|text| Report::read(&text)).unwrap_or_default();
        say(report.slowest(SLOWEST).trim_end());
        if status.success() {
            return Ok(Outcome::Passed);
        }
        let flags = if self.profile == super::USUAL { "" } else { "--ignore-default-filter " };
        let again = report.failed(&self.variables(), flags);
        if interrupted.load(Ordering::SeqCst) {
            say(&format!("Interrupted. Tests that failed before:\n{again}"));
            // Exits here, so that no further step begins. 130 is the exit code that shells report for a program that Ctrl-C ended.
            std::process::exit(130);
        }
        Ok(Outcome::Failed(if again.is_empty() {
            format!("cargo-nextest ended with {status}: fix what it reports above")
        } else {
            format!("to repeat the failed tests:\n{}", again.trim_end())
        }))
    }

    /// Returns the environment variables that a command needs to repeat a test, in shell syntax.
    fn variables(&self) -> String {
        self.env.iter().map(|(name, value)| format!("{name}={value} ")).collect()
    }
}
