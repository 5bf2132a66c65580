//! Who waits for a build is told what goes on: a line that moves on a terminal, a line now and then elsewhere.

use std::fmt;
use std::io::{IsTerminal, Write};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::tool::Tool;

/// Between two lines where the output is not a terminal.
const LINE_EVERY: Duration = Duration::from_secs(15);

/// Hears what a search does.
pub trait Progress: fmt::Debug {
    /// Something worth knowing while one looks for a fault, such as a program that was passed over.
    fn note(&mut self, note: &str);
    /// Something that the waiting person should see.
    fn say(&mut self, line: &str);
    /// A build begins; `total` is what it takes on two cores when nothing of it is cached.
    fn begin(&mut self, tool: Tool, total: Duration);
    /// The build goes on; called several times a second.
    fn tick(&mut self, elapsed: Duration);
    /// The build is over, well or badly.
    fn end(&mut self);
}

/// Says nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quiet;

impl Progress for Quiet {
    fn note(&mut self, _note: &str) {}
    fn say(&mut self, _line: &str) {}
    fn begin(&mut self, _tool: Tool, _total: Duration) {}
    fn tick(&mut self, _elapsed: Duration) {}
    fn end(&mut self) {}
}

/// Writes to standard error, so that standard output stays for the answer.
#[derive(Debug)]
pub struct Terminal {
    notes: bool,
    build: Option<Build>,
}

/// The build that is shown right now.
#[derive(Debug)]
struct Build {
    tool: Tool,
    total: Duration,
    bar: Option<ProgressBar>,
    last_line: Duration,
}

impl Terminal {
    /// Shows builds, and not the notes.
    pub fn new() -> Self {
        Self { notes: false, build: None }
    }

    /// Shows the notes too.
    pub fn with_notes() -> Self {
        Self { notes: true, build: None }
    }

    fn line(&self, text: &str) {
        // Nobody reads any more when standard error is gone; the search itself goes on.
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
        let text =
            format!("Building {tool} {} from Go modules (once, about {})", tool.version(), clock(total));
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
            let text = format!("  ... {} for {} of about {}", build.tool, clock(elapsed), clock(build.total));
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

/// `45s`, `3m05s`.
fn clock(time: Duration) -> String {
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
