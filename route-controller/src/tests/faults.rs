//! Tests an API server that is slow, throttles, fails, hangs or loses state, objects without expected fields, and a partly upgraded
//! adapter. No update is lost, no needed route is removed, and no request is repeated in a tight loop.

use std::collections::BTreeSet;

use cloud_api_proto::v1alpha1::GetInfoResponse;
use controller_core::testing::{Fault, Verb};

use super::*;

const SECOND: Duration = Duration::from_secs(1);

// Behaviour: P32
#[tokio::test(start_paused = true)]
async fn repeated_conflicts_are_retried() {
    let mut world = World::new();
    world.kube.order(Fault::status(409).on(Verb::Patch, "nodes/status").times(20));
    world.put(ready("a", "10.244.1.0/24"));
    world.start();
    eventually("the condition is written", || world.condition("a") == SERVED).await;
    settle().await;
    assert_eq!(world.spent(), (1, 21));
    world.stop().await;
}

// Behaviour: R16
#[tokio::test(start_paused = true)]
async fn condition_is_not_written_to_a_recreated_node() {
    let mut world = World::new();
    world.put(ready("a", "10.244.1.0/24"));
    world.kube.before_next_write(|kube| kube.put::<Node>(node("a").uid("another")));
    world.start();
    eventually("the attempt is made", || !world.kube.writes().is_empty()).await;
    settle().await;
    assert_eq!(world.condition("a"), "");
    assert_eq!(world.kube.writes().len(), 1);
    world.stop().await;
}

// Behaviour: W5
#[tokio::test(start_paused = true)]
async fn hanging_write_does_not_block_other_nodes() {
    let mut world = World::new();
    world.kube.order(Fault::hang().on(Verb::Patch, "nodes/status").of("a"));
    world.put(ready("a", "10.244.1.0/24"));
    world.put(ready("b", "10.244.2.0/24"));
    world.start();
    tokio::time::timeout(5 * SECOND, eventually("b's condition", || world.condition("b") == SERVED))
        .await
        .expect("long before the write to a times out");
    settle().await;
    world.put(ready("c", "10.244.3.0/24"));
    eventually("the condition of c, which joined later, is written", || world.condition("c") == SERVED).await;
    assert_eq!(world.condition("a"), "");
    world.kube.heal();
    eventually("a's condition", || world.condition("a") == SERVED).await;
    world.stop().await;
}

// Behaviour: R16
#[tokio::test(start_paused = true)]
async fn refused_conditions_stop_no_route() {
    let mut world = World::new();
    world.kube.order(Fault::hang().on(Verb::Patch, "nodes/status"));
    for n in 0..400 {
        world.put(ready(&format!("n{n}"), &format!("10.244.{}.{}/26", n / 4, n % 4 * 64)));
    }
    world.start();
    eventually("all routes are created", || world.routes().len() == 400).await;
    for minute in 0..10 {
        world.put(ready(&format!("late{minute}"), &format!("10.244.{}.0/24", 200 + minute)));
        tokio::time::sleep(60 * SECOND).await;
        assert_eq!(world.health.liveness(), Ok(()));
        assert_eq!(world.routes().len(), 401 + minute, "within a minute");
    }
    world.kube.heal();
    eventually("the last node's condition is written", || world.condition("n399") == SERVED).await;
    world.stop().await;
}

/// The failure of an API server says nothing about the cloud.
// Behaviour: R19
#[tokio::test(start_paused = true)]
async fn refused_conditions_do_not_prolong_an_outage() {
    let mut world = World::with_nodes(1).await;
    world.kube.order(Fault::status(403).on(Verb::Patch, "nodes/status"));
    let is_reported = |world: &World, name: &str| {
        let start = format!("WaitsForCloud {name}: ");
        world.kube.events().iter().any(|event| event.contains(&start))
    };
    world.cloud.away(true);
    world.put(numbered(1));
    eventually("the object waits", || is_reported(&world, "n1")).await;
    world.cloud.away(false);
    eventually("the node is served", || world.routes().len() == 2).await;
    settle().await;
    world.cloud.away(true);
    world.put(numbered(2));
    tokio::time::sleep(5 * SECOND).await;
    world.cloud.away(false);
    eventually("the node is served", || world.routes().len() == 3).await;
    assert!(!is_reported(&world, "n2"), "{:?}", world.kube.events());
    world.stop().await;
}

// Behaviour: R16
#[tokio::test(start_paused = true)]
async fn condition_behind_hanging_writes_is_written_in_the_next_pass() {
    let mut world = World::new();
    for n in 0..16 {
        let name = format!("a{n}");
        world.kube.order(Fault::hang().on(Verb::Patch, "nodes/status").of(&name));
        world.put(ready(&name, &format!("10.244.{n}.0/24")));
    }
    world.put(ready("z", "10.244.99.0/24"));
    world.start();
    tokio::time::timeout(60 * SECOND, eventually("z's condition", || world.condition("z") == SERVED))
        .await
        .expect("each hanging write was attempted");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn slow_api_server_causes_no_duplicate_action() {
    for (seconds, name) in
        [(5, "slow"), (20, "the answer is too slow, so the controller does not wait for it")]
    {
        let mut world = World::new();
        world.kube.order(Fault::slow(seconds * SECOND));
        world.put(ready("a", "10.244.1.0/24"));
        world.start();
        eventually("the condition is written", || world.condition("a") == SERVED).await;
        settle().await;
        assert_eq!(world.spent(), (1, 1), "{name}");
        world.stop().await;
    }
}

// Behaviour: P28
#[tokio::test(start_paused = true)]
async fn failing_api_server_is_called_rarely_and_nothing_is_deleted() {
    for fault in [Fault::throttled(30 * SECOND), Fault::status(500)] {
        let mut world = World::with_nodes(3).await;
        world.stop().await;
        let before = world.spent();
        world.kube.order(fault);
        world.start();
        settle().await;
        let lists = world.kube.requests(Verb::List, "nodes");
        assert!((10..150).contains(&lists), "{lists} listings in 20 min");
        assert_eq!((world.routes().len(), world.spent()), (3, before));
        assert!(world.health.readiness().is_err());
        world.kube.heal();
        eventually("it is ready", || world.health.readiness().is_ok()).await;
        settle().await;
        assert_eq!((world.routes().len(), world.spent()), (3, before));
        world.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn one_watch_is_enough() {
    let mut world = World::with_nodes(3).await;
    assert_eq!((world.kube.requests(Verb::Watch, "nodes"), world.kube.unmarked_watches()), (1, 0));
    world.stop().await;
}

// Behaviour: P28
#[tokio::test(start_paused = true)]
async fn expired_watch_costs_one_listing() {
    let mut world = World::with_nodes(3).await;
    let before = world.spent();
    world.kube.compact();
    world.delete("n0");
    world.put(numbered(3));
    eventually("the new node is served", || world.condition("n3") == SERVED).await;
    settle().await;
    assert_eq!(world.routes().len(), 3, "one route is created, one removed");
    assert_eq!(world.cloud.calls("ApplyRoutes"), before.0 + 2);
    world.stop().await;
}

// Behaviour: P28
#[tokio::test(start_paused = true)]
async fn hanging_watch_is_restarted() {
    let mut world = World::with_nodes(1).await;
    world.stop().await;
    world.kube.order(Fault::hang().on(Verb::Watch, "nodes").times(2));
    world.start();
    settle().await;
    world.put(numbered(1));
    eventually("the new node is served", || world.condition("n1") == SERVED).await;
    world.stop().await;
}

// Behaviour: P33
#[tokio::test(start_paused = true)]
async fn objects_without_expected_fields_are_harmless() {
    let mut world = World::new();
    let bare = |name: &str| {
        let mut node = Node::default();
        node.metadata.name = Some(name.to_owned());
        node
    };
    let read = |name: &str, rest: serde_json::Value| {
        let mut node: Node = serde_json::from_value(rest).expect("a node");
        node.metadata.name = Some(name.to_owned());
        node
    };
    world.kube.put::<Node>(bare("bare"));
    world.kube.put::<Node>(read("empty", serde_json::json!({ "metadata": {}, "spec": {}, "status": {} })));
    let spec = serde_json::json!({ "providerID": "sim://north/x", "podCIDRs": [] });
    world.kube.put::<Node>(read("x", serde_json::json!({ "metadata": {}, "spec": spec })));
    let strange =
        serde_json::json!({ "conditions": [{ "type": "NetworkUnavailable", "status": "Perhaps" }] });
    let spec = serde_json::json!({ "providerID": "sim://north/y", "podCIDRs": ["10.244.9.0/24"] });
    world.kube.put::<Node>(read("y", serde_json::json!({ "metadata": {}, "spec": spec, "status": strange })));
    world.put(ready("a", "10.244.1.0/24"));
    world.start();
    eventually("the complete nodes are served", || {
        world.condition("a") == SERVED && world.condition("y") == SERVED
    })
    .await;
    settle().await;
    assert_eq!(world.kube.writes().len(), 2);
    assert_eq!(world.kube.events(), [""; 0]);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn routes_with_unknown_values_are_left_alone() {
    let mut world = World::with_nodes(1).await;
    let before = world.spent();
    world.put_route(Route { owner: 99, ..foreign("10.244.8.0/24") });
    world.put_route(Route { owner: 99, state: 99, vendor_id: "rt-8".to_owned(), ..foreign("10.244.9.0/24") });
    world.cloud.edit(|state| {
        state
            .routes
            .values_mut()
            .filter(|route| route.vendor_id.starts_with("route-"))
            .for_each(|it| it.state = 99);
    });
    settle().await;
    assert_eq!((world.routes().len(), world.spent(), world.condition("n0")), (3, before, SERVED.to_owned()));
    world.stop().await;
}

// Behaviour: R15
#[tokio::test(start_paused = true)]
async fn adapter_without_routes_is_unready_and_emits_no_event() {
    for (name, info) in [
        ("no capability", GetInfoResponse::default()),
        ("an unknown level", {
            let routes = Capability { name: "routes".to_owned(), level: 99, ..Capability::default() };
            GetInfoResponse { capabilities: vec![routes], ..GetInfoResponse::default() }
        }),
    ] {
        let mut world = World::new();
        let routes = world.cloud.edit(|state| std::mem::replace(&mut state.info, info));
        world.put(ready("a", "10.244.1.0/24"));
        world.start();
        settle().await;
        let missing = world.health.readiness().expect_err(name);
        assert!(missing.contains("does not support routes (no capability `routes`)"), "{name}: {missing}");
        assert_eq!((world.spent(), world.kube.events().len()), ((0, 0), 0), "{name}");

        world.cloud.edit(|state| state.info = routes);
        eventually("the controller uses an adapter that has routes", || world.condition("a") == SERVED).await;
        assert_eq!(world.health.readiness(), Ok(()), "{name}");
        world.stop().await;
    }
}

// Behaviour: R15
#[tokio::test(start_paused = true)]
async fn adapter_that_loses_its_routes_removes_none() {
    let mut world = World::with_nodes(2).await;
    let before = world.spent();
    world.cloud.away(true);
    let routes = world.cloud.edit(|state| std::mem::take(&mut state.info));
    world.cloud.away(false);
    eventually("the controller is not ready", || {
        world.health.readiness().is_err_and(|it| it.contains("capability"))
    })
    .await;
    world.delete("n0");
    settle().await;
    assert_eq!((world.routes().len(), world.spent()), (2, before));
    world.cloud.edit(|state| state.info = routes);
    eventually("the node's route is gone", || world.routes().len() == 1).await;
    world.stop().await;
}

// Behaviour: P29
#[tokio::test(start_paused = true)]
async fn partly_upgraded_adapter_is_waited_for() {
    for rpc in ["WatchRoutes", "ApplyRoutes"] {
        let mut world = World::new();
        world.cloud.without(rpc);
        world.put(ready("a", "10.244.1.0/24"));
        world.start();
        settle().await;
        assert_eq!((world.routes().len(), world.condition("a").as_str()), (0, ""), "{rpc}");
        assert!(world.cloud.calls(rpc) < 200, "{rpc}: {} calls in 20 min", world.cloud.calls(rpc));
        world.cloud.with(rpc);
        eventually("the node is served", || world.condition("a") == SERVED).await;
        world.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn unknown_capabilities_do_not_imply_missing_owner_tags() {
    let mut world = World::new();
    world.cloud.without("GetInfo");
    world.put(ready("a", "10.244.1.0/24"));
    world.put(ready("b", "10.244.2.0/24"));
    world.put_route(unmarked("one", "10.244.2.0/24", Some("b")));
    world.start();
    eventually("both nodes are served", || world.condition("a") == SERVED && world.condition("b") == SERVED)
        .await;
    world.delete("b");
    settle().await;
    assert_eq!((world.routes().len(), world.kept().len()), (2, 0), "the owner is unknown");
    world.stop().await;
}

// Behaviour: R13
#[tokio::test(start_paused = true)]
async fn temporarily_unknown_capabilities_keep_the_record() {
    let mut world = World::new();
    world.put(ready("a", "10.244.1.0/24"));
    world.put(ready("b", "10.244.2.0/24"));
    world.put_route(unmarked("one", "10.244.1.0/24", Some("a")));
    world.put_route(unmarked("two", "10.244.2.0/24", Some("b")));
    world.start();
    eventually("the record is stored", || world.kept().len() == 2).await;
    world.cloud.without("GetInfo");
    settle().await;
    assert_eq!(world.kept(), ["one uid-a", "two uid-b"]);
    world.delete("a");
    world.cloud.edit(|state| drop(state.routes.remove("two")));
    settle().await;
    assert!(world.cloud.read(|state| state.routes.contains_key("one")), "the owner is unknown");
    assert_eq!(world.kept(), ["one uid-a"], "the entry of a deleted route is dropped all the same");

    world.cloud.with("GetInfo");
    eventually("the route is removed with its node", || {
        !world.cloud.read(|state| state.routes.contains_key("one"))
    })
    .await;
    world.stop().await;
}

// Behaviour: P30
#[tokio::test(start_paused = true)]
async fn silent_or_forbidden_adapter_is_reported_on_the_node() {
    for (name, hangs) in [("says nothing", true), ("forbids it", false)] {
        let mut world = World::with_nodes(2).await;
        world.put(numbered(2));
        for _ in 0..400 {
            let refusal = AdapterError::new(Reason::CallerForbidden, "you may not");
            world.cloud.fail_next("ApplyRoutes", refusal);
        }
        world.cloud.hang(hangs);
        world.delete("n0");
        settle().await;
        assert_eq!(world.routes().len(), 2, "{name}");
        let notes: Vec<String> =
            world.kube.events().into_iter().filter(|event| event.contains("WaitsForCloud n2: ")).collect();
        let texts: BTreeSet<&String> = notes.iter().collect();
        assert!(
            (1..=3).contains(&notes.len()) && texts.len() == notes.len(),
            "{name}: each condition once: {notes:?}"
        );
        assert_eq!(world.condition("n2"), "", "{name}");
        assert!(world.cloud.calls("ApplyRoutes") < 200, "{name}: {}", world.cloud.calls("ApplyRoutes"));

        world.cloud.hang(false);
        world.cloud.edit(|state| state.errors.clear());
        eventually("the node is served", || world.condition("n2") == SERVED).await;
        eventually("the route of the other node is gone", || world.routes().len() == 2).await;
        world.stop().await;
    }
}
