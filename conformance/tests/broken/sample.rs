//! Selects the rows of the table that a run tests.

use std::process::Command;

use crate::table::{GOOD, Row};

/// A run tests every n-th row. The number of commits selects the first row, so that n consecutive commits test all rows.
const ONE_IN: u64 = 6;
const ALL: &str = "all";

/// Returns the named rows. Without names, returns the adapter without a fault and a sample that depends on the commit. Panics if a name has
/// no row in the table.
pub(crate) fn choose(rows: Vec<Row>, faults: Option<&[String]>) -> Vec<Row> {
    match faults {
        Some(faults) => named(rows, faults),
        None => sample(rows, commit()),
    }
}

pub(crate) fn named(rows: Vec<Row>, faults: &[String]) -> Vec<Row> {
    let known = |fault: &String| fault == ALL || rows.iter().any(|row| row.fault == *fault);
    let unknown: Vec<&String> = faults.iter().filter(|fault| !known(fault)).collect();
    assert!(unknown.is_empty(), "not in broken.table: {unknown:?}");
    let wanted = |row: &Row| faults.iter().any(|fault| *fault == row.fault || fault == ALL);
    rows.into_iter().filter(wanted).collect()
}

fn sample(rows: Vec<Row>, seed: u64) -> Vec<Row> {
    let chosen = |at: u64| at % ONE_IN == seed % ONE_IN;
    (0..).zip(rows).filter(|(at, row)| row.fault == GOOD || chosen(*at)).map(|(_, row)| row).collect()
}

/// The number of commits, 0 outside of a repository.
fn commit() -> u64 {
    let arguments = ["rev-list", "--count", "HEAD"];
    let answer = Command::new("git").args(arguments).current_dir(env!("CARGO_MANIFEST_DIR")).output();
    let count = answer.map(|answer| String::from_utf8_lossy(&answer.stdout).into_owned()).unwrap_or_default();
    count.trim().parse().unwrap_or_default()
}

#[test]
fn consecutive_samples_cover_all_rows() {
    let rows = crate::table::rows().expect("a table");
    let mut tried: Vec<String> = Vec::new();
    for seed in 0..ONE_IN {
        let sample = sample(rows.clone(), seed);
        assert_eq!(sample.iter().filter(|row| row.fault == GOOD).count(), 1);
        tried.extend(sample.into_iter().map(|row| row.fault));
    }
    tried.sort_unstable();
    tried.dedup();
    assert_eq!(tried.len(), rows.len());
}
