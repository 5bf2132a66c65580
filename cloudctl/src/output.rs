//! Reports as people read them, and as programs do.

mod table;
mod visible;

use std::io::{self, IsTerminal as _, Write as _};

use anyhow::Context as _;
use clap::ValueEnum;
use serde::Serialize;

pub(crate) use self::table::{Cell, Table, Tone};
use self::visible::escaped;
use crate::missing::Missing;

/// How a report is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Tables, for people
    #[default]
    Table,
    /// For programs
    Json,
    /// For programs, and people with patience
    Yaml,
}

/// Whether there are colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    /// On a terminal, unless `NO_COLOR` is set
    #[default]
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

impl Color {
    /// Whether what is printed has them. `refused`: `NO_COLOR` is set.
    pub(crate) fn is_on(self, refused: bool) -> bool {
        match self {
            Self::Auto => !refused && io::stdout().is_terminal(),
            Self::Always => true,
            Self::Never => false,
        }
    }
}

/// What a command found.
pub(crate) trait Report: Serialize {
    /// Writes it for people; what is missing follows by itself.
    fn show(&self, paper: &mut Paper);

    /// What could not be read.
    fn missing(&self) -> &[Missing];

    /// Whether what was read is well.
    fn is_well(&self) -> bool;
}

/// What people read, as it is written.
#[derive(Debug, Default)]
pub(crate) struct Paper {
    text: String,
    color: bool,
}

impl Paper {
    pub(crate) fn new(color: bool) -> Self {
        Self { text: String::new(), color }
    }

    /// A line.
    pub(crate) fn line(&mut self, text: impl AsRef<str>) {
        self.toned(Tone::Plain, text.as_ref());
    }

    /// A line in the colour of its tone.
    pub(crate) fn toned(&mut self, tone: Tone, text: &str) {
        self.text.push_str(&tone.paint(text, self.color));
        self.text.push('\n');
    }

    /// A line above what belongs together, with air before it.
    pub(crate) fn heading(&mut self, text: &str) {
        self.gap();
        self.toned(Tone::Title, text);
    }

    /// Air, if there is anything above.
    pub(crate) fn gap(&mut self) {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
    }

    /// A table, indented by so many spaces.
    pub(crate) fn table(&mut self, table: &Table, indent: usize) {
        self.text.push_str(&table.render(indent, self.color));
    }

    /// Lines under a word each, such as what is missing. Nothing, if there are none.
    pub(crate) fn list(&mut self, (title, tone): (&str, Tone), lines: impl IntoIterator<Item = String>) {
        let mut lines = lines.into_iter().peekable();
        if lines.peek().is_none() {
            return;
        }
        self.gap();
        self.toned(tone, title);
        for line in lines {
            self.line(format!("  {line}"));
        }
    }

    pub(crate) fn text(self) -> String {
        self.text
    }
}

/// Writes a report as it was asked for.
///
/// # Errors
/// It cannot be written as that.
pub(crate) fn written(report: &impl Report, format: Format, color: bool) -> anyhow::Result<String> {
    match format {
        Format::Table => {
            let mut paper = Paper::new(color);
            report.show(&mut paper);
            let missing = report.missing().iter().map(|it| format!("{}: {}", it.source, it.why));
            paper.list(("Missing", Tone::Bad), missing);
            Ok(paper.text())
        }
        Format::Json => {
            let text = serde_json::to_string_pretty(report).context("cannot write the report as JSON")?;
            Ok(format!("{}\n", escaped(text)))
        }
        Format::Yaml => serde_saphyr::to_string(report).context("cannot write the report as YAML"),
    }
}

/// Prints on standard output. Whoever closes it early has read enough.
///
/// # Errors
/// It cannot be written to.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error).context("cannot print"),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Says something on standard error, where it disturbs no program that reads the report.
pub(crate) fn say(text: &str) {
    let line = format!("{text}\n");
    // Where nobody listens, nothing is lost.
    io::stderr().write_all(line.as_bytes()).unwrap_or_default();
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVIL: &str = "a\u{1b}[2J\u{9b}2J\u{202e}\r\nb";

    #[derive(Serialize)]
    struct Evil {
        missing: Vec<Missing>,
    }

    impl Report for Evil {
        fn show(&self, paper: &mut Paper) {
            paper.heading(EVIL);
            paper.line(EVIL);
        }

        fn missing(&self) -> &[Missing] {
            &self.missing
        }

        fn is_well(&self) -> bool {
            false
        }
    }

    #[test]
    fn nothing_from_outside_commands_the_terminal() {
        let evil = Evil { missing: vec![Missing::new(EVIL, EVIL)] };
        for format in [Format::Table, Format::Json, Format::Yaml] {
            let text = written(&evil, format, false).expect("written");
            let obeyed = text.chars().find(|it| it.is_control() && *it != '\n');
            assert_eq!(obeyed, None, "{format:?}: {text:?}");
            assert!(format == Format::Yaml || !text.contains('\u{202e}'), "{format:?}: {text:?}");
        }
        let text = written(&evil, Format::Yaml, false).expect("written");
        let read: serde_json::Value = serde_saphyr::from_str(&text).expect("YAML");
        assert_eq!(read.pointer("/missing/0/why").and_then(|it| it.as_str()), Some(EVIL));
    }
}
