//! Writes reports to standard output, unbuffered.

use std::env;
use std::io::{self, IsTerminal, Write};

use super::narration::{Narration, Paint};
use super::report::Report;

/// Writes reports for a user or for a program.
#[derive(Debug)]
pub(super) enum Teller {
    /// As text.
    Person(Narration),
    /// One JSON object per line.
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
        // Standard output may be closed; the exit code has the result.
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes()).and_then(|()| out.flush()).ok();
    }
}
