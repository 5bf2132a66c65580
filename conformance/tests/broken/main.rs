//! Tests the suite by running it against adapters that each have one fault. With each adapter, exactly the checks in its row of
//! `broken.table` must fail. With the adapter without a fault, no check may fail.
//!
//! Needs the programs of `adapter-sim`: `cargo build --bins -p adapter-sim`. A run tests the adapter without a fault and a sample of the
//! other adapters, which differs from commit to commit. `BROKEN_ADAPTERS=all` tests all, and a comma-separated list of faults tests only
//! those. After adding a check or a fault, set `UPDATE_BROKEN_TABLE`, which accepts the same values. It runs all checks of the first two
//! tiers and writes the failed checks into the table.

#![expect(clippy::expect_used, reason = "a test should panic on an unexpected result")]

mod sample;
mod suite;
mod table;

use std::io::{self, Write as _};

use adapter_sim::broken::Fault;
use clap::ValueEnum as _;
use futures::StreamExt as _;

use self::{
    suite::{Depth, Seen, test},
    table::{GOOD, Row, rows, write},
};

/// Number of adapters that are tested at the same time. Each adapter waits most of the time.
const AT_ONCE: usize = 6;
/// The variable that selects the rows to test.
const CHOICE: &str = "BROKEN_ADAPTERS";
/// The variable that selects the rows to update instead of testing them.
const UPDATE: &str = "UPDATE_BROKEN_TABLE";

#[test]
fn every_fault_is_in_the_table() {
    let rows: Vec<String> = rows().expect("a table").into_iter().map(|row| row.fault).collect();
    let faults = Fault::value_variants().iter().map(ToString::to_string);
    let missing: Vec<String> = faults.filter(|fault| !rows.contains(fault)).collect();
    assert!(
        missing.is_empty(),
        "not in broken.table: {missing:?}; add lines `<fault> -`, then {UPDATE}=<fault>,..."
    );
    for row in &rows {
        assert!(
            row == GOOD || Fault::from_str(row, false).is_ok(),
            "{row}: adapter-sim has no fault of this name"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_fault_fails_its_checks_and_no_others() {
    match names(UPDATE) {
        Some(faults) => renew(&faults).await,
        None => compare().await,
    }
}

async fn compare() {
    let rows = sample::choose(rows().expect("a table"), names(CHOICE).as_deref());
    let tests = rows.into_iter().map(|row| test(row, Depth::Usual));
    let mut seen = all(tests).await;
    // Run a row with a difference again, alone, because a busy host may have caused the difference.
    for one in &mut seen {
        if !one.is_as_listed() {
            *one = test(one.row.clone(), Depth::Usual).await;
            say(one);
        }
    }
    let wrong: Vec<String> = seen.iter().filter(|one| !one.is_as_listed()).map(Seen::difference).collect();
    let repair = format!(
        "to repeat these, independent of the commit: {CHOICE}=<fault>,... cargo test -p \
         adapter-conformance --features sim --test broken; if the new results are right, update the table: \
         {UPDATE}=<fault>,... instead"
    );
    assert!(wrong.is_empty(), "\n{}\n{repair}", wrong.join("\n"));
}

/// Updates the rows of these faults with the observed results.
async fn renew(faults: &[String]) {
    let table = rows().expect("a table");
    let chosen = sample::named(table.clone(), faults);
    let tests: Vec<_> = chosen.into_iter().map(|row| test(row, Depth::Full)).collect();
    let seen = all(tests.into_iter()).await;
    let unseen: Vec<String> = seen.iter().filter(|one| !one.ran()).map(Seen::difference).collect();
    assert!(unseen.is_empty(), "no result for some faults, the table is unchanged:\n{}", unseen.join("\n"));
    let renewed = table.into_iter().map(|row| {
        let found = seen.iter().find(|one| one.row.fault == row.fault);
        found.map_or(row, Seen::renewed)
    });
    write(&renewed.collect::<Vec<_>>()).expect("written");
}

/// The names in a variable, if it is set.
#[expect(clippy::disallowed_methods, reason = "cargo passes no flags to tests")]
fn names(variable: &str) -> Option<Vec<String>> {
    let words = std::env::var(variable).ok().filter(|words| !words.is_empty())?;
    Some(words.split(',').map(|word| word.trim().to_owned()).collect())
}

/// Runs several rows concurrently, and returns the results in the order of the table.
async fn all(tests: impl Iterator<Item = impl Future<Output = Seen>>) -> Vec<Seen> {
    let numbered = tests.enumerate().map(|(at, test)| async move {
        let seen = test.await;
        say(&seen);
        (at, seen)
    });
    let mut seen: Vec<_> = futures::stream::iter(numbered).buffer_unordered(AT_ONCE).collect().await;
    seen.sort_by_key(|(at, _)| *at);
    seen.into_iter().map(|(_, seen)| seen).collect()
}

/// Prints a row with the observed results, in the format of the file.
fn say(seen: &Seen) {
    let row = Row { remark: format!("{:.0} s", seen.took.as_secs_f64()), ..seen.renewed() };
    writeln!(io::stdout(), "{row}").expect("standard output is open");
}
