//! Pages of docs/reference whose tables are between markers. Only unit tests write these tables.

use std::{env, fs, path::PathBuf};

pub(crate) struct Document {
    /// The page's file name in `docs/reference`.
    pub(crate) name: &'static str,
}

const END: &str = "<!-- End of what is written. -->\n";

impl Document {
    /// Fails unless the table of a process equals `table`. If `UPDATE_REFERENCE` is set, writes the table instead.
    #[track_caller]
    #[expect(clippy::panic, reason = "a failed test")]
    pub(crate) fn assert(&self, process: &str, table: &str) {
        let old = self.read();
        let Some(new) = with_table(&old, process, table) else {
            panic!("{} has no {}", self.path().display(), begin(process))
        };
        if old == new {
            return;
        }
        assert!(
            env::var_os("UPDATE_REFERENCE").is_some(),
            "docs/reference/{}: the table of {process} is out of date; `cargo xtask metrics` writes \
             it. It should be\n{table}",
            self.name
        );
        if let Err(error) = fs::write(self.path(), new) {
            panic!("{}: {error}", self.path().display());
        }
    }

    /// Returns the rows that the tables of these processes lack.
    #[expect(clippy::panic, reason = "a failed test")]
    pub(crate) fn without(&self, processes: &[&str], rows: Vec<String>) -> Vec<String> {
        let text = self.read();
        let tables: Vec<&str> = processes
            .iter()
            .map(|process| match split(&text, process) {
                Some((_, table, _)) => table,
                None => panic!("{} has no {}", self.path().display(), begin(process)),
            })
            .collect();
        let listed = |row: &String| tables.iter().any(|table| table.lines().any(|line| line == row));
        rows.into_iter().filter(|row| !listed(row)).collect()
    }

    #[expect(clippy::panic, reason = "a failed test")]
    fn read(&self) -> String {
        let path = self.path();
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    fn path(&self) -> PathBuf {
        PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference")).join(self.name)
    }
}

pub(crate) fn table(head: &str, rows: &[String]) -> String {
    let columns = head.matches('|').count().saturating_sub(1);
    let mut table = format!("\n{head}\n|{}\n", " --- |".repeat(columns));
    for row in rows {
        table.push_str(row);
        table.push('\n');
    }
    table.push('\n');
    table
}

fn begin(process: &str) -> String {
    format!("<!-- Written by `cargo xtask metrics`: {process} -->\n")
}

/// Splits the page into the text before the table of a process, the table, and the text after it.
fn split<'a>(text: &'a str, process: &str) -> Option<(&'a str, &'a str, &'a str)> {
    let begin = begin(process);
    let (before, rest) = text.split_once(&begin)?;
    let (table, _) = rest.split_once(END)?;
    let (before, after) = (before.len() + begin.len(), table.len());
    Some((text.get(..before)?, table, text.get(before + after..)?))
}

fn with_table(text: &str, process: &str, table: &str) -> Option<String> {
    let (before, _, after) = split(text, process)?;
    Some(format!("{before}{table}{after}"))
}

#[cfg(test)]
mod tests {
    use super::{table, with_table};

    #[test]
    fn a_table_is_written_between_its_markers() {
        let begin = super::begin("a");
        let page = |inside: &str| format!("head\n{begin}{inside}{}tail\n", super::END);
        let table = table("| a | b |", &["| row | |".to_owned()]);
        let written = with_table(&page("old\n"), "a", &table).unwrap();
        assert!(written.starts_with("head\n") && written.ends_with("tail\n"), "{written}");
        assert!(written.contains("| a | b |\n| --- | --- |\n| row | |\n"), "{written}");
        assert!(!written.contains("old"), "{written}");
        assert_eq!(with_table(&page(""), "b", ""), None);
    }
}
