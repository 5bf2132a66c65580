//! Writes reports to standard output, unbuffered.

use std::env;
use std::io::{self, IsTerminal, Write};

use super::narration::{Narration, Paint};
use super::report::Report;

/// Writes reports as text or as JSON.
#[derive(Debug)]
pub(super) enum Teller {
    /// Text for users.
    Person(Narration),
    /// One JSON object per line, for programs.
    Program,
}

impl Teller {
    pub(super) fn new(json: bool) -> Self {
        if json {
            return Self::Program;
        }
        let no_colour = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let paint = if io::stdout().is_terminal() && !no_colour { Paint::Ansi } else { Paint::Plain };
        Self::Person(Narration::new(paint))
    }

    pub(super) fn tell(&self, report: &Report) {
        let text = match self {
            Self::Person(narration) => narration.text(report),
            Self::Program => report.json(),
        };
        // Writing fails if standard output is closed; the exit code still reports the result.
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes()).and_then(|()| out.flush()).ok();
    }
}
