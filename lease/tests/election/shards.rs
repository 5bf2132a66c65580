//! Shares of replicas that start, stop, and are killed.

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use crate::{
    FakeServer,
    world::{Replica, Watcher, is_fair},
};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn one_replica_has_all_shards_at_once() {
    let server = FakeServer::with_shards(8);
    let replicas = [Replica::start(&server, "a", 8)];
    let took = Watcher::default().until(&replicas, is_fair).await;
    assert!(took < SECOND, "{took:?}");
    assert_eq!(server.lease()["metadata"]["annotations"]["cloudadapter.dev/shards"], json!("8@1"));
    assert_eq!(replicas[0].handles[0].lease(), "cloud-adapter");
    assert_eq!(replicas[0].handles[7].lease(), "cloud-adapter-7");
}

#[tokio::test(start_paused = true)]
async fn a_newcomer_is_given_its_share_in_order() {
    let server = FakeServer::with_shards(8);
    let mut watcher = Watcher::default();
    let mut replicas = vec![Replica::start(&server, "a", 8)];
    watcher.until(&replicas, is_fair).await;
    for (name, moves) in [("b", 4), ("c", 6), ("d", 8)] {
        replicas.push(Replica::start(&server, name, 8));
        let took = watcher.until(&replicas, is_fair).await;
        assert!(took <= 5 * SECOND, "{name}: {took:?}");
        assert_eq!(watcher.moves, moves, "{name}: more moves than necessary");
    }
    let writes = server.writes();
    watcher.pass(&replicas, Duration::from_mins(2)).await;
    assert_eq!(watcher.moves, 8, "the shares stay the same");
    let writes = server.writes() - writes;
    assert!(writes <= 8 * 60 + 8, "{writes} writes in two minutes: more than renewals");
    for shard in 0..8 {
        assert_eq!(
            server.lease_of(shard)["metadata"]["annotations"]["cloudadapter.dev/wanted-by"],
            json!(null)
        );
    }
}

#[tokio::test(start_paused = true)]
async fn replicas_that_start_together_share() {
    let server = FakeServer::with_shards(16);
    let replicas = ["a", "b", "c"].map(|name| Replica::start(&server, name, 16));
    let took = Watcher::default().until(&replicas, is_fair).await;
    assert!(took <= 6 * SECOND, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn shards_of_a_stopped_replica_are_taken_at_once() {
    let server = FakeServer::with_shards(9);
    let mut watcher = Watcher::default();
    let mut replicas: Vec<_> = ["a", "b", "c"].map(|name| Replica::start(&server, name, 9)).into();
    watcher.until(&replicas, is_fair).await;
    watcher.pass(&replicas, 30 * SECOND).await;
    let mut stopped = replicas.remove(1);
    stopped.stop.cancel();
    let took = watcher.until(&replicas, is_fair).await;
    assert!(took <= 2 * SECOND, "{took:?}");
    assert_eq!(stopped.held(), 0);
    stopped.task.join_next().await.expect("ran").expect("it ends after its release");
}

#[tokio::test(start_paused = true)]
async fn shards_of_a_killed_replica_are_taken_after_expiry() {
    let server = FakeServer::with_shards(9);
    let mut watcher = Watcher::default();
    let mut replicas: Vec<_> = ["a", "b", "c"].map(|name| Replica::start(&server, name, 9)).into();
    watcher.until(&replicas, is_fair).await;
    watcher.pass(&replicas, 30 * SECOND).await;
    drop(replicas.remove(1));
    let took = watcher.until(&replicas, is_fair).await;
    assert!(took <= 14 * SECOND, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn more_replicas_than_shards_stand_by() {
    let server = FakeServer::with_shards(2);
    let mut watcher = Watcher::default();
    let mut replicas: Vec<_> = ["a", "b", "c", "d"].map(|name| Replica::start(&server, name, 2)).into();
    watcher.until(&replicas, is_fair).await;
    watcher.pass(&replicas, 30 * SECOND).await;
    let moves = watcher.moves;
    replicas.retain(|replica| replica.held() == 0);
    let took = watcher.until(&replicas, is_fair).await;
    assert!(took <= 14 * SECOND, "{took:?}");
    // One replica may have taken both shards first, so that one of the shards moved twice.
    assert!(watcher.moves <= moves + 3, "{moves}, then {}", watcher.moves);
}

#[tokio::test(start_paused = true)]
async fn a_shard_is_handed_over_once_no_work_is_in_progress() {
    let server = FakeServer::with_shards(2);
    let mut watcher = Watcher::default();
    let mut replicas = vec![Replica::start(&server, "a", 2)];
    watcher.until(&replicas, is_fair).await;
    let visits: Vec<_> = replicas[0].handles.iter().map(|handle| handle.enter().expect("ours")).collect();
    let clones = visits.clone();
    replicas.push(Replica::start(&server, "b", 2));
    watcher.pass(&replicas, 10 * SECOND).await;
    assert_eq!(replicas[0].held(), 2, "work is in progress in both shards");
    assert!(visits.iter().all(|visit| visit.is_valid()), "the work may continue");
    let entered: Vec<_> = replicas[0].handles.iter().filter_map(cloud_lease::ShardHandle::enter).collect();
    assert_eq!(entered.len(), 1, "no new work begins in the requested shard");
    drop((visits, entered));
    watcher.pass(&replicas, SECOND).await;
    assert_eq!(replicas[0].held(), 2, "a clone of the visit exists");
    drop(clones);
    let took = watcher.until(&replicas, is_fair).await;
    assert!(took <= SECOND, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn endless_work_delays_a_handover_by_30_seconds() {
    let server = FakeServer::with_shards(2);
    let mut watcher = Watcher::default();
    let mut replicas = vec![Replica::start(&server, "a", 2)];
    watcher.until(&replicas, is_fair).await;
    let visits: Vec<_> = replicas[0].handles.iter().map(|handle| handle.enter().expect("ours")).collect();
    replicas.push(Replica::start(&server, "b", 2));
    let took = watcher.until(&replicas, is_fair).await;
    assert!((30 * SECOND..34 * SECOND).contains(&took), "{took:?}");
    assert_eq!(visits.iter().filter(|visit| visit.is_valid()).count(), 1);
    assert_eq!(visits.iter().filter(|visit| visit.epoch() == 0).count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_request_of_a_killed_replica_costs_a_pause() {
    let server = FakeServer::with_shards(4);
    let mut watcher = Watcher::default();
    let mut replicas = vec![Replica::start(&server, "a", 4)];
    watcher.until(&replicas, is_fair).await;
    let asker = Replica::start(&server, "b", 4);
    let wanted =
        |shard| !server.lease_of(shard)["metadata"]["annotations"]["cloudadapter.dev/wanted-by"].is_null();
    let begin = Instant::now();
    while !(0..4).any(wanted) {
        assert!(begin.elapsed() < 10 * SECOND);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    drop(asker);
    watcher.until(&replicas, |replicas| replicas[0].held() < 4).await;
    let took = watcher.until(&replicas, is_fair).await;
    assert!(took <= 5 * SECOND, "{took:?}");
    watcher.pass(&replicas, Duration::from_mins(1)).await;
    assert!(is_fair(&replicas));
    replicas.push(Replica::start(&server, "c", 4));
    watcher.until(&replicas, is_fair).await;
}

#[tokio::test(start_paused = true)]
async fn another_number_of_shards_waits_until_all_of_the_old_are_free() {
    for (old, new) in [(3, 5), (5, 3), (1, 4), (4, 1)] {
        let server = FakeServer::with_shards(5);
        let mut watcher = Watcher::default();
        let mut before: Vec<_> = ["a", "b"].map(|name| Replica::start(&server, name, old)).into();
        watcher
            .until(&before, |replicas| replicas.iter().map(Replica::held).sum::<usize>() == usize::from(old))
            .await;
        let mut all: Vec<_> = ["c", "d"].map(|name| Replica::start(&server, name, new)).into();
        all.append(&mut before);
        watcher.pass(&all, 30 * SECOND).await;
        assert_eq!(all[0].held() + all[1].held(), 0, "{old} to {new}: too early");
        let last = all.pop().expect("one");
        last.stop.cancel();
        watcher.pass(&all, 30 * SECOND).await;
        // The only Lease is free for a moment, and either the other old replica or a new one takes it.
        let passed_on = all[2].held() == usize::from(old) || old == 1 && all[2].held() == 0;
        assert!(passed_on, "{old} to {new}: taken by the other old replica");
        let last = all.pop().expect("one");
        last.stop.cancel();
        let took = watcher.until(&all, |all| all[0].held() + all[1].held() == usize::from(new)).await;
        assert!(took <= 4 * SECOND, "{old} to {new}: {took:?}");
        watcher.pass(&all, 10 * SECOND).await;
        assert!(new == 1 || is_fair(&all), "{old} to {new}");
        let annotations = server.lease()["metadata"]["annotations"].clone();
        assert_eq!(annotations["cloudadapter.dev/shards-before"], json!(null), "{old} to {new}");
    }
}

#[tokio::test(start_paused = true)]
async fn missing_leases_are_created_where_allowed() {
    let server = FakeServer::empty();
    server.allow_create();
    let replicas = ["a", "b"].map(|name| Replica::start(&server, name, 3));
    let took = Watcher::default().until(&replicas, is_fair).await;
    assert!(took <= 20 * SECOND, "{took:?}");
    assert_eq!(server.lease_of(2)["metadata"]["annotations"], json!({ "cloudadapter.dev/shards": "3@1" }));
}

#[tokio::test(start_paused = true)]
async fn the_maximum_of_shards_costs_one_lease_each() {
    let server = FakeServer::with_shards(64);
    let mut watcher = Watcher::default();
    let mut replicas = vec![Replica::start(&server, "a", 64)];
    watcher.until(&replicas, is_fair).await;
    replicas.push(Replica::start(&server, "b", 64));
    let took = watcher.until(&replicas, is_fair).await;
    assert!(took <= 5 * SECOND, "{took:?}");
    assert_eq!(watcher.moves, 32);
    let (requests, writes) = (server.requests(), server.writes());
    watcher.pass(&replicas, 60 * SECOND).await;
    assert_eq!(watcher.moves, 32);
    let (requests, writes) = (server.requests() - requests, server.writes() - writes);
    assert!(requests <= 2 * 64 * 31, "{requests} requests in a minute");
    assert!(writes <= 64 * 31, "{writes} writes in a minute");
}
