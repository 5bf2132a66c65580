//! Reports the progress of a build: on a terminal as one line that is updated, otherwise as a new line from time to time.

use std::fmt;
use std::io::{IsTerminal, Write};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::tool::Tool;

/// The time between two lines if the output is not a terminal.
const LINE_EVERY: Duration = Duration::from_secs(15);

/// Receives the events of a search.
pub trait Progress: fmt::Debug {
    /// A detail for troubleshooting, such as the reason for skipping a program.
    fn note(&mut self, note: &str);
    /// A message for the user.
    fn say(&mut self, line: &str);
    /// A build begins; `total` is the usual time of a build without a cache on two cores.
    fn begin(&mut self, tool: Tool, total: Duration);
    /// The build continues; called several times a second.
    fn tick(&mut self, elapsed: Duration);
    /// The build has ended, successfully or not.
    fn end(&mut self);
}

/// Ignores all events.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quiet;

impl Progress for Quiet {
    fn note(&mut self, _note: &str) {}
    fn say(&mut self, _line: &str) {}
    fn begin(&mut self, _tool: Tool, _total: Duration) {}
    fn tick(&mut self, _elapsed: Duration) {}
    fn end(&mut self) {}
}

/// Writes to standard error, because standard output is for results.
#[derive(Debug)]
pub struct Terminal {
    notes: bool,
    build: Option<Build>,
}

#[derive(Debug)]
struct Build {
    tool: Tool,
    total: Duration,
    bar: Option<ProgressBar>,
    last_line: Duration,
}

impl Terminal {
    /// Shows builds, but no notes.
    pub fn new() -> Self {
        Self { notes: false, build: None }
    }

    /// Shows builds and notes.
    pub fn with_notes() -> Self {
        Self { notes: true, build: None }
    }

    fn line(&self, text: &str) {
        // Printing fails if standard error is closed; the search continues.
        std::io::stderr().write_all(format!("{text}\n").as_bytes()).ok();
    }
}

impl Default for Terminal {
    fn default() -> Self {
        Self::new()
    }
}

impl Progress for Terminal {
    fn note(&mut self, note: &str) {
        if self.notes {
            self.line(&format!("debug: {note}"));
        }
    }

    fn say(&mut self, line: &str) {
        self.line(line);
    }

    fn begin(&mut self, tool: Tool, total: Duration) {
        let text = format!(
            "Building {tool} {} from Go modules (once, usually about {})",
            tool.version(),
            clock(total)
        );
        let bar = std::io::stderr().is_terminal().then(|| spinner(text.clone()));
        if bar.is_none() {
            self.line(&text);
        }
        self.build = Some(Build { tool, total, bar, last_line: Duration::ZERO });
    }

    fn tick(&mut self, elapsed: Duration) {
        let Some(build) = &mut self.build else { return };
        if let Some(bar) = &build.bar {
            bar.tick();
        } else if elapsed.saturating_sub(build.last_line) >= LINE_EVERY {
            build.last_line = elapsed;
            let text =
                format!("  ... {} for {} (usually about {})", build.tool, clock(elapsed), clock(build.total));
            self.line(&text);
        }
    }

    fn end(&mut self) {
        if let Some(bar) = self.build.take().and_then(|build| build.bar) {
            bar.finish_and_clear();
        }
    }
}

fn spinner(text: String) -> ProgressBar {
    let style = ProgressStyle::with_template("{spinner} {msg} {elapsed}");
    ProgressBar::new_spinner()
        .with_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()))
        .with_message(text)
}

/// Formats a duration: `45s`, `3m05s`.
pub(crate) fn clock(time: Duration) -> String {
    let (minutes, seconds) = (time.as_secs() / 60, time.as_secs() % 60);
    if minutes == 0 { format!("{seconds}s") } else { format!("{minutes}m{seconds:02}s") }
}

#[cfg(test)]
mod tests {
    use super::{Duration, clock};

    #[test]
    fn times_are_short() {
        assert_eq!(clock(Duration::from_secs(45)), "45s");
        assert_eq!(clock(Duration::from_secs(185)), "3m05s");
    }
}
