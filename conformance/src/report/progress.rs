//! Progress output while checks run.

use std::io::{self, IsTerminal as _, Write as _};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::{Entry, Outcome, table};
use crate::check::Check;

/// Receives the progress of a run. Called from several tasks.
pub trait Progress: Send + Sync {
    /// The run starts with this many checks.
    fn begun(&self, checks: usize, seed: u64);
    /// A check starts on this lane.
    fn started(&self, check: &Check, lane: &str);
    /// A check has ended, or will not run.
    fn ended(&self, entry: &Entry);
}

/// Ignores all progress.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Progress for Silent {
    fn begun(&self, _checks: usize, _seed: u64) {}
    fn started(&self, _check: &Check, _lane: &str) {}
    fn ended(&self, _entry: &Entry) {}
}

/// Shows a bar on a terminal, and lines elsewhere. Prints failures at once and in full. Writes to standard error.
#[derive(Debug)]
pub struct Terminal {
    bar: Option<ProgressBar>,
    colour: bool,
}

impl Terminal {
    /// Shows a bar if standard error is a terminal.
    pub fn new() -> Self {
        let terminal = io::stderr().is_terminal();
        let bar = terminal.then(|| ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr()));
        Self { bar, colour: terminal }
    }

    fn say(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.println(text),
            // If standard error is closed, no reader can see the progress; the exit code still shows the result.
            None => io::stderr().write_all(format!("{text}\n").as_bytes()).unwrap_or_default(),
        }
    }
}

impl Default for Terminal {
    fn default() -> Self {
        Self::new()
    }
}

impl Progress for Terminal {
    fn begun(&self, checks: usize, seed: u64) {
        let noun = if checks == 1 { "check" } else { "checks" };
        self.say(&format!("{checks} {noun}, --seed {seed}"));
        if let Some(bar) = &self.bar {
            bar.set_length(u64::try_from(checks).unwrap_or_default());
            let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {elapsed} {wide_msg}");
            bar.set_style(style.unwrap_or_else(|_malformed| ProgressStyle::default_bar()));
        }
    }

    fn started(&self, check: &Check, _lane: &str) {
        if let Some(bar) = &self.bar {
            bar.set_message(format!("{} {}", check.id, check.name));
        }
    }

    fn ended(&self, entry: &Entry) {
        if let Some(bar) = self.bar.as_ref().filter(|_| !entry.lane.is_empty()) {
            bar.inc(1);
        }
        // Skipped checks are left out here, because the table at the end lists them with their reasons.
        if !matches!(entry.outcome, Outcome::Skipped(_)) {
            self.say(&table::line(entry, self.colour));
        }
        if matches!(entry.outcome, Outcome::Failed(_)) {
            self.say(&table::failure(entry));
        }
    }
}
