//! Tests two replicas that share the nodes.

use std::time::Duration;

use controller_core::testing::{FakeCloud, FakeKube, FakeShards, instance, node, process_of_shards};
use k8s_openapi::api::{coordination::v1::Lease, core::v1::Node};
use tokio::time::Instant;

use super::{
    world::{SETTINGS, World, id, known, settle},
    *,
};
use crate::{NAMES, controller, ownership::LabelRules};

const LASTS: Duration = Duration::from_hours(10);
const N_NODES: usize = 40;

fn replica(
    kube: &FakeKube,
    cloud: &FakeCloud,
    shards: impl IntoIterator<Item = usize>,
) -> (FakeShards, Replica) {
    let fake_shards = FakeShards::new("node-controller", 4);
    shards.into_iter().for_each(|shard| fake_shards.give(shard, LASTS));
    let mut running = Replica::new();
    running.spawn(controller(
        process_of_shards(NAMES, kube, cloud, &fake_shards),
        SETTINGS,
        LabelRules::default(),
    ));
    (fake_shards, running)
}

type Replica = tokio::task::JoinSet<anyhow::Result<()>>;

fn n_writes(world: &World) -> usize {
    world.kube.writes().iter().filter(|write| !write.path.contains("/leases/")).count()
}

fn uid(n: usize) -> String {
    format!("uid-n{n}")
}

// Behaviour: P9
#[tokio::test(start_paused = true)]
async fn replicas_initialise_each_node_once_and_take_over() {
    let world = World::new();
    let (first, _running) = replica(&world.kube, &world.cloud, [0, 1]);
    let (second, _running) = replica(&world.kube, &world.cloud, [2]);
    let of = first.shards();
    for n in 0..N_NODES {
        let name = format!("n{n}");
        world.cloud.put(instance(&id(&name)).named(&name).at("10.0.0.1"));
        world.kube.put::<Node>(node(&name).uninitialised().uid(&uid(n)));
    }
    let done = |shards: &[usize]| {
        let of = of.clone();
        let mut nodes = (0..N_NODES).filter(move |n| shards.contains(&of.of(&uid(*n))));
        nodes.all(|n| world.is_initialised(&format!("n{n}")))
    };
    eventually("three quarters are initialised", || done(&[0, 1, 2])).await;
    settle().await;
    let ours = (0..N_NODES).filter(|n| of.of(&uid(*n)) != 3).count();
    assert_eq!(n_writes(&world), 2 * ours, "two writes per node, by the replica that has the node's shard");
    assert!((0..N_NODES).filter(|n| of.of(&uid(*n)) == 3).all(|n| !world.is_initialised(&format!("n{n}"))));

    second.give(3, LASTS);
    eventually("all nodes are initialised", || done(&[0, 1, 2, 3])).await;
    // The shard moves to another replica, which has nothing to do.
    first.take(1);
    second.give(1, LASTS);
    settle().await;
    assert_eq!(n_writes(&world), 2 * N_NODES);
}

// Behaviour: P9
#[tokio::test(start_paused = true)]
async fn replicas_share_the_deletion_limit() {
    let world = World::new();
    for n in 0..N_NODES {
        let name = format!("n{n}");
        world.cloud.put(instance(&id(&name)).named(&name));
        world.kube.put::<Node>(known(&name).uid(&uid(n)).ready("True"));
    }
    let (first, _running) = replica(&world.kube, &world.cloud, [0, 1]);
    let (_second, _running) = replica(&world.kube, &world.cloud, [2, 3]);
    tokio::time::sleep(world::WARM).await;
    let of = first.shards();
    // Each replica has one of the two lost nodes in its shards.
    let lost = [[0, 1], [2, 3]].map(|shards| (0..N_NODES).find(|n| shards.contains(&of.of(&uid(*n)))));
    let lost = lost.map(|n| format!("n{}", n.expect("one of the nodes")));
    lost.iter().for_each(|name| world.lose(name));
    eventually("both nodes are deleted", || lost.iter().all(|name| !world.exists(name))).await;
    assert_eq!(world.n_deletions(), 2, "each node is deleted once");
    (0..N_NODES)
        .map(|n| format!("n{n}"))
        .filter(|name| !lost.contains(name))
        .for_each(|name| world.lose(&name));
    tokio::time::sleep(Duration::from_mins(30)).await;
    assert_eq!(world.n_deletions(), 2, "the brakes of both replicas hold the nodes");
}

#[tokio::test(start_paused = true)]
async fn brake_starts_again_for_an_acquired_shard() {
    let world = World::new();
    for n in 0..N_NODES {
        let name = format!("n{n}");
        world.cloud.put(instance(&id(&name)).named(&name));
        world.kube.put::<Node>(known(&name).uid(&uid(n)).ready("True"));
    }
    let (fake_shards, _running) = replica(&world.kube, &world.cloud, [0, 1]);
    tokio::time::sleep(world::WARM).await;
    fake_shards.give(2, LASTS);
    fake_shards.give(3, LASTS);
    tokio::time::sleep(Duration::from_secs(10)).await;
    // A brake that has run for a window would allow all six deletions, since its limit is 30 % of 40 nodes.
    (0..6).for_each(|n| world.lose(&format!("n{n}")));
    tokio::time::sleep(Duration::from_mins(2)).await;
    assert!(
        world.n_deletions() <= 1,
        "the replica that had the other half may have deleted some nodes: {}",
        world.n_deletions()
    );
    eventually("the nodes are deleted in time", || world.n_deletions() == 6).await;
}

/// A Lease could not be renewed in time, and no other replica acquired it.
#[tokio::test(start_paused = true)]
async fn brake_remembers_deletions_across_a_lapse() {
    let world = World::new();
    for n in 0..N_NODES {
        let name = format!("n{n}");
        world.cloud.put(instance(&id(&name)).named(&name));
        world.kube.put::<Node>(known(&name).uid(&uid(n)).ready("True"));
    }
    let (fake_shards, _running) = replica(&world.kube, &world.cloud, 0..4);
    tokio::time::sleep(world::WARM).await;
    (0..12).for_each(|n| world.lose(&format!("n{n}")));
    eventually("30 % of 40 are deleted", || world.n_deletions() == 12).await;
    fake_shards.lapse(1);
    settle().await;
    fake_shards.recover(1, LASTS);
    (12..15).for_each(|n| world.lose(&format!("n{n}")));
    tokio::time::sleep(Duration::from_mins(5)).await;
    assert_eq!(world.n_deletions(), 12);
}

/// The annotation of the Lease is removed, as the Event says.
#[tokio::test(start_paused = true)]
async fn confirmed_move_continues_waiting_nodes_at_once() {
    let world = World::new();
    world.kube.put::<Node>(known("a").ready("True"));
    world.cloud.put(instance(&id("a")).named("a"));
    let (_seats, _running) = replica(&world.kube, &world.cloud, 0..4);
    settle().await;
    world.cloud.moves_to("other");
    world.kube.put::<Node>(node("b").uninitialised());
    world.cloud.put(instance(&id("b")).named("b").at("10.0.0.1"));
    tokio::time::sleep(Duration::from_mins(8)).await;
    assert!(!world.is_initialised("b"));
    assert!(world.has_event("CloudMoved", "the adapter now uses project other"), "{:?}", world.kube.events());

    let lease = ObjectName::namespaced("kube-system", "cloud-node-controller-0");
    world.kube.change::<Lease>(&lease, |lease| lease.metadata.annotations = None);
    let confirmed = Instant::now();
    eventually("the node is initialised", || world.is_initialised("b")).await;
    assert!(confirmed.elapsed() < Duration::from_secs(15), "{:?}", confirmed.elapsed());
}

#[tokio::test(start_paused = true)]
async fn new_cluster_follows_the_adapter_to_another_project_without_events() {
    let world = World::new();
    world.kube.put::<Node>(node("a").uninitialised());
    let (_seats, _running) = replica(&world.kube, &world.cloud, 0..4);
    settle().await;
    world.cloud.moves_to("other");
    world.cloud.put(instance(&id("a")).named("a").at("10.0.0.1"));
    eventually("the node is initialised", || world.is_initialised("a")).await;
    assert!(
        !world.kube.events().iter().any(|event| event.contains("CloudMoved")),
        "{:?}",
        world.kube.events()
    );
}
