//! For tests: docs/reference/metrics.md, whose tables are made of what the processes show.
//!
//! A unit test of each process lets everything happen once, for a metric with labels is on no page before, and hands its page to
//! [`assert_up_to_date`]. With `UPDATE_REFERENCE` in the environment the table is written instead of compared. An end-to-end test
//! looks on the pages of real processes for what those tests forgot: [`unlisted`].

use std::{collections::BTreeMap, env, fs, path::PathBuf};

/// One metric, as a page describes it and its samples show it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Metric {
    kind: String,
    unit: String,
    help: String,
    /// In the order in which samples have them.
    labels: Vec<String>,
    /// The upper bounds of a histogram, but for the endless one.
    bounds: Vec<String>,
    /// Whether there is a sample. A description alone does not tell the labels.
    shown: bool,
}

/// Fails unless the table of a process has what its page shows, no more and no less, but for what the tables of `beside` have.
/// `page`: in the OpenMetrics format.
///
/// # Panics
/// When they differ, or the document has no such table; the message tells how it is written.
#[track_caller]
#[expect(clippy::panic, reason = "a failed test")]
pub fn assert_up_to_date(process: &str, beside: &[&str], page: &str) {
    let table = table(&unlisted(beside, page));
    let (path, old) = document();
    let Some(new) = with_table(&old, process, &table) else {
        panic!("{} has no {}", path.display(), begin(process))
    };
    if old == new {
        return;
    }
    assert!(
        env::var_os("UPDATE_REFERENCE").is_some(),
        "docs/reference/metrics.md: the table of {process} is stale; `cargo xtask metrics` writes it. It should be\n{table}"
    );
    if let Err(error) = fs::write(&path, new) {
        panic!("{}: {error}", path.display());
    }
}

/// The rows of a page that the tables of these processes do not have.
///
/// # Panics
/// When the document cannot be read or lacks one of the tables.
#[must_use]
#[expect(clippy::panic, reason = "a failed test")]
pub fn unlisted(processes: &[&str], page: &str) -> Vec<String> {
    let (path, text) = document();
    let tables: Vec<&str> = processes
        .iter()
        .map(|process| match split(&text, process) {
            Some((_, table, _)) => table,
            None => panic!("{} has no {}", path.display(), begin(process)),
        })
        .collect();
    let listed = |row: &String| tables.iter().any(|table| table.lines().any(|line| line == row));
    rows(page).into_iter().filter(|row| !listed(row)).collect()
}

#[expect(clippy::panic, reason = "a failed test")]
fn document() -> (PathBuf, String) {
    let path = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/metrics.md"));
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    (path, text)
}

fn begin(process: &str) -> String {
    format!("<!-- Written by `cargo xtask metrics`: {process} -->\n")
}

const END: &str = "<!-- End of what is written. -->\n";

/// What is before the table of a process, the table, and what is after it.
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

fn table(rows: &[String]) -> String {
    let mut table = "\n| metric | type | labels | unit | |\n| --- | --- | --- | --- | --- |\n".to_owned();
    for row in rows {
        table.push_str(row);
        table.push('\n');
    }
    table.push('\n');
    table
}

/// One line a metric, by name.
fn rows(page: &str) -> Vec<String> {
    let cell = |text: &str| if text.is_empty() { " ".to_owned() } else { format!(" {text} ") };
    let row = |(name, metric): (&String, &Metric)| {
        let Metric { kind, unit, help, labels, bounds, shown: _ } = metric;
        let total = if kind == "counter" { "_total" } else { "" };
        let labels = labels.iter().map(|label| format!("`{label}`")).collect::<Vec<_>>().join(", ");
        let kind = match (bounds.first(), bounds.last()) {
            (Some(first), Some(last)) => format!("{kind}, {first} to {last} in {}", bounds.len()),
            _ => kind.clone(),
        };
        let help = help.trim_end_matches('.').replace('|', "\\|");
        format!("| `{name}{total}` |{}|{}|{}|{}|", cell(&kind), cell(&labels), cell(unit), cell(&help))
    };
    metrics(page).iter().map(row).collect()
}

/// By name. Samples stand below their description.
fn metrics(page: &str) -> BTreeMap<String, Metric> {
    let mut metrics: BTreeMap<String, Metric> = BTreeMap::new();
    let mut current = String::new();
    for line in page.lines() {
        if let Some(comment) = line.strip_prefix("# ") {
            let mut words = comment.splitn(3, ' ');
            let (Some(what), Some(name), Some(text)) = (words.next(), words.next(), words.next()) else {
                continue;
            };
            name.clone_into(&mut current);
            let metric = metrics.entry(current.clone()).or_default();
            match what {
                "HELP" => text.clone_into(&mut metric.help),
                "TYPE" => text.clone_into(&mut metric.kind),
                "UNIT" => text.clone_into(&mut metric.unit),
                _ => (),
            }
        } else if let Some(metric) = metrics.get_mut(&current) {
            metric.shown = true;
            for (label, value) in labels(line) {
                let list = if label == "le" { &mut metric.bounds } else { &mut metric.labels };
                let entry = if label == "le" { value } else { label };
                if entry != "+Inf" && !list.contains(&entry) {
                    list.push(entry);
                }
            }
        }
    }
    metrics.retain(|_name, metric| metric.shown);
    for (name, metric) in &mut metrics {
        if metric.unit.is_empty() && name.ends_with("_seconds") {
            "seconds".clone_into(&mut metric.unit);
        }
    }
    metrics
}

/// Names and values of a sample's labels. A value may have commas and quotes.
fn labels(sample: &str) -> Vec<(String, String)> {
    let mut labels = Vec::new();
    let Some((_, mut rest)) = sample.split_once('{') else { return labels };
    while let Some((name, after)) = rest.split_once("=\"") {
        let mut value = String::new();
        let mut letters = after.char_indices();
        let end = loop {
            match letters.next() {
                Some((_, '\\')) => value.extend(letters.next().map(|(_, letter)| letter)),
                Some((at, '"')) => break at + 1,
                Some((_, letter)) => value.push(letter),
                None => return labels,
            }
        };
        labels.push((name.trim_start_matches(',').to_owned(), value));
        rest = after.get(end..).unwrap_or_default();
    }
    labels
}

#[cfg(test)]
mod tests {
    use super::{labels, rows, table, with_table};

    const PAGE: &str = "# HELP calls Calls a|b.\n# TYPE calls counter\n\
                        calls_total{family=\"a,\\\"}b\",code=\"200\"} 1\ncalls_total{family=\"b\",op=\"x\"} 2\n\
                        # HELP age_seconds Since then.\n# TYPE age_seconds gauge\nage_seconds 3\n\
                        # HELP wait_seconds How long.\n# TYPE wait_seconds histogram\n# UNIT wait_seconds seconds\n\
                        wait_seconds_sum{class=\"x\"} 1\nwait_seconds_bucket{le=\"0.1\",class=\"x\"} 1\n\
                        wait_seconds_bucket{le=\"30.0\",class=\"x\"} 1\nwait_seconds_bucket{le=\"+Inf\",class=\"x\"} 1\n\
                        # HELP later_seconds Not yet.\n# TYPE later_seconds gauge\n# EOF\n";

    #[test]
    fn a_row_says_what_the_page_and_its_samples_say() {
        assert_eq!(
            rows(PAGE),
            [
                "| `age_seconds` | gauge | | seconds | Since then |",
                "| `calls_total` | counter | `family`, `code`, `op` | | Calls a\\|b |",
                "| `wait_seconds` | histogram, 0.1 to 30.0 in 2 | `class` | seconds | How long |",
            ]
        );
    }

    #[test]
    fn values_may_have_any_letters() {
        let pairs =
            labels("a{x=\"1,y=\\\"{}\",z=\"\"} 1").into_iter().map(|(name, value)| name + "=" + &value);
        assert_eq!(pairs.collect::<Vec<_>>(), ["x=1,y=\"{}", "z="]);
    }

    #[test]
    fn a_table_is_written_between_its_marks_and_nothing_else_changes() {
        let begin = super::begin("a");
        let page = |inside: &str| format!("head\n{begin}{inside}{}tail\n", super::END);
        let written = with_table(&page("old\n"), "a", &table(&["| row |".to_owned()])).unwrap();
        assert!(written.starts_with("head\n") && written.ends_with("tail\n"), "{written}");
        assert!(written.contains("| row |\n") && !written.contains("old"), "{written}");
        assert_eq!(with_table(&page(""), "b", ""), None);
    }
}
