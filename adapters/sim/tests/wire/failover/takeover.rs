//! Tests under load: a leader is killed, and leaders are replaced one after another.

use std::time::Duration;

use tokio::time::Instant;

use crate::{
    failover::load::Load,
    failover::replica::{Replica, instance_calls, leading, within_budget},
    support::until,
};

/// The maximum durations of an unplanned and of a planned change of leader. Source: docs/limits.md, P23.
const FAILOVER: Duration = Duration::from_secs(12);
const HANDOVER: Duration = Duration::from_secs(1);

#[tokio::test]
async fn failover_takes_at_most_twelve_seconds_without_errors() {
    let (cloud, api, mut first) = leading(3).await;
    let second = Replica::standby(&cloud.url, &api).await;
    let load = Load::start(&[&first, &second]);
    load.answers(60).await;

    let killed = Instant::now();
    first.process.kill().await;
    second.serves().await;
    let took = killed.elapsed();
    assert!(took <= FAILOVER, "{took:?}\n{}", second.process.log());
    load.answers(60).await;
    load.without_failures();
    within_budget(&instance_calls(&cloud).await);
}

#[tokio::test]
async fn rolling_replacement_hands_over_quickly_on_one_budget() {
    let (cloud, api, mut first) = leading(3).await;
    let mut second = Replica::standby(&cloud.url, &api).await;
    let third = Replica::standby(&cloud.url, &api).await;
    let load = Load::start(&[&first, &second, &third]);
    load.answers(60).await;

    for _ in 0..2 {
        let (leader, waiting) = if first.is_serving().await {
            (&mut first, [&second, &third])
        } else {
            (&mut second, [&third, &third])
        };
        let stopped = Instant::now();
        leader.process.stop().await;
        until("another leader", async || {
            let [one, other] = waiting;
            one.is_serving().await || other.is_serving().await
        })
        .await;
        let took = stopped.elapsed();
        assert!(took <= HANDOVER, "{took:?}\n{}", leader.process.log());
        assert_eq!(leader.process.exited().await, Some(0), "{}", leader.process.log());
        load.answers(60).await;
        if third.is_serving().await {
            break;
        }
    }
    load.without_failures();
    within_budget(&instance_calls(&cloud).await);
}
