//! Tests two replicas that share the nodes' routes.

use controller_core::mirror::ObjectName;
use controller_core::testing::{FakeShards, process_of_shards};
use k8s_openapi::api::coordination::v1::Lease;

use super::*;

const LASTS: Duration = Duration::from_hours(10);
const N: usize = 40;

fn replica(world: &mut World, shards: impl IntoIterator<Item = usize>) -> FakeShards {
    let fake_shards = FakeShards::new("route-controller", 4);
    shards.into_iter().for_each(|shard| fake_shards.give(shard, LASTS));
    let process = process_of_shards(crate::NAMES, &world.kube, &world.cloud, &fake_shards);
    world.controller.spawn(crate::control(process, configured(&[])));
    fake_shards
}

/// Returns the number of calls that change routes, and the number of writes to the API server except those to Leases.
fn spent(world: &World) -> (u32, usize) {
    let writes = world.kube.writes();
    let others = writes.iter().filter(|write| !write.path.contains("/leases/")).count();
    (world.spent().0, others)
}

fn uid(n: usize) -> String {
    format!("uid-n{n}")
}

fn name(n: usize) -> String {
    format!("n{n}")
}

// Behaviour: P9
#[tokio::test(start_paused = true)]
async fn replicas_create_each_route_once_and_take_over() {
    let mut world = World::new();
    world.marks_routes();
    (0..N).for_each(|n| world.put(numbered(n).uid(&uid(n))));
    let first = replica(&mut world, [0, 1]);
    let second = replica(&mut world, [2]);
    let of = first.shards();
    let served = |world: &World, shards: &[usize]| {
        (0..N).filter(|n| shards.contains(&of.of(&uid(*n)))).all(|n| world.condition(&name(n)) == SERVED)
    };
    eventually("three quarters have routes", || served(&world, &[0, 1, 2])).await;
    tokio::time::sleep(Duration::from_mins(2)).await;
    let n_ours = (0..N).filter(|n| of.of(&uid(*n)) != 3).count();
    assert!(n_ours < N, "some belong to the shard that no replica has");
    assert_eq!(
        (world.routes().len(), spent(&world)),
        (n_ours, (3, n_ours)),
        "one call per shard, one condition per node"
    );

    second.give(3, LASTS);
    eventually("all nodes have routes", || served(&world, &[0, 1, 2, 3])).await;
    assert_eq!((world.routes().len(), spent(&world)), (N, (4, N)));
    // The shard moves to another replica, which has nothing to do.
    first.take(1);
    second.give(1, LASTS);
    tokio::time::sleep(Duration::from_mins(10)).await;
    assert_eq!(spent(&world), (4, N));

    world.delete(&name(0));
    eventually("its route is removed", || world.routes().len() == N - 1).await;
    assert_eq!(spent(&world).0, 5, "by one of the replicas");
}

/// Nothing else triggers a pass: the call changed no route, and the term is the same when the Lease is finally renewed.
#[tokio::test(start_paused = true)]
async fn term_that_lapses_during_a_call_costs_no_period() {
    const SECOND: Duration = Duration::from_secs(1);
    let mut world = World::new();
    world.marks_routes();
    world.put(numbered(0).uid(&uid(0)));
    let fake_shards = replica(&mut world, []);
    world.cloud.slow("ApplyRoutes", 20 * SECOND);
    world.cloud.fail_next("ApplyRoutes", AdapterError::new(Reason::VendorUnavailable, "it is away"));
    let shard = fake_shards.shards().of(&uid(0));
    fake_shards.give(shard, 10 * SECOND);
    eventually("the cloud has failed", || world.cloud.calls("ApplyRoutes") == 1).await;
    world.cloud.slow("ApplyRoutes", Duration::ZERO);
    tokio::time::sleep(10 * SECOND).await;
    assert_eq!(world.cloud.calls("ApplyRoutes"), 1, "another replica may be active at the moment");

    let renewed = tokio::time::Instant::now();
    fake_shards.renew(shard, LASTS, false);
    eventually("the node is served", || world.condition(&name(0)) == SERVED).await;
    assert!(
        renewed.elapsed() <= 3 * SECOND,
        "the delay of a retry, not of a period: {:?}",
        renewed.elapsed()
    );
    assert_eq!(spent(&world), (2, 1));
}

/// One replica has the node that had the CIDR, another replica has the node that gets the CIDR.
// Behaviour: P9
#[tokio::test(start_paused = true)]
async fn cidr_moves_between_nodes_of_two_replicas() {
    let mut world = World::new();
    world.marks_routes();
    let first = replica(&mut world, [0, 1]);
    let _second = replica(&mut world, [2, 3]);
    let of = first.shards();
    let one_of =
        |shards: [usize; 2]| (0..N).find(|n| shards.contains(&of.of(&uid(*n)))).expect("one of forty nodes");
    let (old, new) = (one_of([0, 1]), one_of([2, 3]));
    let at = |n: usize, cidr: &str| ready(&name(n), cidr).uid(&uid(n));
    world.put(at(old, "10.244.7.0/24"));
    eventually("the node has its route", || world.condition(&name(old)) == SERVED).await;
    world.delete(&name(old));
    world.put(at(new, "10.244.7.0/24"));
    eventually("the new node has it", || world.condition(&name(new)) == SERVED).await;
    let via = format!("10.244.7.0/24 via sim://north/{} at 192.0.2.1", name(new));
    assert_eq!(world.routes(), [via.as_str()]);
    tokio::time::sleep(Duration::from_mins(10)).await;
    assert_eq!(world.routes(), [via.as_str()]);
}

/// In a cloud without owner tags, this replica's record of the routes is outdated when it acquires a shard again.
#[tokio::test(start_paused = true)]
async fn replica_without_shards_reads_the_record_again() {
    let mut world = World::new();
    let first = replica(&mut world, [0, 1, 2]);
    let second = replica(&mut world, [3]);
    let of = first.shards();
    let at_second = |name: &str| of.of(&format!("uid-{name}")) == 3;
    let name = (0..N).map(name).find(|name| at_second(name)).expect("one of forty nodes");
    world.put(ready("other", "10.244.200.0/24"));
    world.put_route(unmarked("there", "10.244.200.0/24", Some("other")));
    eventually("the record is stored", || world.kept().len() == 1).await;
    tokio::time::sleep(Duration::from_mins(2)).await;
    second.take(3);
    first.give(3, LASTS);
    // No pass of the second replica observes the following changes, because the second replica holds no shard.
    world.put(ready(&name, "10.244.7.0/24"));
    world.put_route(unmarked("late", "10.244.7.0/24", Some(&name)));
    eventually("the route is recorded", || world.kept().len() == 2).await;
    first.take(3);
    world.delete(&name);
    tokio::time::sleep(Duration::from_mins(2)).await;
    second.give(3, LASTS);
    eventually("the route of the deleted node is gone", || world.routes().len() == 1).await;
}

/// The annotation of the Lease is removed, as the Event says.
#[tokio::test(start_paused = true)]
async fn confirmed_move_continues_waiting_nodes_at_once() {
    let mut world = World::new();
    world.marks_routes();
    world.put(numbered(0));
    let _seats = replica(&mut world, 0..4);
    eventually("the node is served", || world.condition(&name(0)) == SERVED).await;
    world.cloud.moves_to("other");
    world.put(numbered(1));
    tokio::time::sleep(Duration::from_mins(8)).await;
    assert_eq!(world.condition(&name(1)), "");

    let lease = ObjectName::namespaced("kube-system", "cloud-route-controller-0");
    world.kube.change::<Lease>(&lease, |lease| lease.metadata.annotations = None);
    let confirmed = tokio::time::Instant::now();
    eventually("the new node is served", || world.condition(&name(1)) == SERVED).await;
    assert!(confirmed.elapsed() < Duration::from_secs(15), "{:?}", confirmed.elapsed());
}
