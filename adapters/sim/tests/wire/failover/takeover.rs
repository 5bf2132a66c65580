//! Under load, a leader is killed, and leaders are replaced one after another.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    failover::api_server::ApiServer,
    failover::load::Load,
    failover::replica::{Replica, asked_for_instances, within_budget},
    support::cloud::TestCloud,
};

/// Maximum duration of an unplanned and of a planned change of leader. Source: docs/limits.md, P23.
const FAILOVER: Duration = Duration::from_secs(12);
const HANDOVER: Duration = Duration::from_secs(1);

#[tokio::test]
async fn failover_takes_at_most_twelve_seconds_without_errors() {
    let cloud = TestCloud::start(json!({})).await;
    cloud.machines(3).await;
    let api = ApiServer::start();
    let mut first = Replica::start(&cloud.url, &api).await;
    first.serves().await;
    let second = Replica::start(&cloud.url, &api).await;
    second.is_up().await;
    let load = Load::start(&[&first, &second]);
    load.answers(60).await;

    let killed = Instant::now();
    first.kill().await;
    second.serves().await;
    let took = killed.elapsed();
    assert!(took <= FAILOVER, "{took:?}\n{}", second.log());
    load.answers(60).await;
    load.without_failures();
    within_budget(&calls(&cloud).await);
}

#[tokio::test]
async fn rolling_replacement_hands_over_quickly_on_one_budget() {
    let cloud = TestCloud::start(json!({})).await;
    cloud.machines(3).await;
    let api = ApiServer::start();
    let mut first = Replica::start(&cloud.url, &api).await;
    first.serves().await;
    let mut second = Replica::start(&cloud.url, &api).await;
    second.is_up().await;
    let third = Replica::start(&cloud.url, &api).await;
    third.is_up().await;
    let load = Load::start(&[&first, &second, &third]);
    load.answers(60).await;

    for _ in 0..2 {
        let (leading, waiting) = if first.is_serving().await {
            (&mut first, [&second, &third])
        } else {
            (&mut second, [&third, &third])
        };
        let stopped = Instant::now();
        leading.terminate().await;
        let next = async {
            loop {
                for one in waiting {
                    if one.is_serving().await {
                        return;
                    }
                }
                tokio::time::sleep(crate::failover::TICK).await;
            }
        };
        tokio::time::timeout(crate::failover::PATIENCE, next).await.expect("another replica leads");
        let took = stopped.elapsed();
        assert!(took <= HANDOVER, "{took:?}\n{}", leading.log());
        assert_eq!(leading.ended().await, Some(0), "{}", leading.log());
        load.answers(60).await;
        if third.is_serving().await {
            break;
        }
    }
    load.without_failures();
    within_budget(&calls(&cloud).await);
}

async fn calls(cloud: &TestCloud) -> Vec<u64> {
    let log = cloud.admin(Method::GET, "log?limit=10000", Value::Null).await;
    asked_for_instances(&log)
}
