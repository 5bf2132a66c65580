//! Failures between an elector and the API server.

use std::time::Duration;

use cloud_lease::Leadership;
use serde_json::json;
use tokio::time::Instant;

use super::{BEGIN, FakeServer, server::Behaviour, start};

#[tokio::test(start_paused = true)]
async fn a_leader_that_cannot_renew_stops_at_expiry() {
    for mood in [Behaviour::Away, Behaviour::Silent] {
        let server = FakeServer::with_lease();
        let mut leader = start(&server, "first");
        leader.leads().await;
        tokio::time::sleep(Duration::from_secs(5)).await;
        let (_, valid_until) = leader.leads().await;
        server.mood(mood);
        leader.follows(Some("first")).await;
        // The elector first waits for the request that it has sent, so the change may be reported late. Code that acts as leader compares
        // `valid_until` itself.
        let late = Instant::now().saturating_duration_since(valid_until);
        assert!(late <= Duration::from_secs(3), "{late:?}");

        server.mood(Behaviour::Well);
        let (epoch, _) = leader.leads().await;
        assert!(epoch > BEGIN, "a separate term");
        assert_eq!(leader.since(), BEGIN, "no other process had a term");
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_api_server_has_a_leader() {
    let server = FakeServer::with_lease();
    server.mood(Behaviour::Slow);
    let mut leader = start(&server, "first");
    leader.leads().await;
    for _ in 0..60 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(Instant::now() < leader.leads().await.1, "it renews in time");
    }
    assert_eq!(server.lease()["spec"]["leaseTransitions"], json!(1), "the holder changed only once");
}

#[tokio::test(start_paused = true)]
async fn an_acquisition_with_a_lost_answer_is_recognised() {
    let server = FakeServer::with_lease();
    let mut leader = start(&server, "first");
    leader.leads().await;
    server.mood(Behaviour::Silent);
    leader.follows(Some("first")).await;
    server.mood(Behaviour::Forgetful);
    tokio::time::timeout(Duration::from_mins(1), async {
        while server.lease()["spec"]["leaseTransitions"] != json!(2) {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    })
    .await
    .expect("it acquires the lease again");
    server.mood(Behaviour::Well);
    assert!(leader.leads().await.0 > BEGIN, "a separate term");
    assert_eq!(leader.since(), BEGIN, "no other process had a term");
}

// Behaviour: P10
#[tokio::test(start_paused = true)]
async fn a_restored_lease_gives_no_epoch_twice() {
    let server = FakeServer::with_lease();
    let mut first = start(&server, "first");
    first.leads().await;
    let backup = server.lease();
    drop(first);
    let mut epoch = BEGIN;
    for name in ["second", "third"] {
        let mut next = start(&server, name);
        let (later, _) = next.leads().await;
        assert!(later > epoch, "{name}");
        epoch = later;
    }
    for lease in [Some(backup), None, Some(json!({ "metadata": { "name": "cloud-adapter" } }))] {
        server.allow_create();
        tokio::time::sleep(Duration::from_secs(1)).await;
        server.put(lease.clone());
        let (later, _) = start(&server, "next").leads().await;
        assert!(later > epoch, "{lease:?}");
        epoch = later;
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_deleted_or_emptied_by_hand_stays_with_its_leader() {
    for deleted in [true, false] {
        let server = FakeServer::with_lease();
        server.allow_create();
        let mut first = start(&server, "first");
        first.leads().await;
        let mut lease = server.lease();
        lease["spec"]["holderIdentity"] = "".into();
        server.put((!deleted).then_some(lease));
        let mut second = start(&server, "second");
        second.follows(Some("first")).await;
        assert!(first.leads().await.0 > BEGIN, "a separate term");
        assert_eq!(first.since(), BEGIN, "no other process had a term");
    }
}

#[tokio::test(start_paused = true)]
async fn a_renewal_whose_answer_is_lost_costs_no_term() {
    let server = FakeServer::with_lease();
    let mut leader = start(&server, "first");
    leader.leads().await;
    server.mood(Behaviour::Forgetful);
    tokio::time::sleep(Duration::from_millis(2500)).await;
    server.mood(Behaviour::Well);
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(leader.leads().await.0, BEGIN);
}

#[tokio::test(start_paused = true)]
async fn a_missing_lease_is_created_only_where_that_is_allowed() {
    let server = FakeServer::empty();
    let mut one = start(&server, "first");
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(*one.leadership.borrow(), Leadership::Follower { holder: None });
    assert!(server.requests() <= 50, "{} requests", server.requests());
    server.allow_create();
    one.leads().await;
    assert_eq!(server.lease()["spec"]["holderIdentity"], json!("first"));
}

#[tokio::test(start_paused = true)]
async fn a_leader_stops_when_its_lease_is_taken() {
    let server = FakeServer::with_lease();
    let mut leader = start(&server, "first");
    leader.leads().await;
    let mut lease = server.lease();
    lease["spec"]["holderIdentity"] = "thief".into();
    server.put(Some(lease));
    let taken = Instant::now();
    leader.follows(Some("thief")).await;
    assert!(taken.elapsed() <= Duration::from_secs(2), "{:?}", taken.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_others_annotate_all_the_time_is_kept() {
    let server = FakeServer::with_lease();
    let mut leader = start(&server, "first");
    leader.leads().await;
    for n in 0..100 {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let mut lease = server.lease();
        lease["metadata"]["annotations"] = json!({ "n": n.to_string() });
        server.put(Some(lease));
    }
    assert_eq!(leader.leads().await.0, BEGIN);
}
