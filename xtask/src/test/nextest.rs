//! Runs tests by cargo-nextest, each in a process of its own and as many at once as `.config/nextest.toml` allows, and lists what failed
//! with the command that runs it again.

mod interrupts;
mod report;

use std::ffi::OsStr;
use std::process::Command;

use anyhow::Context as _;

use self::interrupts::Interrupts;
use self::report::Report;
use super::control_planes::ControlPlanes;
use crate::cargo;
use crate::check::tool::Tool;
use crate::step::{FAILURES, Outcome, say};

/// Most tests wait for other processes or for timers most of the time.
const LANES_PER_CORE: usize = 3;
/// Each scenario takes up to a gigabyte.
const LANES_MAX: usize = 24;
/// How many of the slowest tests are shown.
const SLOWEST: usize = 10;

/// Which tests run, and how.
#[derive(Debug)]
pub(super) struct Run<'a> {
    /// Of `.config/nextest.toml`.
    pub(super) profile: &'static str,
    /// An expression of nextest's that chooses tests; all of the profile's without it.
    pub(super) filter: Option<String>,
    /// Further arguments of nextest.
    pub(super) args: &'a [String],
    /// Environment variables of the tests.
    pub(super) env: Vec<(&'static str, String)>,
    /// Whether scenarios are among them.
    pub(super) scenarios: bool,
}

/// How many tests run at once.
fn lanes() -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    (cores * LANES_PER_CORE + 1).min(LANES_MAX)
}

impl Run<'_> {
    /// Runs all of them, whatever becomes of the first.
    pub(super) fn start(&self) -> Outcome {
        match self.try_start() {
            Ok(outcome) => outcome,
            Err(error) => Outcome::Failed(format!("{error:#}")),
        }
    }

    fn try_start(&self) -> anyhow::Result<Outcome> {
        let program = Tool::Nextest.get()?;
        let junit = cargo::target().join("nextest").join(self.profile).join("junit.xml");
        // What an earlier run left says nothing of this one.
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
        // Tests that run `cargo xtask` let it fail on purpose.
        command.env_remove(FAILURES);
        let mut interrupts = Interrupts::catch()?;
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
        if interrupts.came() {
            say(&format!("Interrupted. What had failed by then:\n{again}"));
            // As shells say of a program that Ctrl-C has ended: no further step begins.
            std::process::exit(130);
        }
        Ok(Outcome::Failed(if again.is_empty() {
            format!("cargo-nextest ended with {status}: fix what it names above")
        } else {
            format!("run again what failed:\n{}", again.trim_end())
        }))
    }

    /// The variables that a repetition needs, as a shell takes them.
    fn variables(&self) -> String {
        self.env.iter().map(|(name, value)| format!("{name}={value} ")).collect()
    }
}
