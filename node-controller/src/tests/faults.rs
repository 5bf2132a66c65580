//! Tests an API server that is slow, throttles, fails, hangs or loses state, objects without expected fields, and a partly upgraded
//! adapter. No update is lost, no node is deleted, and no request is repeated in a tight loop.

use std::collections::BTreeSet;
use std::time::Duration;

use controller_core::mirror::ObjectName;
use controller_core::testing::{Fault, NodeBuilder, Verb, eventually, instance, node};
use k8s_openapi::api::core::v1::{Node, Taint};
use tokio::time::Instant;

use super::world::{World, running, settle};

const SECOND: Duration = Duration::from_secs(1);
const LONG: Duration = Duration::from_mins(20);

/// Returns a world in which these instances have existed for a while.
async fn machines(names: &[&str]) -> World {
    let world = World::new();
    for name in names {
        world.cloud.put(instance(&format!("sim://north/{name}")).named(name).at("10.0.0.1"));
    }
    settle().await;
    world
}

fn joining(name: &str) -> NodeBuilder {
    node(name).uninitialised()
}

fn taints(world: &World, name: &str) -> usize {
    world.node(name).spec.and_then(|spec| spec.taints).unwrap_or_default().len()
}

// Behaviour: NI14, P32
#[tokio::test(start_paused = true)]
async fn repeated_conflicts_lose_no_foreign_write() {
    let mut world = machines(&["a"]).await;
    for n in 0..20 {
        let taint = Taint { key: format!("other-{n}"), effect: "NoSchedule".to_owned(), ..Taint::default() };
        world.kube.before_next_write(move |kube| {
            let add = |node: &mut Node| {
                node.spec.get_or_insert_default().taints.get_or_insert_default().push(taint);
            };
            kube.change::<Node>(&ObjectName::cluster("a"), add);
        });
    }
    world.kube.put::<Node>(joining("a"));
    world.start();
    tokio::time::timeout(60 * SECOND, eventually("the node is initialised", || world.is_initialised("a")))
        .await
        .expect("a change of the node wakes the controller");
    assert_eq!(taints(&world, "a"), 20, "all taints of the other client");
    assert_eq!((world.kube.writes().len(), world.cloud.calls("BatchGetInstances")), (21, 0));
    tokio::time::sleep(LONG).await;
    assert_eq!(world.kube.writes().len(), 21);
    world.stop().await;
}

/// The first write has the UID of the deleted node. The new node gets its own write, and no warning is emitted.
#[tokio::test(start_paused = true)]
async fn node_recreated_before_a_write_is_initialised_silently() {
    for (name, from, n_writes) in [("addresses", joining("a"), 3), ("labels", node("a").at("10.0.0.1"), 3)] {
        let mut world = World::new();
        let machine = instance("sim://north/a").named("a").at("10.0.0.1");
        world.cloud.put(machine.label("example.com/rack", "7"));
        settle().await;
        world.kube.before_next_write(|kube| {
            kube.delete::<Node>(&ObjectName::cluster("a"));
            kube.put::<Node>(joining("a").uid("uid-2"));
        });
        world.kube.put::<Node>(from.provider_id("sim://north/a"));
        world.start();
        eventually("the new node is initialised", || {
            world.is_initialised("a") && world.node("a").metadata.uid.as_deref() == Some("uid-2")
        })
        .await;
        settle().await;
        assert_eq!(
            (world.kube.writes().len(), world.has_event("SyncFailed", "")),
            (n_writes, false),
            "{name}"
        );
        world.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn conflicts_without_a_change_are_retried() {
    let mut world = machines(&["a"]).await;
    world.kube.order(Fault::status(409).on(Verb::Patch, "nodes").times(8));
    world.kube.put::<Node>(joining("a"));
    world.start();
    eventually("the node is initialised", || world.is_initialised("a")).await;
    tokio::time::sleep(LONG).await;
    assert_eq!(world.kube.writes().len(), 10, "8 failures, then the addresses and the other fields");
    world.stop().await;
}

// Behaviour: W5
#[tokio::test(start_paused = true)]
async fn hanging_write_does_not_block_other_nodes() {
    let mut world = machines(&["a", "b"]).await;
    world.kube.order(Fault::hang().on(Verb::Patch, "nodes").of("a"));
    world.kube.put::<Node>(joining("a"));
    world.kube.put::<Node>(joining("b"));
    world.start();
    tokio::time::timeout(5 * SECOND, eventually("b is initialised", || world.is_initialised("b")))
        .await
        .expect("long before the write to a times out");
    tokio::time::sleep(LONG).await;
    assert!(!world.is_initialised("a"));
    world.kube.heal();
    eventually("a is initialised", || world.is_initialised("a")).await;
    world.stop().await;
}

/// Few concurrent writes are allowed, every write hangs, and many nodes wait for a permit.
// Behaviour: P6
#[tokio::test(start_paused = true)]
async fn waiting_for_a_permit_does_not_make_a_worker_unhealthy() {
    let names: Vec<String> = (0..40).map(|n| format!("n{n}")).collect();
    let mut world = machines(&names.iter().map(String::as_str).collect::<Vec<_>>()).await;
    (world.settings.workers, world.settings.address_writers) = (40, 1);
    world.kube.order(Fault::hang().on(Verb::Patch, "nodes/status"));
    names.iter().for_each(|name| world.kube.put::<Node>(joining(name)));
    world.start();
    let begin = Instant::now();
    while begin.elapsed() < LONG {
        tokio::time::sleep(10 * SECOND).await;
        assert_eq!(world.health.liveness(), Ok(()), "after {:?}", begin.elapsed());
    }
    world.kube.heal();
    eventually("all nodes are initialised", || names.iter().all(|name| world.is_initialised(name))).await;
    world.stop().await;
}

// Behaviour: W6
#[tokio::test(start_paused = true)]
async fn addresses_that_cannot_be_written_keep_the_taint() {
    let mut world = machines(&["a"]).await;
    world.kube.order(Fault::status(500).on(Verb::Patch, "nodes/status"));
    world.kube.put::<Node>(joining("a"));
    world.start();
    tokio::time::sleep(LONG).await;
    assert!(!world.is_initialised("a"));
    let paths: BTreeSet<String> = world.kube.writes().into_iter().map(|write| write.path).collect();
    assert_eq!(
        paths.into_iter().collect::<Vec<_>>(),
        ["/api/v1/nodes/a/status"],
        "no other write is tried before"
    );
    world.kube.heal();
    eventually("the node is initialised", || world.is_initialised("a")).await;
    assert_eq!(world.addresses("a"), ["InternalIP=10.0.0.1"]);
    world.stop().await;
}

/// The watch works, but one call never gets an answer.
// Behaviour: W5
#[tokio::test(start_paused = true)]
async fn unanswered_look_up_is_retried_and_blocks_no_other_node() {
    let mut world = machines(&["b"]).await;
    world.put_unlisted("sim://north/a", "a");
    world.cloud.slow("BatchGetInstances", Duration::from_hours(1));
    world.kube.put::<Node>(joining("a"));
    world.start();
    eventually("the cloud is asked", || world.cloud.calls("BatchGetInstances") == 1).await;
    let asked = Instant::now();
    world.cloud.slow("BatchGetInstances", Duration::ZERO);
    world.kube.put::<Node>(joining("b"));
    tokio::time::timeout(5 * SECOND, eventually("b is initialised", || world.is_initialised("b")))
        .await
        .expect("long before the call times out");
    eventually("a is initialised", || world.is_initialised("a")).await;
    assert!((30 * SECOND..40 * SECOND).contains(&asked.elapsed()), "{:?}", asked.elapsed());
    assert_eq!(world.cloud.calls("BatchGetInstances"), 2);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn slow_api_server_causes_no_duplicate_action() {
    for (seconds, name) in
        [(5, "slow"), (20, "the answer is too slow, so the controller does not wait for it")]
    {
        let mut world = machines(&["a"]).await;
        world.kube.order(Fault::slow(seconds * SECOND).on_writes());
        world.kube.put::<Node>(joining("a"));
        world.start();
        eventually("the node is initialised", || world.is_initialised("a")).await;
        tokio::time::sleep(LONG).await;
        let writes: Vec<String> = world.kube.writes().iter().map(|write| write.body.to_string()).collect();
        assert_eq!(writes.len(), 2, "{name}: {writes:#?}");
        world.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn one_watch_is_enough() {
    let mut world = machines(&["a"]).await;
    world.kube.put::<Node>(joining("a"));
    world.start();
    eventually("a is initialised", || world.is_initialised("a")).await;
    settle().await;
    assert_eq!((world.kube.requests(Verb::Watch, "nodes"), world.kube.unmarked_watches()), (1, 0));
    world.stop().await;
}

// Behaviour: P28
#[tokio::test(start_paused = true)]
async fn expired_watch_costs_one_listing() {
    let mut world = machines(&["a", "b"]).await;
    world.kube.put::<Node>(joining("a"));
    world.start();
    eventually("a is initialised", || world.is_initialised("a")).await;
    settle().await;
    world.kube.compact();
    world.kube.put::<Node>(joining("b"));
    eventually("b is initialised", || world.is_initialised("b")).await;
    tokio::time::sleep(LONG).await;
    assert_eq!(world.kube.writes().len(), 4, "two writes per node");
    world.stop().await;
}

// Behaviour: P33
#[tokio::test(start_paused = true)]
async fn objects_without_expected_fields_are_harmless() {
    let mut world = machines(&["bare", "a"]).await;
    let read = |name: &str, rest: serde_json::Value| {
        let mut node: Node = serde_json::from_value(rest).expect("a node");
        node.metadata.name = Some(name.to_owned());
        node
    };
    let taint = serde_json::json!({ "key": "node.cloudprovider.kubernetes.io/uninitialized", "effect": "" });
    world
        .kube
        .put::<Node>(read("bare", serde_json::json!({ "metadata": {}, "spec": { "taints": [taint] } })));
    world.kube.put::<Node>(read("nothing", serde_json::json!({ "metadata": {} })));
    world.kube.put::<Node>(read("empty", serde_json::json!({ "metadata": {}, "spec": {}, "status": {} })));
    world.kube.put::<Node>(joining("a"));
    world.start();
    eventually("the nodes that have a taint are initialised", || {
        world.is_initialised("a") && world.is_initialised("bare")
    })
    .await;
    assert_eq!(world.addresses("bare"), ["InternalIP=10.0.0.1"]);
    tokio::time::sleep(LONG).await;
    assert_eq!(world.kube.writes().len(), 4, "two writes per node that had the taint");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn instance_in_an_unknown_state_exists() {
    let mut world = machines(&["a"]).await;
    world.cloud.edit(|state| state.instances.values_mut().for_each(|it| it.state = 99));
    world.kube.put::<Node>(joining("a"));
    world.start();
    eventually("the node is initialised", || world.is_initialised("a")).await;
    tokio::time::sleep(LONG).await;
    assert_eq!(world.node("a").spec.and_then(|spec| spec.taints).unwrap_or_default(), []);
    assert_eq!(world.kube.writes().len(), 2);
    world.stop().await;
}

// Behaviour: P29
#[tokio::test(start_paused = true)]
async fn partly_upgraded_adapter_is_waited_for() {
    for rpc in ["WatchInstances", "BatchGetInstances", "GetInfo"] {
        let mut world = machines(&["a"]).await;
        world.put_unlisted("sim://north/late", "late");
        world.cloud.without(rpc);
        world.kube.put::<Node>(joining("a"));
        world.kube.put::<Node>(joining("late"));
        world.start();
        tokio::time::sleep(LONG).await;
        assert!(world.cloud.calls(rpc) < 400, "{rpc}: {} calls in 20 min", world.cloud.calls(rpc));
        world.cloud.with(rpc);
        eventually("both nodes are initialised", || {
            world.is_initialised("a") && world.is_initialised("late")
        })
        .await;
        world.stop().await;
    }
}

// Behaviour: P28
#[tokio::test(start_paused = true)]
async fn failing_api_server_is_called_rarely_and_no_node_is_deleted() {
    for fault in [Fault::throttled(30 * SECOND), Fault::status(500)] {
        let mut world = running(3).await;
        world.stop().await;
        let writes = world.kube.writes().len();
        world.kube.order(fault);
        // The instance of one node is lost while the API server fails.
        world.lose("n1");
        world.kube.put::<Node>(joining("new"));
        world.cloud.put(instance("sim://north/new").named("new").at("10.0.0.1"));
        world.start();
        tokio::time::sleep(LONG).await;
        let lists = world.kube.requests(Verb::List, "nodes");
        assert!((10..150).contains(&lists), "{lists} listings in 20 min");
        assert_eq!((world.n_deletions(), world.kube.writes().len()), (0, writes));
        assert!(world.health.readiness().is_err());
        world.kube.heal();
        eventually("the node without an instance is deleted", || !world.exists("n1")).await;
        eventually("the new node is initialised", || world.is_initialised("new")).await;
        assert_eq!(world.n_deletions(), 1, "only the node without an instance");
        world.stop().await;
    }
}

// Behaviour: P28
#[tokio::test(start_paused = true)]
async fn hanging_watch_is_restarted() {
    let mut world = machines(&["a", "b"]).await;
    world.kube.put::<Node>(joining("a"));
    world.kube.order(Fault::hang().on(Verb::Watch, "nodes").times(2));
    world.start();
    tokio::time::sleep(LONG).await;
    world.kube.put::<Node>(joining("b"));
    eventually("both nodes are initialised", || world.is_initialised("a") && world.is_initialised("b")).await;
    assert_eq!(world.kube.writes().len(), 4, "two writes per node");
    world.stop().await;
}

// Behaviour: P30
#[tokio::test(start_paused = true)]
async fn silent_adapter_is_reported_on_the_node() {
    let mut world = machines(&["a"]).await;
    world.cloud.hang(true);
    world.kube.put::<Node>(joining("a"));
    world.start();
    eventually("the Event is emitted", || world.has_event("CloudProviderUnavailable", "unavailable since"))
        .await;
    tokio::time::sleep(LONG).await;
    assert_eq!(world.kube.writes().len(), 0);
    assert!(world.kube.events().len() <= 10, "no flood: {:#?}", world.kube.events());
    world.cloud.hang(false);
    eventually("the node is initialised", || world.is_initialised("a")).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn hanging_calls_make_the_controller_unready() {
    let mut world = World::new();
    world.cloud.slow("BatchGetInstances", LONG);
    world.kube.put::<Node>(joining("a"));
    world.start();
    let silent = |why: String| why.contains("cloud adapter has not answered BatchGetInstances for");
    let reported = eventually("readiness names the call", || world.health.readiness().is_err_and(silent));
    tokio::time::timeout(90 * SECOND, reported)
        .await
        .expect("within a minute, in addition to the time until the first request");
    world.stop().await;
}
