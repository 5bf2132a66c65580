//! Tables. Where there is no room for columns, each row becomes a list: every cell knows the name of its column.

use std::fmt::{self, Display};

use super::text::Escaped;

/// One column.
#[derive(Clone, Copy)]
pub(super) struct Column {
    name: &'static str,
    class: &'static str,
}

/// Words.
pub(super) const fn words(name: &'static str) -> Column {
    Column { name, class: "" }
}

/// Numbers: they stand under each other.
pub(super) const fn number(name: &'static str) -> Column {
    Column { name, class: "number" }
}

/// A name that users chose: it may be long, and is broken anywhere.
pub(super) const fn name(name: &'static str) -> Column {
    Column { name, class: "name" }
}

/// Words that may be many, and need the room that others do not.
pub(super) const fn long(name: &'static str) -> Column {
    Column { name, class: "long" }
}

/// What stands in a cell: text that is escaped, or markup that is ours.
pub(super) enum Cell {
    Text(String),
    Markup(String),
}

/// A text.
pub(super) fn text(text: impl Display) -> Cell {
    Cell::Text(text.to_string())
}

/// Our own markup, whose texts are escaped already.
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

/// A section with one table. The first cell of a row is its name. `empty`: what is said in place of a table without rows.
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
        (id, title): (&'static str, &'static str),
        empty: &'static str,
        columns: [Column; N],
        rows: impl Iterator<Item = [Cell; N]>,
    ) -> Self {
        Self { id, title, note: String::new(), empty, columns, rows: rows.collect() }
    }

    /// What the columns mean, where they do not say it.
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
                    // The cell's content is one box, so that a list can put it beside its name.
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

/// A state, and more of it: never by its colour alone.
pub(super) fn state(class: &str, word: impl Display, more: &str) -> Cell {
    let (colon, more) = (if more.is_empty() { "" } else { ": " }, Escaped(more));
    Cell::Markup(format!("<span class=\"state {class}\">{word}</span>{colon}{more}"))
}
