//! Replicas with different numbers of shards, and replicas without support for shards.

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use crate::{
    FakeServer, start,
    world::{Replica, Watcher, is_fair},
};

const SECOND: Duration = Duration::from_secs(1);

fn first(replicas: &[Replica]) -> usize {
    let has = |replica: &Replica| replica.terms().iter().any(|(shard, _)| *shard == 0);
    replicas.iter().position(has).expect("somebody")
}

#[tokio::test(start_paused = true)]
async fn a_replica_without_shard_support_works_alone() {
    let server = FakeServer::with_shards(8);
    let mut watcher = Watcher::default();
    let mut replicas: Vec<_> = ["a", "b"].map(|name| Replica::start(&server, name, 8)).into();
    watcher.until(&replicas, is_fair).await;
    let mut old = start(&server, "of-an-earlier-release");
    watcher.pass(&replicas, 20 * SECOND).await;
    let at = first(&replicas);
    let gone = replicas.remove(at);
    let annotation = || server.lease()["metadata"]["annotations"]["cloudadapter.dev/shards"].clone();
    let before = annotation();
    // Delays the other replica, so that the old replica is faster.
    replicas[0].freeze(Instant::now() + SECOND);
    gone.stop.cancel();
    old.leads().await;
    watcher.pass(&replicas, 5 * SECOND).await;
    assert_eq!(annotation(), before, "still from an earlier term");
    for _ in 0..60 {
        assert_eq!(replicas[0].held(), 0);
        watcher.pass(&replicas, SECOND).await;
    }
    old.stop.cancel();
    let took = watcher.until(&replicas, is_fair).await;
    assert!(took <= 5 * SECOND, "{took:?}");
    let taken = &server.lease()["spec"]["leaseTransitions"];
    assert_eq!(annotation(), json!(format!("8@{taken}")));
}

#[tokio::test(start_paused = true)]
async fn a_single_shard_starts_at_once_on_a_new_lease() {
    for server in [FakeServer::with_lease(), FakeServer::with_shards(3)] {
        let replicas = [Replica::start(&server, "a", 1)];
        let took = Watcher::default().until(&replicas, is_fair).await;
        assert!(took < SECOND, "{took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_recreated_first_lease_hides_no_other_division() {
    for missing in [true, false] {
        let server = FakeServer::with_shards(3);
        server.allow_create();
        let mut watcher = Watcher::default();
        let mut replicas: Vec<_> = ["a", "b"].map(|name| Replica::start(&server, name, 3)).into();
        watcher.until(&replicas, is_fair).await;
        let at = first(&replicas);
        // The replica that would recreate the Lease is gone, and another replica is active.
        drop(replicas.remove(at));
        replicas.push(Replica::start(&server, "x", 1));
        server.put((!missing).then(|| json!({ "metadata": { "name": "cloud-adapter" } })));
        let begin = Instant::now();
        while begin.elapsed() < 60 * SECOND {
            watcher.pass(&replicas, SECOND / 10).await;
            assert!(replicas[0].held() == 0 || replicas[1].held() == 0, "missing: {missing}");
        }
        replicas[0].stop.cancel();
        watcher.pass(&replicas, 60 * SECOND).await;
        replicas.remove(0);
        assert!(is_fair(&replicas), "missing: {missing}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_division_ends_earlier_work() {
    let server = FakeServer::with_shards(3);
    let mut watcher = Watcher::default();
    let mut replicas = vec![Replica::start(&server, "a", 3)];
    watcher.until(&replicas, is_fair).await;
    let visits: Vec<_> = replicas[0].handles.iter().map(|handle| handle.enter().expect("ours")).collect();
    let epoch = server.lease_of(2)["spec"]["acquireTime"].clone();
    replicas[0].freeze(Instant::now() + 40 * SECOND);
    replicas.push(Replica::start(&server, "w", 2));
    watcher.until(&replicas, |replicas| replicas[1].held() == 2).await;
    replicas[1].stop.cancel();
    watcher.pass(&replicas, SECOND).await;
    replicas.pop();
    assert_eq!(server.lease_of(2)["spec"]["acquireTime"], epoch, "no replica wrote the Lease");
    watcher.until(&replicas, is_fair).await;
    for (shard, visit) in visits.iter().enumerate() {
        assert!(!visit.is_valid(), "the visit in shard {shard} is still valid");
    }
    assert!(replicas[0].handles.iter().all(|handle| handle.enter().is_some_and(|visit| visit.is_valid())));
}

#[tokio::test(start_paused = true)]
async fn work_continues_after_an_outage_without_other_holders() {
    let server = FakeServer::with_shards(3);
    let mut watcher = Watcher::default();
    let replicas = vec![Replica::start(&server, "a", 3)];
    watcher.until(&replicas, is_fair).await;
    let visits: Vec<_> = replicas[0].handles.iter().map(|handle| handle.enter().expect("ours")).collect();
    replicas[0].freeze(Instant::now() + 40 * SECOND);
    watcher.pass(&replicas, 20 * SECOND).await;
    assert!(visits.iter().all(|visit| !visit.is_valid()));
    watcher.until(&replicas, is_fair).await;
    assert!(visits.iter().all(|visit| visit.is_valid()));
}

#[tokio::test(start_paused = true)]
async fn after_a_change_of_their_number_shards_are_taken_once() {
    let server = FakeServer::with_shards(4);
    let mut watcher = Watcher::default();
    let mut replicas = vec![Replica::start(&server, "a", 2)];
    watcher.until(&replicas, is_fair).await;
    replicas.push(Replica::start(&server, "b", 4));
    watcher.pass(&replicas, 10 * SECOND).await;
    let old = replicas.remove(0);
    old.stop.cancel();
    watcher.until(&replicas, is_fair).await;
    let taken: Vec<_> =
        (0..4).map(|shard| server.lease_of(shard)["spec"]["leaseTransitions"].clone()).collect();
    assert_eq!(taken, [2, 2, 1, 1].map(|times: u64| json!(times)));
}
