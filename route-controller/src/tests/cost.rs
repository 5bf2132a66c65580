//! Tests the cost of each event: calls that change routes, and writes to the API server. The README has the same figures.

use controller_core::testing::service;
use k8s_openapi::api::core::v1::Service;

use super::*;

struct Row {
    name: &'static str,
    happens: fn(&World),
    /// Number of `ApplyRoutes` calls, each with up to 200 routes.
    calls: u32,
    /// Number of writes to the API server, without Events.
    writes: usize,
}

const NODES: usize = 5;

fn n0(world: &World, change: impl FnOnce(&mut Node)) {
    world.kube.change::<Node>(&ObjectName::cluster("n0"), change);
}

fn conditions(node: &mut Node) -> &mut Vec<k8s_openapi::api::core::v1::NodeCondition> {
    node.status.get_or_insert_default().conditions.get_or_insert_default()
}

fn heartbeat(world: &World, number: i64) {
    n0(world, |node| {
        conditions(node).retain(|condition| condition.type_ != "Ready");
        let heartbeat =
            serde_json::json!({ "type": "Ready", "status": "True", "reason": number.to_string() });
        conditions(node).push(serde_json::from_value(heartbeat).expect("a condition"));
    });
}

const ROWS: [Row; 16] = [
    Row { name: "no change, for 20 minutes", happens: |_| (), calls: 0, writes: 0 },
    Row {
        name: "50 heartbeats",
        happens: |world| (0..50).for_each(|number| heartbeat(world, number)),
        calls: 0,
        writes: 0,
    },
    Row {
        name: "a label and an annotation that the controller does not use",
        happens: |world| {
            n0(world, |node| {
                node.metadata.labels = Some([("team".to_owned(), "a".to_owned())].into());
                node.metadata.annotations = Some([("example.com/x".to_owned(), "1".to_owned())].into());
            });
        },
        calls: 0,
        writes: 0,
    },
    Row {
        name: "a route of another owner",
        happens: |world| world.put_route(foreign("10.244.77.0/24")),
        calls: 0,
        writes: 0,
    },
    Row {
        name: "the route is removed",
        happens: |world| world.cloud.edit(|state| drop(state.routes.remove("rt-7"))),
        calls: 0,
        writes: 0,
    },
    Row {
        name: "50 Services",
        happens: |world| (0..50).for_each(|n| world.kube.put::<Service>(service(&format!("s{n}")).port(80))),
        calls: 0,
        writes: 0,
    },
    Row {
        name: "the adapter is restarted",
        happens: |world| {
            world.cloud.away(true);
            world.cloud.away(false);
        },
        calls: 0,
        writes: 0,
    },
    Row { name: "a node joins", happens: |world| world.put(numbered(5)), calls: 1, writes: 1 },
    Row {
        name: "50 nodes join at once",
        happens: |world| (6..56).for_each(|n| world.put(numbered(n))),
        calls: 1,
        writes: 50,
    },
    Row {
        name: "a node gets another address",
        happens: |world| {
            n0(world, |node| {
                let addresses = &mut node.status.get_or_insert_default().addresses;
                addresses.get_or_insert_default().clear();
                let address = serde_json::json!({ "type": "InternalIP", "address": "192.0.2.2" });
                let address = serde_json::from_value(address).expect("an address");
                addresses.get_or_insert_default().push(address);
            });
        },
        calls: 1,
        writes: 0,
    },
    Row {
        name: "another client removes a route",
        happens: |world| {
            world.cloud.edit(|state| state.routes.retain(|_, route| route.destination != "10.244.1.0/24"));
        },
        calls: 1,
        writes: 0,
    },
    Row {
        name: "another client writes the condition",
        happens: |world| n0(world, |node| conditions(node).retain(|it| it.type_ == "Ready")),
        calls: 0,
        writes: 1,
    },
    Row { name: "a node is deleted", happens: |world| world.delete("n5"), calls: 1, writes: 0 },
    Row {
        name: "50 nodes are deleted at once, with their instances",
        happens: fifty_go,
        calls: 1,
        writes: 0,
    },
    Row {
        name: "450 nodes join at once",
        happens: |world| (0..MANY).for_each(|n| world.put(one_of_many(n))),
        calls: 3,
        writes: MANY,
    },
    Row {
        name: "450 nodes are deleted at once, with their instances",
        happens: many_go,
        calls: 3,
        writes: 0,
    },
];

/// Number of nodes that do not fit into two calls.
const MANY: usize = 450;

fn one_of_many(n: usize) -> NodeBuilder {
    ready(&format!("m{n}"), &format!("10.244.{}.{}/26", 100 + n / 4, n % 4 * 64))
}

fn fifty_go(world: &World) {
    go(world, &(6..56).map(|n| format!("n{n}")).collect::<Vec<_>>());
}

fn many_go(world: &World) {
    go(world, &(0..MANY).map(|n| format!("m{n}")).collect::<Vec<_>>());
}

/// Deletes the nodes. Their routes become black holes, as if the instances were deleted, too, so that any number of routes may be removed
/// at once.
fn go(world: &World, nodes: &[String]) {
    world.cloud.edit(|state| {
        for route in state.routes.values_mut() {
            let hop = route.next_hop.as_mut().expect("each route has a next hop");
            if hop
                .provider_id
                .strip_prefix("sim://north/")
                .is_some_and(|it| nodes.iter().any(|node| node == it))
            {
                hop.provider_id.clear();
                route.state = RouteState::Blackhole.into();
            }
        }
    });
    nodes.iter().for_each(|node| world.delete(node));
}

// Behaviour: P34
#[tokio::test(start_paused = true)]
async fn each_action_costs_what_the_readme_says() {
    let mut world = World::with_nodes(NODES).await;
    settle().await;
    for Row { name, happens, calls, writes } in ROWS {
        let before = world.spent();
        happens(&world);
        settle().await;
        let after = world.spent();
        assert_eq!((after.0 - before.0, after.1 - before.1), (calls, writes), "{name}");
    }
    let before = world.spent();
    world.stop().await;
    world.start();
    settle().await;
    world.stop().await;
    assert_eq!(world.spent(), before, "a restart");
    assert_eq!(world.kube.events(), [""; 0]);
}

/// The record is written once for all routes.
// Behaviour: P34
#[tokio::test(start_paused = true)]
async fn deleted_nodes_cost_one_more_write_without_owner_tags() {
    let mut world = World::new();
    for n in 0..60 {
        world.put(numbered(n));
        world.put_route(unmarked(&format!("r{n}"), &format!("10.244.{n}.0/24"), Some(&format!("n{n}"))));
    }
    world.start();
    eventually("the record is stored", || world.kept().len() == 60).await;
    settle().await;
    let before = world.spent();
    // While the instances exist, at most 18 of the 60 routes may be removed at once.
    (0..18).for_each(|n| world.delete(&format!("n{n}")));
    settle().await;
    assert_eq!((world.routes().len(), world.kept().len()), (42, 42));
    assert_eq!(world.spent(), (before.0 + 1, before.1 + 1));
    world.stop().await;
}

// Behaviour: P34
#[tokio::test(start_paused = true)]
async fn refused_route_is_retried_with_backoff_and_reported_once() {
    // In 20 minutes, the retries come after 1 s, 2 s, 4 s and so on up to 256 s (511 s in total), and then every 300 s. For `VendorQuota`,
    // retries come every 300 s from the beginning.
    for (reason, n_tries) in [(Reason::Internal, 12), (Reason::VendorQuota, 4)] {
        let mut world = World::with_nodes(1).await;
        let before = world.spent();
        for _ in 0..100 {
            world.cloud.fail_next("ApplyRoutes", AdapterError::new(reason, "no more calls"));
        }
        world.put(numbered(1));
        settle().await;
        assert_eq!(world.spent(), (before.0 + n_tries, before.1 + 1), "{reason:?}");
        tokio::time::sleep(Duration::from_hours(1)).await;
        assert_eq!(world.spent(), (before.0 + n_tries + 12, before.1 + 1), "{reason:?}");
        let n_events = world.kube.event_objects().iter().map(|it| it.count.unwrap_or(1)).sum::<i32>();
        assert_eq!(u32::try_from(n_events), Ok(n_tries + 12), "{reason:?}: one Event per attempt");
        world.stop().await;
    }
}
