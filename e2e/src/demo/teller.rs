//! Where reports go: standard output, at once.

use std::env;
use std::io::{self, IsTerminal, Write};

use super::narration::{Narration, Paint};
use super::report::Report;

/// Tells reports to a person or to a program.
#[derive(Debug)]
pub(super) enum Teller {
    /// As text.
    Person(Narration),
    /// As one JSON object a line.
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
        // Where nobody reads any more, the exit code still tells.
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes()).and_then(|()| out.flush()).ok();
    }
}
