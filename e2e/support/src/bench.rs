//! The result table of benchmarks, one row per figure. A benchmark prints rows to standard output with [`print()`]; `cargo xtask bench`
//! reads them and prints one table of all rows. Columns are separated by tabs, so that the rows are readable without that command.

use std::{
    fmt,
    io::{self, Write},
    str::FromStr,
};

/// One measured figure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The property that the figure measures, such as `P3`.
    pub id: String,
    /// What was measured.
    pub what: String,
    /// The measured value, with its unit.
    pub figure: String,
    /// The bound, with its unit; empty without a bound.
    pub bound: String,
    /// Whether the value is within the bound.
    pub verdict: Verdict,
}

/// The relation of a figure to its bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Within the bound.
    Met,
    /// Outside of the bound.
    Missed,
    /// No bound: the figure is for comparison only.
    Told,
}

impl Row {
    /// A figure without a bound.
    pub fn told(id: &str, what: impl Into<String>, figure: impl Into<String>) -> Self {
        let (what, figure) = (what.into(), figure.into());
        Self { id: id.to_owned(), what, figure, bound: String::new(), verdict: Verdict::Told }
    }

    /// A figure with a bound, and whether the value is within it.
    #[must_use]
    pub fn promised(self, bound: impl Into<String>, met: bool) -> Self {
        let verdict = if met { Verdict::Met } else { Verdict::Missed };
        Self { bound: bound.into(), verdict, ..self }
    }

    fn cells(&self) -> [&str; 5] {
        [&self.id, &self.what, &self.figure, &self.bound, self.verdict.word()]
    }
}

impl Verdict {
    const ALL: [Self; 3] = [Self::Met, Self::Missed, Self::Told];

    const fn word(self) -> &'static str {
        match self {
            Self::Met => "ok",
            Self::Missed => "MISSED",
            Self::Told => "-",
        }
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.cells().map(|cell| cell.replace(['\t', '\n'], " ")).join("\t"))
    }
}

/// The line is not a row, but other output of a benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotARow;

impl FromStr for Row {
    type Err = NotARow;

    fn from_str(line: &str) -> Result<Self, NotARow> {
        let cells: Vec<_> = line.split('\t').collect();
        let &[id, what, figure, bound, verdict] = cells.as_slice() else { return Err(NotARow) };
        let verdict = Verdict::ALL.into_iter().find(|known| known.word() == verdict).ok_or(NotARow)?;
        let [id, what, figure, bound] = [id, what, figure, bound].map(str::to_owned);
        Ok(Self { id, what, figure, bound, verdict })
    }
}

/// Prints rows to standard output.
pub fn print(rows: &[Row]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    rows.iter().try_for_each(|row| writeln!(out, "{row}"))
}

/// Formats all rows as a table with aligned columns.
#[must_use]
pub fn table(rows: &[Row]) -> String {
    let head = ["", "measured", "figure", "bound", ""];
    let widths = rows.iter().map(Row::cells).fold(head.map(width), |widths, cells| {
        std::array::from_fn(|column| {
            let width = |column: usize| cells.get(column).map_or(0, |cell| width(cell));
            widths.get(column).copied().unwrap_or_default().max(width(column))
        })
    });
    let mut table = line(head, widths);
    for row in rows {
        table.push_str(&line(row.cells(), widths));
    }
    table
}

fn line(cells: [&str; 5], widths: [usize; 5]) -> String {
    let padded: Vec<_> = cells.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
    format!("{}\n", padded.join("  ").trim_end())
}

fn width(cell: &str) -> usize {
    cell.chars().count()
}

#[cfg(test)]
mod tests {
    use super::{NotARow, Row, table};

    #[test]
    fn rows_round_trip_and_other_output_is_ignored() {
        let rows = [
            Row::told("P3", "wait p99", "486 s"),
            Row::told("P3", "wait p99, ours", "0.1 s").promised("<= 0.5 s", true),
            Row::told("P18", "decision p99", "7 us").promised("<= 5 us", false),
        ];
        for row in rows {
            assert_eq!(row.to_string().parse(), Ok(row));
        }
        for line in ["", "running 1 test", "a\tb\tc\td\te"] {
            assert_eq!(line.parse::<Row>(), Err(NotARow), "{line:?}");
        }
    }

    #[test]
    fn tabs_in_a_text_do_not_make_columns() {
        let row: Row = Row::told("P1", "a\tb", "1").to_string().parse().unwrap();
        assert_eq!(row.what, "a b");
    }

    #[test]
    fn columns_are_aligned() {
        let rows = [
            Row::told("P3", "wait", "486 s"),
            Row::told("P18", "decision", "7 us").promised("<= 5 us", false),
        ];
        let expected = [
            "     measured  figure  bound",
            "P3   wait      486 s            -",
            "P18  decision  7 us    <= 5 us  MISSED",
        ];
        assert_eq!(table(&rows).lines().collect::<Vec<_>>(), expected);
    }
}
