//! Formats tables. Columns are as wide as their contents; no text is truncated or wrapped.

use anstyle::{AnsiColor, Style};

use super::visible::visible;

/// The meaning of a text, which decides its colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum TextStyle {
    #[default]
    Plain,
    Title,
    Good,
    Warn,
    Bad,
    Dim,
}

impl TextStyle {
    /// Encloses the text in the terminal's escape sequences for its colour. Escape sequences in the text are replaced.
    pub(crate) fn paint(self, text: &str, color: bool) -> String {
        let style = match self {
            Self::Plain => Style::new(),
            Self::Title => Style::new().bold(),
            Self::Good => AnsiColor::Green.on_default(),
            Self::Warn => AnsiColor::Yellow.on_default(),
            Self::Bad => AnsiColor::Red.on_default(),
            Self::Dim => Style::new().dimmed(),
        };
        let text = visible(text);
        if color && !text.is_empty() { format!("{style}{text}{style:#}") } else { text }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cell {
    text: String,
    tone: TextStyle,
}

impl Cell {
    pub(crate) fn new(tone: TextStyle, text: impl Into<String>) -> Self {
        Self { text: text.into(), tone }
    }

    /// Returns a dash if there is no text, or else the text in this tone.
    pub(crate) fn if_any(tone: TextStyle, text: Option<&str>) -> Self {
        match text.filter(|text| !text.is_empty()) {
            Some(text) => Self::new(tone, text),
            None => Self::new(TextStyle::Dim, crate::words::NOTHING),
        }
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::new(TextStyle::Plain, text)
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::new(TextStyle::Plain, text)
    }
}

impl From<u64> for Cell {
    fn from(number: u64) -> Self {
        Self::new(TextStyle::Plain, number.to_string())
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    rows: Vec<Vec<Cell>>,
}

impl Table {
    pub(crate) fn new(head: &[&str]) -> Self {
        Self { rows: vec![head.iter().map(|word| Cell::new(TextStyle::Dim, *word)).collect()] }
    }

    pub(crate) fn row<const N: usize>(&mut self, cells: [Cell; N]) {
        self.rows.push(Vec::from(cells));
    }

    /// Formats the table, one line per row, without trailing spaces.
    pub(crate) fn render(&self, indent: usize, color: bool) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or_default();
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.text.chars().count()).max().unwrap_or_default()
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut all = String::new();
        for row in &self.rows {
            let mut line = " ".repeat(indent);
            let mut owed = 0;
            for (cell, width) in row.iter().zip(&widths) {
                line.push_str(&" ".repeat(owed));
                line.push_str(&cell.tone.paint(&cell.text, color));
                owed = width.saturating_sub(cell.text.chars().count()) + 2;
            }
            all.push_str(line.trim_end());
            all.push('\n');
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new(&["NAME", "STATE", "WHY"]);
        table.row(["a".into(), Cell::new(TextStyle::Bad, "OPEN"), "it is hot".into()]);
        table.row(["größer".into(), Cell::new(TextStyle::Good, "CLOSED"), "".into()]);
        table
    }

    #[test]
    fn columns_are_as_wide_as_their_contents() {
        let wanted = "  NAME    STATE   WHY\n  a       OPEN    it is hot\n  größer  CLOSED\n";
        assert_eq!(table().render(2, false), wanted);
    }

    #[test]
    fn control_characters_are_shown() {
        let mut table = Table::default();
        table.row([Cell::new(TextStyle::Bad, "a\u{1b}[2Jb"), "c\nd".into()]);
        assert_eq!(table.render(0, false), "a␛[2Jb  c␊d\n");
        assert_eq!(table.render(0, true), "\u{1b}[31ma␛[2Jb\u{1b}[0m  c␊d\n");
    }

    #[test]
    fn colours_do_not_change_widths() {
        let colored = table().render(2, true);
        assert!(colored.contains("\u{1b}[31mOPEN\u{1b}[0m    it is hot"), "{colored:?}");
        let mut plain = colored;
        for sign in ["\u{1b}[31m", "\u{1b}[32m", "\u{1b}[2m", "\u{1b}[0m"] {
            plain = plain.replace(sign, "");
        }
        assert_eq!(plain.replace("CLOSED  \n", "CLOSED\n"), table().render(2, false));
    }
}
