//! Two replicas that share the Services between them.

use std::time::Duration;

use cloud_api_proto::{AdapterError, Reason};
use controller_core::testing::{FakeCloud, FakeKube, Seats, process_of_shards};
use tokio::task::JoinSet;

use super::{world::work, *};
use crate::{NAMES, Rooms};

pub(super) const LASTS: Duration = Duration::from_hours(10);
const N: usize = 24;

/// A replica at work in these shards of four.
pub(super) fn replica(
    kube: &FakeKube,
    cloud: &FakeCloud,
    shards: impl IntoIterator<Item = usize>,
) -> (Seats, JoinSet<anyhow::Result<()>>) {
    let seats = Seats::new("service-controller", 4);
    shards.into_iter().for_each(|shard| seats.give(shard, LASTS));
    let mut running = JoinSet::new();
    let mut process = process_of_shards(NAMES, kube, cloud, &seats);
    let rooms = Rooms::build(&mut process, work());
    running.spawn(rooms.work(process));
    (seats, running)
}

/// But for what is kept on the Lease.
fn n_writes(world: &World) -> usize {
    world.kube.writes().iter().filter(|write| !write.path.contains("/leases/")).count()
}

fn called(n: usize) -> String {
    format!("s{n}")
}

#[tokio::test(start_paused = true)]
async fn replicas_do_each_service_once_and_what_one_leaves_another_takes_up() {
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
    assert!(n_ours < N, "some belong to the shard that nobody has");
    assert_eq!(n_writes(&world), 2 * n_ours, "finalizer and status, by whoever has it");
    let fences = world.cloud.read(|state| {
        let fences = state.ensures.iter().map(|it| it.fence.clone().unwrap_or_default().scope);
        fences.collect::<std::collections::BTreeSet<_>>()
    });
    assert_eq!(fences.len(), 3, "{fences:?}");
    assert!((0..N).filter(|n| shard(*n) == 3).all(|n| world.finalizers(&called(n)).is_empty()));

    second.give(3, LASTS);
    world.eventually("all have one", |world| served(world, &[0, 1, 2, 3])).await;
    world.quiet().await;
    let asked = world.cloud.calls("EnsureLoadBalancer");
    // It moves: each of its Services is asked about once, and nothing is written.
    first.take(1);
    second.give(1, LASTS);
    world.quiet().await;
    assert_eq!(n_writes(&world), 2 * N);
    let moved = u32::try_from((0..N).filter(|n| shard(*n) == 1).count()).unwrap();
    assert_eq!(world.cloud.calls("EnsureLoadBalancer"), asked + moved);

    (0..N).for_each(|n| world.kube.delete::<Service>(&name(&called(n))));
    world.eventually("all go", |world| (0..N).all(|n| world.get(&called(n)).is_none())).await;
    assert_eq!(world.cloud.calls("DeleteLoadBalancer"), u32::try_from(N).unwrap(), "each once");
}

/// What the first replica remembers is worth nothing: another one was at work meanwhile.
#[tokio::test(start_paused = true)]
async fn a_shard_that_comes_back_is_looked_at_as_after_a_start() {
    let world = World::new();
    let (seats, _running) = replica(&world.kube, &world.cloud, 0..4);
    world.service(service("web").port(80));
    world.eventually_ingress_of("web").await;
    world.quiet().await;
    let (shard, asked) = (seats.shards().of("uid-web"), world.cloud.calls("EnsureLoadBalancer"));
    let other = (shard + 1) % 4;
    seats.take(other);
    seats.give(other, LASTS);
    world.quiet().await;
    assert_eq!(world.cloud.calls("EnsureLoadBalancer"), asked, "the others' memory stays");
    seats.take(shard);
    seats.give(shard, LASTS);
    world.quiet().await;
    assert_eq!(world.cloud.calls("EnsureLoadBalancer"), asked + 1);
    assert_eq!(n_writes(&world), 2);
}

/// A worker is at it when the shard goes: what it would write then is another's to write.
#[tokio::test(start_paused = true)]
async fn what_began_before_a_shard_was_lost_writes_nothing_after() {
    let world = World::new();
    let (seats, _running) = replica(&world.kube, &world.cloud, 0..4);
    world.cloud.slow("EnsureLoadBalancer", Duration::from_secs(20));
    world.service(service("web").port(80));
    world.eventually("it has the finalizer", |world| world.finalizers("web") == [FINALIZER]).await;
    // The adapter is at it by now.
    tokio::time::sleep(Duration::from_secs(10)).await;
    let shard = seats.shards().of("uid-web");
    seats.take(shard);
    tokio::time::sleep(Duration::from_mins(2)).await;
    assert_eq!(n_writes(&world), 1, "the finalizer alone: {:?}", world.kube.writes());
    seats.give(shard, LASTS);
    world.eventually_ingress_of("web").await;
}

/// A newer writer was there, though this process thinks that it has the shard: its other shards are nobody else's business.
#[tokio::test(start_paused = true)]
async fn a_newer_writer_in_one_shard_ends_no_process() {
    let world = World::new();
    let (_seats, mut running) = replica(&world.kube, &world.cloud, 0..4);
    let newer = AdapterError::new(Reason::StaleFence, "a newer one was here");
    world.cloud.fail_next("EnsureLoadBalancer", newer);
    (0..8).for_each(|n| {
        world.service(service(&called(n)).port(80));
    });
    world.eventually("all have one", |world| (0..8).all(|n| !world.ingress(&called(n)).is_empty())).await;
    assert!(running.try_join_next().is_none(), "it goes on");
}
