//! Two replicas that share the Services.

use std::time::Duration;

use cloud_api_proto::{AdapterError, Reason};
use controller_core::mirror::ObjectName;
use controller_core::testing::{FakeCloud, FakeKube, FakeShards, process_of_shards};
use k8s_openapi::api::coordination::v1::Lease;
use tokio::task::JoinSet;

use super::{world::work, *};
use crate::{Components, NAMES};

pub(super) const LASTS: Duration = Duration::from_hours(10);
const N: usize = 24;

/// Returns a replica that holds these of the four shards.
pub(super) fn replica(
    kube: &FakeKube,
    cloud: &FakeCloud,
    shards: impl IntoIterator<Item = usize>,
) -> (FakeShards, JoinSet<anyhow::Result<()>>) {
    let fake_shards = FakeShards::new("service-controller", 4);
    shards.into_iter().for_each(|shard| fake_shards.give(shard, LASTS));
    let mut running = JoinSet::new();
    let mut process = process_of_shards(NAMES, kube, cloud, &fake_shards);
    let components = Components::build(&mut process, work());
    running.spawn(components.work(process));
    (fake_shards, running)
}

/// Returns the number of writes to the API server, except for writes to Leases.
fn n_writes(world: &World) -> usize {
    world.kube.writes().iter().filter(|write| !write.path.contains("/leases/")).count()
}

fn called(n: usize) -> String {
    format!("s{n}")
}

// Behaviour: P9
#[tokio::test(start_paused = true)]
async fn shards_partition_services_and_move_between_replicas() {
    let world = World::new();
    let (first, _running) = replica(&world.kube, &world.cloud, [0, 1]);
    let (second, _running) = replica(&world.kube, &world.cloud, [2]);
    world.node("a");
    for n in 0..N {
        world.service(service(&called(n)).port(80));
    }
    let shard = |n: usize| first.shards().of(&format!("uid-s{n}"));
    let served = |world: &World, shards: &[usize]| {
        (0..N).filter(|n| shards.contains(&shard(*n))).all(|n| !world.ingress(&called(n)).is_empty())
    };
    world.eventually("three quarters have an address", |world| served(world, &[0, 1, 2])).await;
    world.quiet().await;
    let n_ours = (0..N).filter(|n| shard(*n) != 3).count();
    assert!(n_ours < N, "some Services belong to the shard without a replica");
    assert_eq!(
        n_writes(&world),
        2 * n_ours,
        "finalizer and status are written by the replica that has the shard"
    );
    let fences = world.cloud.read(|state| {
        let fences = state.ensures.iter().map(|it| it.fence.clone().unwrap_or_default().scope);
        fences.collect::<std::collections::BTreeSet<_>>()
    });
    assert_eq!(fences.len(), 3, "{fences:?}");
    assert!((0..N).filter(|n| shard(*n) == 3).all(|n| world.finalizers(&called(n)).is_empty()));

    second.give(3, LASTS);
    world.eventually("all Services have an address", |world| served(world, &[0, 1, 2, 3])).await;
    world.quiet().await;
    let asked = world.cloud.calls("EnsureLoadBalancer");
    // The shard moves to another replica. Each of its Services then costs one call, and nothing is written.
    first.take(1);
    second.give(1, LASTS);
    world.quiet().await;
    assert_eq!(n_writes(&world), 2 * N);
    let moved = u32::try_from((0..N).filter(|n| shard(*n) == 1).count()).unwrap();
    assert_eq!(world.cloud.calls("EnsureLoadBalancer"), asked + moved);

    (0..N).for_each(|n| world.kube.delete::<Service>(&name(&called(n))));
    world.eventually("all Services are gone", |world| (0..N).all(|n| world.get(&called(n)).is_none())).await;
    assert_eq!(world.cloud.calls("DeleteLoadBalancer"), u32::try_from(N).unwrap(), "one deletion for each");
}

/// The memory of the first replica is void, because another replica has had the shard since.
#[tokio::test(start_paused = true)]
async fn regained_shard_is_reconciled_like_after_start() {
    let world = World::new();
    let (fake_shards, _running) = replica(&world.kube, &world.cloud, 0..4);
    world.service(service("web").port(80));
    world.eventually_ingress_of("web").await;
    world.quiet().await;
    let (shard, asked) = (fake_shards.shards().of("uid-web"), world.cloud.calls("EnsureLoadBalancer"));
    let other = (shard + 1) % 4;
    fake_shards.take(other);
    fake_shards.give(other, LASTS);
    world.quiet().await;
    assert_eq!(world.cloud.calls("EnsureLoadBalancer"), asked, "the memory of the other shards is kept");
    fake_shards.take(shard);
    fake_shards.give(shard, LASTS);
    world.quiet().await;
    assert_eq!(world.cloud.calls("EnsureLoadBalancer"), asked + 1);
    assert_eq!(n_writes(&world), 2);
}

/// A worker is active when the replica loses the shard. The worker must not write any more.
#[tokio::test(start_paused = true)]
async fn work_of_lost_shard_writes_nothing() {
    let world = World::new();
    let (fake_shards, _running) = replica(&world.kube, &world.cloud, 0..4);
    world.cloud.slow("EnsureLoadBalancer", Duration::from_secs(20));
    world.service(service("web").port(80));
    world.eventually("the finalizer is set", |world| world.finalizers("web") == [FINALIZER]).await;
    // The adapter is converging the load balancer by now.
    tokio::time::sleep(Duration::from_secs(10)).await;
    let shard = fake_shards.shards().of("uid-web");
    fake_shards.take(shard);
    tokio::time::sleep(Duration::from_mins(2)).await;
    assert_eq!(n_writes(&world), 1, "the only write adds the finalizer: {:?}", world.kube.writes());
    fake_shards.give(shard, LASTS);
    world.eventually_ingress_of("web").await;
}

/// Another replica with a newer fence was active in one shard although this process holds that shard. The other shards of this process are
/// not affected.
#[tokio::test(start_paused = true)]
async fn newer_fence_in_one_shard_does_not_end_process() {
    let world = World::new();
    let (_seats, mut running) = replica(&world.kube, &world.cloud, 0..4);
    let newer = AdapterError::new(Reason::StaleFence, "a newer one was here");
    world.cloud.fail_next("EnsureLoadBalancer", newer);
    (0..8).for_each(|n| {
        world.service(service(&called(n)).port(80));
    });
    world
        .eventually("all Services have an address", |world| {
            (0..8).all(|n| !world.ingress(&called(n)).is_empty())
        })
        .await;
    assert!(running.try_join_next().is_none(), "the process continues");
}

/// The annotation of the Lease is removed, as the Event says.
#[tokio::test(start_paused = true)]
async fn confirmed_move_continues_waiting_services_at_once() {
    let world = World::new();
    let (_seats, _running) = replica(&world.kube, &world.cloud, 0..4);
    world.service(service("old").port(80));
    world.eventually_ingress_of("old").await;
    world.quiet().await;
    world.cloud.moves_to("other");
    world.quiet().await;
    world.service(service("web").port(80));
    tokio::time::sleep(Duration::from_mins(8)).await;
    assert!(world.ingress("web").is_empty(), "{:?}", world.events());
    let lease = ObjectName::namespaced("kube-system", "cloud-service-controller-0");
    world.kube.change::<Lease>(&lease, |lease| lease.metadata.annotations = None);
    let confirmed = tokio::time::Instant::now();
    world.eventually_ingress_of("web").await;
    assert!(confirmed.elapsed() < Duration::from_secs(20), "{:?}", confirmed.elapsed());
}

#[tokio::test(start_paused = true)]
async fn cluster_without_load_balancers_follows_the_adapter_to_another_project() {
    let world = World::new();
    let (_seats, _running) = replica(&world.kube, &world.cloud, 0..4);
    world.quiet().await;
    world.cloud.moves_to("other");
    world.service(service("web").port(80));
    world.eventually_ingress_of("web").await;
    assert!(!world.events().iter().any(|event| event.contains("CloudMoved")), "{:?}", world.events());
}
