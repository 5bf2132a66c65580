//! Kills the adapter after each of its writes in turn, while the controllers repeat their requests. Afterwards, each desired object exists
//! exactly once, and no other object exists. The same holds if the adapter survives and only the response to that write is lost.
//!
//! Each run has a cloud in this process, and a real `adapter-sim` process. Run n disturbs write n. The number n increases until a run ends
//! before write n.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test should panic on an unexpected result"
)]

mod story;
mod world;

use futures::{StreamExt as _, stream};

use self::world::{Blow, Conditions, EVER_MADE, HORIZON_MS, World};

/// The number of concurrent runs. It can be high, because each run spends most of its time waiting.
const AT_ONCE: usize = 8;
/// The maximum number of writes. The story, which is the sequence of desired states, has fewer writes.
const WRITES_MAX: u64 = 100;

/// Plays the story (the sequence of desired states) once per write, with a fault after that write. Returns the number of writes.
#[expect(clippy::print_stdout, reason = "the number of writes is part of the result")]
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

fn assert_all(struck: u64) {
    assert!((10..WRITES_MAX).contains(&struck), "the story has {struck} writes");
}

#[tokio::test]
async fn kill_after_any_write_leaves_exactly_one_of_each() {
    let conditions = Conditions { lag_ms: 0, client_tokens: true, create_horizon_ms: 2 * HORIZON_MS };
    assert_all(enumerate(Blow::Kill, conditions).await);
}

#[tokio::test]
async fn kill_with_lagging_reads_and_no_client_token() {
    let conditions = Conditions { lag_ms: 150, client_tokens: false, create_horizon_ms: 2 * HORIZON_MS };
    assert_all(enumerate(Blow::Kill, conditions).await);
}

#[tokio::test]
async fn lost_answer_with_lagging_reads_and_no_client_token() {
    let conditions = Conditions { lag_ms: 150, client_tokens: false, create_horizon_ms: 2 * HORIZON_MS };
    assert_all(enumerate(Blow::LoseAnswer, conditions).await);
}

#[tokio::test]
async fn kill_during_a_late_create_causes_no_duplicate() {
    let conditions = Conditions { lag_ms: 150, client_tokens: false, create_horizon_ms: 1500 };
    assert_eq!(enumerate(Blow::KillLate, conditions).await, EVER_MADE as u64);
}
