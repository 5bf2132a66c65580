//! Tables. On narrow screens each row becomes a list, in which every value is shown with the name of its column.

use std::fmt::{self, Display};

use super::text::Escaped;

#[derive(Clone, Copy)]
pub(super) struct Column {
    name: &'static str,
    class: &'static str,
}

pub(super) const fn words(name: &'static str) -> Column {
    Column { name, class: "" }
}

pub(super) const fn number(name: &'static str) -> Column {
    Column { name, class: "number" }
}

/// Returns a column of names that users choose. The names may be long, and may be wrapped anywhere.
pub(super) const fn name(name: &'static str) -> Column {
    Column { name, class: "name" }
}

/// Returns a column of long texts, which gets the remaining width.
pub(super) const fn long(name: &'static str) -> Column {
    Column { name, class: "long" }
}

/// The content of a cell: escaped text, or trusted markup.
pub(super) enum Cell {
    Text(String),
    Markup(String),
}

pub(super) fn text(text: impl Display) -> Cell {
    Cell::Text(text.to_string())
}

/// Returns a cell with trusted markup, in which texts are already escaped.
pub(super) fn markup(markup: impl Display) -> Cell {
    Cell::Markup(markup.to_string())
}

impl Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => Escaped(text).fmt(f),
            Self::Markup(markup) => f.write_str(markup),
        }
    }
}

/// A section with a table. The first cell of a row is the row's name. If the table has no rows, `empty` is shown instead.
pub(super) struct Table<const N: usize> {
    id: &'static str,
    title: &'static str,
    note: String,
    empty: &'static str,
    columns: [Column; N],
    rows: Vec<[Cell; N]>,
}

impl<const N: usize> Table<N> {
    pub(super) fn new(
        id: &'static str,
        title: &'static str,
        empty: &'static str,
        columns: [Column; N],
        rows: impl Iterator<Item = [Cell; N]>,
    ) -> Self {
        Self { id, title, note: String::new(), empty, columns, rows: rows.collect() }
    }

    pub(super) fn note(self, note: impl Into<String>) -> Self {
        Self { note: note.into(), ..self }
    }
}

impl<const N: usize> Display for Table<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, title, note, empty, columns, rows } = self;
        writeln!(f, "<section id=\"{id}\">")?;
        if rows.is_empty() {
            return writeln!(f, "<h2>{title}</h2>\n<p class=\"empty\">{empty}</p>\n</section>");
        }
        write!(f, "<table>\n<caption><h2>{title}</h2>")?;
        if !note.is_empty() {
            write!(f, "<p>{note}</p>")?;
        }
        f.write_str("</caption>\n<thead><tr>")?;
        for Column { name, class } in columns {
            write!(f, "<th scope=\"col\"{}>{name}</th>", Class(class))?;
        }
        f.write_str("</tr></thead>\n<tbody>\n")?;
        for row in rows {
            f.write_str("<tr>")?;
            for (index, (Column { name, class }, cell)) in columns.iter().zip(row).enumerate() {
                match index {
                    0 => write!(f, "<th scope=\"row\"{}>{cell}</th>", Class(class))?,
                    // The `div` is a box around the content, so that the list layout can put the content beside the column name.
                    _ => write!(f, "<td data-name=\"{name}\"{}><div>{cell}</div></td>", Class(class))?,
                }
            }
            f.write_str("</tr>\n")?;
        }
        f.write_str("</tbody>\n</table>\n</section>\n")
    }
}

struct Class(&'static str);

impl Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, " class=\"{}\"", self.0) }
    }
}

/// Returns a cell with a state and its details. The details ensure that the state is not indicated by colour alone.
pub(super) fn state(class: &str, word: impl Display, more: &str) -> Cell {
    let (colon, more) = (if more.is_empty() { "" } else { ": " }, Escaped(more));
    Cell::Markup(format!("<span class=\"state {class}\">{word}</span>{colon}{more}"))
}
