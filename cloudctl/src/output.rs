//! Output of reports, for users and for programs.

mod table;
mod visible;

use std::io::{self, IsTerminal as _, Write as _};

use anyhow::Context as _;
use clap::ValueEnum;
use serde::Serialize;

pub(crate) use self::table::{Cell, Table, TextStyle};
use self::visible::escaped;
use crate::missing::Missing;

/// The format of a report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Human-readable tables
    #[default]
    Table,
    /// Tables with everything that was read
    Wide,
    /// Only names, one a line
    Name,
    /// JSON, for programs
    Json,
    /// YAML, for programs and for detailed reading
    Yaml,
}

/// When to use colours.
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
    /// Whether the output has colours. `refused` says whether `NO_COLOR` is set.
    pub(crate) fn is_on(self, refused: bool) -> bool {
        match self {
            Self::Auto => !refused && io::stdout().is_terminal(),
            Self::Always => true,
            Self::Never => false,
        }
    }
}

/// The result of a command.
pub(crate) trait Report: Serialize {
    /// Writes the human-readable form. The caller adds the list of what could not be read.
    fn show(&self, paper: &mut TextOutput);

    /// The names for `-o name`, as `explain` or another command accepts them. Empty for a report without names.
    fn names(&self) -> Vec<String> {
        Vec::new()
    }

    fn missing(&self) -> &[Missing];

    /// Whether everything that was read is in order.
    fn is_well(&self) -> bool;
}

/// The human-readable text under construction.
#[derive(Debug, Default)]
pub(crate) struct TextOutput {
    text: String,
    color: bool,
    /// Whether the user wants to see everything that was read.
    pub(crate) wide: bool,
}

impl TextOutput {
    pub(crate) fn new(color: bool) -> Self {
        Self { color, ..Self::default() }
    }

    pub(crate) fn line(&mut self, text: impl AsRef<str>) {
        self.toned(TextStyle::Plain, text.as_ref());
    }

    pub(crate) fn toned(&mut self, tone: TextStyle, text: &str) {
        self.text.push_str(&tone.paint(text, self.color));
        self.text.push('\n');
    }

    pub(crate) fn heading(&mut self, text: &str) {
        self.gap();
        self.toned(TextStyle::Title, text);
    }

    /// Adds an empty line, unless the text is empty.
    pub(crate) fn gap(&mut self) {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
    }

    pub(crate) fn table(&mut self, table: &Table, indent: usize) {
        self.text.push_str(&table.render(indent, self.color));
    }

    /// Adds a list under a heading, for example of what could not be read. Adds nothing if the list is empty.
    pub(crate) fn list(&mut self, title: &str, tone: TextStyle, lines: impl IntoIterator<Item = String>) {
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

pub(crate) fn written(report: &impl Report, format: Format, color: bool) -> anyhow::Result<String> {
    match format {
        Format::Table | Format::Wide => {
            let mut paper = TextOutput { wide: format == Format::Wide, ..TextOutput::new(color) };
            report.show(&mut paper);
            paper.list("Missing", TextStyle::Bad, lacks(report));
            Ok(paper.text())
        }
        Format::Name => {
            let mut paper = TextOutput::default();
            report.names().iter().for_each(|name| paper.line(name));
            lacks(report).for_each(|line| say(&format!("error: {line}")));
            Ok(paper.text())
        }
        Format::Json => {
            let text = serde_json::to_string_pretty(report).context("cannot write the report as JSON")?;
            Ok(format!("{}\n", escaped(text)))
        }
        Format::Yaml => serde_saphyr::to_string(report).context("cannot write the report as YAML"),
    }
}

fn lacks(report: &impl Report) -> impl Iterator<Item = String> {
    report.missing().iter().map(|it| format!("{}: {}", it.source, it.why))
}

/// Prints to standard output. A closed pipe is not an error.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error).context(
            "cannot write \
             to standard output",
        ),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Prints to standard error, so that a program that reads the report from standard output does not receive this text.
pub(crate) fn say(text: &str) {
    let line = format!("{text}\n");
    // A closed standard error is not an error.
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
        fn show(&self, paper: &mut TextOutput) {
            paper.heading(EVIL);
            paper.line(EVIL);
        }

        fn names(&self) -> Vec<String> {
            vec![EVIL.to_owned()]
        }

        fn missing(&self) -> &[Missing] {
            &self.missing
        }

        fn is_well(&self) -> bool {
            false
        }
    }

    #[test]
    fn output_contains_no_foreign_control_characters() {
        let evil = Evil { missing: vec![Missing::new(EVIL, EVIL)] };
        for format in [Format::Table, Format::Wide, Format::Name, Format::Json, Format::Yaml] {
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
