//! The result table of a benchmark, one row per figure.

use std::io::{self, Write as _};

/// One measured figure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    id: &'static str,
    what: String,
    figure: String,
    /// The bound with its unit, and whether the figure is within it.
    bound: Option<(String, bool)>,
}

impl Row {
    /// Returns the row of a figure without a bound. `id` is the property, such as `P3`. `what` is the measured quantity, and `figure` is
    /// the value with its unit.
    pub fn new(id: &'static str, what: impl Into<String>, figure: impl Into<String>) -> Self {
        Self { id, what: what.into(), figure: figure.into(), bound: None }
    }

    /// Adds a bound to the row. `met` says whether the value is within the bound.
    #[must_use]
    pub fn promised(self, bound: impl Into<String>, met: bool) -> Self {
        Self { bound: Some((bound.into(), met)), ..self }
    }
}

/// Prints the rows to standard output. Fails if a figure is outside of its bound.
pub fn print(rows: &[Row]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let mut missed = 0_usize;
    for Row { id, what, figure, bound } in rows {
        let (bound, verdict) = match bound {
            None => ("", ""),
            Some((bound, true)) => (bound.as_str(), "ok"),
            Some((bound, false)) => (bound.as_str(), "MISSED"),
        };
        missed = missed.saturating_add(usize::from(verdict == "MISSED"));
        writeln!(out, "{id:<4} {figure:>10} {bound:<12} {verdict:<6} {what}")?;
    }
    if missed == 0 {
        return Ok(());
    }
    Err(io::Error::other(format!("{missed} of {} figures are outside of their bounds", rows.len())))
}

#[cfg(test)]
mod tests {
    use super::{Row, print};

    #[test]
    fn only_a_missed_bound_is_an_error() {
        let row = Row::new("P3", "wait", "486 s");
        let met = row.clone().promised("<= 500 s", true);
        let missed = row.clone().promised("<= 0.5 s", false);
        assert!(print(&[row, met.clone()]).is_ok());
        let error = print(&[met, missed]).unwrap_err();
        assert_eq!(error.to_string(), "1 of 2 figures are outside of their bounds");
    }
}
