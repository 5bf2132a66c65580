//! Crash enumeration: whatever the adapter is doing when it is killed, after any of its writes, the controllers' repetitions end in
//! exactly one of each, and in nothing once nothing is wanted. The same if it lives and only the answer to that write is lost.
//!
//! Each run is a cloud of its own in this process, and a real `adapter-sim`. The run's number is the write that it is about; the
//! numbers go up until a run ends before its write.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test ends where something unexpected happens"
)]

mod process;
mod story;
mod world;

use futures::{StreamExt as _, stream};

use self::world::{Blow, Conditions, EVER_MADE, HORIZON_MS, World};

/// Runs at a time: most of a run is waiting.
const AT_ONCE: usize = 8;
/// More writes than the story has.
const WRITES_MAX: u64 = 100;

/// Runs the story with a blow after each of its writes. Answers how many writes that are.
#[expect(clippy::print_stdout, reason = "how many writes that were is part of the result")]
async fn enumerate(blow: Blow, conditions: Conditions) -> u64 {
    let runs = stream::iter(1..=WRITES_MAX).map(async |write| {
        let struck = World::start(conditions).await.run(blow, write).await;
        struck.then_some(write)
    });
    let mut runs = runs.buffered(AT_ONCE);
    let mut struck = 0;
    while let Some(Some(write)) = runs.next().await {
        struck = write;
    }
    println!("{blow:?} after each of N = {struck} writes, {conditions:?}");
    struck
}

/// All writes of the story were among them.
fn assert_all(struck: u64) {
    assert!((10..WRITES_MAX).contains(&struck), "the story has {struck} writes");
}

#[tokio::test]
async fn killed_after_any_write_it_leaves_exactly_one_of_each() {
    let conditions = Conditions { lag_ms: 0, client_tokens: true, create_horizon_ms: 2 * HORIZON_MS };
    assert_all(enumerate(Blow::Kill, conditions).await);
}

#[tokio::test]
async fn killed_while_reads_lag_and_nothing_guards_a_second_create() {
    let conditions = Conditions { lag_ms: 150, client_tokens: false, create_horizon_ms: 2 * HORIZON_MS };
    assert_all(enumerate(Blow::Kill, conditions).await);
}

#[tokio::test]
async fn a_lost_answer_while_reads_lag_and_nothing_guards_a_second_create() {
    let conditions = Conditions { lag_ms: 150, client_tokens: false, create_horizon_ms: 2 * HORIZON_MS };
    assert_all(enumerate(Blow::LoseAnswer, conditions).await);
}

#[tokio::test]
async fn killed_while_the_cloud_works_on_a_create_it_makes_no_second_one() {
    let conditions = Conditions { lag_ms: 150, client_tokens: false, create_horizon_ms: 1500 };
    assert_eq!(enumerate(Blow::KillLate, conditions).await, EVER_MADE as u64);
}
