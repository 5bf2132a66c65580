//! The test of the tests: the suite against adapters that are wrong in one way each. Each must fail exactly the checks that the table
//! `broken.table` names, and the good adapter none.
//!
//! Needs the programs: `cargo build --bins -p adapter-sim -p conformance-sim`. A run tries the good adapter and a sample of the others, which
//! differs from commit to commit. `BROKEN_ADAPTERS=all` tries all, and the names of some faults with commas try those.
//! `UPDATE_BROKEN_TABLE`, with the same values, runs all checks of the first two tiers and writes what failed into the table: for a new
//! check or a new fault.

#![expect(clippy::expect_used, reason = "a test ends where something unexpected happens")]

mod sample;
mod suite;
mod table;

use std::io::{self, Write as _};

use adapter_sim::broken::Fault;
use clap::ValueEnum as _;
use futures::StreamExt as _;

use self::{
    suite::{Depth, Seen, look},
    table::{GOOD, Row, rows, write},
};

/// Adapters at once: most of the time all of them wait.
const AT_ONCE: usize = 6;
/// Which rows are tried.
const CHOICE: &str = "BROKEN_ADAPTERS";
/// Which rows are written instead of tested.
const UPDATE: &str = "UPDATE_BROKEN_TABLE";

#[test]
fn every_mistake_is_in_the_table() {
    let rows: Vec<String> = rows().expect("a table").into_iter().map(|row| row.fault).collect();
    let faults = Fault::value_variants().iter().map(ToString::to_string);
    let missing: Vec<String> = faults.filter(|fault| !rows.contains(fault)).collect();
    assert!(
        missing.is_empty(),
        "not in broken.table: {missing:?}; add lines `<fault> -`, then {UPDATE}=<fault>,..."
    );
    for row in &rows {
        assert!(row == GOOD || Fault::from_str(row, false).is_ok(), "{row}: adapter-sim knows no such fault");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_mistake_fails_its_checks_and_no_others() {
    match names(UPDATE) {
        Some(faults) => renew(&faults).await,
        None => compare().await,
    }
}

async fn compare() {
    let rows = sample::choose(rows().expect("a table"), names(CHOICE).as_deref());
    let looks = rows.into_iter().map(|row| look(row, Depth::Usual));
    let mut seen = all(looks).await;
    // What only a busy machine did is not there when one is looked at alone.
    for one in &mut seen {
        if !one.is_as_told() {
            *one = look(one.row.clone(), Depth::Usual).await;
            say(one);
        }
    }
    let wrong: Vec<String> = seen.iter().filter(|one| !one.is_as_told()).map(Seen::difference).collect();
    let repair = format!(
        "these again, with any commit: {CHOICE}=<fault>,... cargo test -p conformance-sim --test broken; \
         if what is seen is right: {UPDATE}=<fault>,... in its place"
    );
    assert!(wrong.is_empty(), "\n{}\n{repair}", wrong.join("\n"));
}

/// Writes the rows of these faults as they are seen.
async fn renew(faults: &[String]) {
    let table = rows().expect("a table");
    let chosen = sample::named(table.clone(), faults);
    let looks: Vec<_> = chosen.into_iter().map(|row| look(row, Depth::Full)).collect();
    let seen = all(looks.into_iter()).await;
    let unseen: Vec<String> = seen.iter().filter(|one| !one.ran()).map(Seen::difference).collect();
    assert!(unseen.is_empty(), "nothing is written:\n{}", unseen.join("\n"));
    let renewed = table.into_iter().map(|row| {
        let found = seen.iter().find(|one| one.row.fault == row.fault);
        found.map_or(row, Seen::renewed)
    });
    write(&renewed.collect::<Vec<_>>()).expect("written");
}

/// The names in a variable, if it is set.
#[expect(clippy::disallowed_methods, reason = "cargo hands tests no flags of their own")]
fn names(variable: &str) -> Option<Vec<String>> {
    let words = std::env::var(variable).ok().filter(|words| !words.is_empty())?;
    Some(words.split(',').map(|word| word.trim().to_owned()).collect())
}

/// Looks at some at a time, whichever is done first. The order is that of the table.
async fn all(looks: impl Iterator<Item = impl Future<Output = Seen>>) -> Vec<Seen> {
    let numbered = looks.enumerate().map(|(at, look)| async move {
        let seen = look.await;
        say(&seen);
        (at, seen)
    });
    let mut seen: Vec<_> = futures::stream::iter(numbered).buffer_unordered(AT_ONCE).collect().await;
    seen.sort_by_key(|(at, _)| *at);
    seen.into_iter().map(|(_, seen)| seen).collect()
}

/// Prints a row as it was seen, in the form of the file.
fn say(seen: &Seen) {
    let row = Row { remark: format!("{:.0} s", seen.took.as_secs_f64()), ..seen.renewed() };
    writeln!(io::stdout(), "{row}").expect("somebody reads");
}
