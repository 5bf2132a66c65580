//! These tests use a replica that shuts down while work is in progress.

use std::time::Duration;

use crate::{
    FakeServer,
    world::{Replica, Watcher, is_fair},
};

const SECOND: Duration = Duration::from_secs(1);

fn transitions(server: &FakeServer) -> i64 {
    (0..8).filter_map(|shard| server.lease_of(shard)["spec"]["leaseTransitions"].as_i64()).sum()
}

#[tokio::test(start_paused = true)]
async fn a_leaving_replica_finishes_its_work_and_takes_nothing() {
    let server = FakeServer::with_shards(8);
    let mut watcher = Watcher::default();
    let mut replicas: Vec<_> = ["a", "b"].map(|name| Replica::start(&server, name, 8)).into();
    watcher.until(&replicas, is_fair).await;
    watcher.pass(&replicas, 10 * SECOND).await;
    let mut visits: Vec<_> = replicas[0].handles.iter().filter_map(cloud_lease::ShardHandle::enter).collect();
    let visit = visits.pop().expect("four");
    drop(visits);
    replicas[0].leaving.cancel();
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert!(replicas[0].handles.iter().all(|handle| handle.enter().is_none()), "no new work begins");
    let took = watcher.until(&replicas, |replicas| replicas[1].held() == 7).await;
    assert!(took <= 2 * SECOND + SECOND / 10, "{took:?}");
    watcher.pass(&replicas, Duration::from_mins(1)).await;
    assert!(visit.is_valid() && replicas[0].held() == 1, "held for as long as the work takes");
    drop(visit);
    let took = watcher.until(&replicas, |replicas| replicas[1].held() == 8).await;
    assert!(took <= 2 * SECOND + SECOND / 10, "{took:?}");

    // The leaving replica takes no shard, although all are free now.
    drop(replicas.pop());
    let taken = transitions(&server);
    watcher.pass(&replicas, Duration::from_mins(1)).await;
    assert_eq!((replicas[0].held(), transitions(&server)), (0, taken));
    replicas[0].stop.cancel();
    replicas[0].task.join_next().await.expect("ran").expect("it ends after its release");
}

#[tokio::test(start_paused = true)]
async fn the_release_ends_all_terms_despite_work_in_progress() {
    let server = FakeServer::with_shards(4);
    let mut watcher = Watcher::default();
    let replicas: Vec<_> = ["a", "b"].map(|name| Replica::start(&server, name, 4)).into();
    watcher.until(&replicas, is_fair).await;
    let visits: Vec<_> = replicas[0].handles.iter().filter_map(cloud_lease::ShardHandle::enter).collect();
    replicas[0].leaving.cancel();
    watcher.pass(&replicas, 5 * SECOND).await;
    assert_eq!(replicas[0].held(), 2);
    replicas[0].stop.cancel();
    let took = watcher.until(&replicas, |replicas| replicas[1].held() == 4).await;
    assert!(took <= 2 * SECOND + SECOND / 10, "{took:?}");
    assert!(visits.iter().all(|visit| !visit.is_valid()));
}

#[tokio::test(start_paused = true)]
async fn a_leaving_replica_withdraws_its_request() {
    let server = FakeServer::with_shards(2);
    let mut watcher = Watcher::default();
    let mut replicas = vec![Replica::start(&server, "a", 2)];
    watcher.until(&replicas, is_fair).await;
    let _visits: Vec<_> = replicas[0].handles.iter().filter_map(cloud_lease::ShardHandle::enter).collect();
    replicas.push(Replica::start(&server, "b", 2));
    let asked = || {
        (0..2).any(|shard| {
            !server.lease_of(shard)["metadata"]["annotations"]["cloudadapter.dev/wanted-by"].is_null()
        })
    };
    watcher.until(&replicas, |_| asked()).await;
    watcher.pass(&replicas, 3 * SECOND).await;
    assert!(asked());
    replicas[1].leaving.cancel();
    watcher.pass(&replicas, 3 * SECOND).await;
    assert!(!asked());
    assert_eq!(replicas[0].held(), 2);
}
