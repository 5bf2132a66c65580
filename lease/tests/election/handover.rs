//! Terms that end with a release, and terms that end because the holder was killed.

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use super::{BEGIN, FakeServer, start};

#[tokio::test(start_paused = true)]
async fn a_released_lease_is_taken_within_a_second() {
    let server = FakeServer::with_lease();
    let mut first = start(&server, "first@10.0.0.1:8443");
    assert_eq!(first.leads().await.0, BEGIN);
    let mut second = start(&server, "second@10.0.0.2:8443");
    second.follows(Some("first@10.0.0.1:8443")).await;
    // The time now lies between two reads of the second candidate.
    tokio::time::advance(Duration::from_millis(500)).await;

    let stopped = Instant::now();
    first.stop.cancel();
    let (epoch, _) = second.leads().await;
    assert!(stopped.elapsed() < Duration::from_secs(1), "{:?}", stopped.elapsed());
    assert_eq!(epoch, BEGIN + 1, "both terms began in one second");
    assert_eq!(server.lease()["spec"]["holderIdentity"], json!("second@10.0.0.2:8443"));
    assert_eq!(server.lease()["spec"]["leaseTransitions"], json!(2));
    first.follows(Some("first@10.0.0.1:8443")).await;
    first.task.join_next().await.expect("ran").expect("it ends after its release");
}

#[tokio::test(start_paused = true)]
async fn without_a_watch_it_is_taken_at_the_next_read() {
    let server = FakeServer::with_lease();
    server.forbid_watch();
    let mut first = start(&server, "first");
    first.leads().await;
    let mut second = start(&server, "second");
    second.follows(Some("first")).await;
    let stopped = Instant::now();
    first.stop.cancel();
    second.leads().await;
    assert!(stopped.elapsed() <= Duration::from_secs(2), "{:?}", stopped.elapsed());
}

#[tokio::test(start_paused = true)]
async fn the_lease_of_a_killed_leader_is_taken_once_it_expired() {
    let server = FakeServer::with_lease();
    let mut first = start(&server, "first");
    first.leads().await;
    let mut second = start(&server, "second");
    second.follows(Some("first")).await;
    // Lets the leader renew several times.
    tokio::time::sleep(Duration::from_secs(31)).await;
    let (_, valid_until) = first.leads().await;
    drop(first);
    let killed = Instant::now();
    second.leads().await;
    assert!(Instant::now() > valid_until, "no other process may act before the lease expires");
    assert!(killed.elapsed() <= Duration::from_secs(12), "{:?}", killed.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_lives_keeps_its_term() {
    let server = FakeServer::with_lease();
    let mut first = start(&server, "first");
    first.leads().await;
    let second = start(&server, "second");
    let requests = server.requests();
    tokio::time::sleep(Duration::from_mins(10)).await;
    assert_eq!(first.leads().await.0, BEGIN);
    assert_eq!(server.lease()["spec"]["leaseTransitions"], json!(1));
    let requests = server.requests() - requests;
    assert!(requests <= 610, "{requests} requests in 600 s of two electors");
    drop(second);
}
