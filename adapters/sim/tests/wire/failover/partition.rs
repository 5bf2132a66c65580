//! Tests of a leader that runs but cannot reach the API server.

use std::time::Duration;

use tokio::time::Instant;

use crate::{
    failover::load::Load,
    failover::replica::{Replica, instance_calls, leading},
    support::until,
};

/// How long a leader sends calls, counted from the start of its last renewal. Source: docs/replicas.md.
const SENDS: Duration = Duration::from_secs(6);

#[tokio::test]
async fn leader_without_renewal_stops_before_the_next_begins() {
    let (cloud, api, mut leader) = leading(3).await;
    let next = Replica::standby(&cloud.url, &api).await;
    let load = Load::start(&[&leader, &next]);
    load.answers(30).await;

    leader.api.cut(true);
    let cut = Instant::now();
    until("the end of the term", async || !leader.is_serving().await).await;
    let took = cut.elapsed();
    assert!(took <= SENDS + Duration::from_secs(1), "{took:?}\n{}", leader.process.log());
    assert!(!leader.status().await.leader);
    let sent = instance_calls(&cloud).await;
    next.serves().await;
    load.answers(4).await;
    assert!(leader.process.is_alive());
    let later = instance_calls(&cloud).await.get(sent.len()).copied().expect("of the next leader");
    let silence = Duration::from_millis(later - sent.last().expect("some"));
    assert!(
        silence >= Duration::from_secs(3),
        "a pause of only {silence:?} between the two leaders\n{}",
        leader.process.log()
    );

    leader.api.cut(false);
    until("the former leader is a standby", async || {
        leader.process.log().contains("This replica is a standby")
    })
    .await;
    load.without_failures();
}
