//! What goes wrong between an elector and the API server.

use std::time::Duration;

use cloud_lease::Leadership;
use serde_json::json;
use tokio::time::Instant;

use crate::{FakeServer, server::Mood, start};

#[tokio::test(start_paused = true)]
async fn a_leader_that_cannot_renew_gives_up_when_its_time_is_over() {
    for mood in [Mood::Away, Mood::Silent] {
        let server = FakeServer::with_lease();
        let mut leader = start(&server, "first");
        leader.leads().await;
        tokio::time::sleep(Duration::from_secs(5)).await;
        let (_, valid_until) = leader.leads().await;
        server.mood(mood);
        leader.follows(Some("first")).await;
        // A call under way is waited for; who acts compares with `valid_until` itself.
        let late = Instant::now().saturating_duration_since(valid_until);
        assert!(late <= Duration::from_millis(1500), "{late:?}");

        server.mood(Mood::Well);
        let (epoch, _) = leader.leads().await;
        assert_eq!(epoch, 2, "a term of its own");
    }
}

#[tokio::test(start_paused = true)]
async fn a_renewal_whose_answer_is_lost_costs_no_term() {
    let server = FakeServer::with_lease();
    let mut leader = start(&server, "first");
    leader.leads().await;
    server.mood(Mood::Forgetful);
    tokio::time::sleep(Duration::from_millis(2500)).await;
    server.mood(Mood::Well);
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(leader.leads().await.0, 1);
}

#[tokio::test(start_paused = true)]
async fn a_missing_lease_is_created_only_where_that_is_allowed() {
    let server = FakeServer::empty();
    let mut one = start(&server, "first");
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(*one.leadership.borrow(), Leadership::Follower { holder: None });
    assert!(server.requests() <= 35, "{} requests", server.requests());
    server.allow_create();
    assert_eq!(one.leads().await.0, 1);
    assert_eq!(server.lease()["spec"]["holderIdentity"], json!("first"));
}

#[tokio::test(start_paused = true)]
async fn a_leader_whose_lease_somebody_else_takes_stops_at_its_next_renewal() {
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
    assert_eq!(leader.leads().await.0, 1);
}
