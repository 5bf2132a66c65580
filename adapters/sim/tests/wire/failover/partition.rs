//! A leader that is running but cannot reach the API server.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    failover::api_server::ApiServer,
    failover::load::Load,
    failover::replica::{Replica, asked_for_instances},
    failover::until,
    support::cloud::TestCloud,
};

/// How long a leader sends calls after the beginning of its last renewal. Source: docs/replicas.md.
const SENDS: Duration = Duration::from_secs(6);

#[tokio::test]
async fn leader_without_renewal_stops_before_the_next_begins() {
    let cloud = TestCloud::start(json!({})).await;
    cloud.machines(3).await;
    let api = ApiServer::start();
    let mut leader = Replica::start(&cloud.url, &api).await;
    leader.serves().await;
    let next = Replica::start(&cloud.url, &api).await;
    next.is_up().await;
    let load = Load::start(&[&leader, &next]);
    load.answers(30).await;

    leader.way.cut(true);
    let cut = Instant::now();
    until("the end of the term", async || !leader.is_serving().await).await;
    let took = cut.elapsed();
    assert!(took <= SENDS + Duration::from_secs(1), "{took:?}\n{}", leader.log());
    assert!(!leader.status().await.leader);
    let sent = calls(&cloud).await;
    next.serves().await;
    load.answers(4).await;
    assert!(leader.is_alive());
    let later = calls(&cloud).await.get(sent.len()).copied().expect("of the next leader");
    let silence = Duration::from_millis(later - sent.last().expect("some"));
    assert!(
        silence >= Duration::from_secs(3),
        "a pause of only {silence:?} between the two leaders\n{}",
        leader.log()
    );

    leader.way.cut(false);
    until("the former leader is a standby", async || leader.log().contains("This replica is a standby"))
        .await;
    load.without_failures();
}

async fn calls(cloud: &TestCloud) -> Vec<u64> {
    let log = cloud.admin(Method::GET, "log?limit=10000", Value::Null).await;
    asked_for_instances(&log)
}
