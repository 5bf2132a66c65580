//! Tests the condition `NetworkUnavailable` if another client writes it and nothing else changes.

use k8s_openapi::api::core::v1::NodeCondition;
use tokio::time::{Instant, sleep};

use super::*;

/// Writes the condition as a network plugin does when it starts.
fn says(world: &World, name: &str, status: &str, reason: &str) {
    world.kube.change::<Node>(&ObjectName::cluster(name), |node| {
        let conditions = node.status.get_or_insert_default().conditions.get_or_insert_default();
        conditions.retain(|condition| condition.type_ != "NetworkUnavailable");
        conditions.push(NodeCondition {
            type_: "NetworkUnavailable".to_owned(),
            status: status.to_owned(),
            reason: Some(reason.to_owned()),
            ..NodeCondition::default()
        });
    });
}

// Behaviour: R16
#[tokio::test(start_paused = true)]
async fn foreign_condition_is_overwritten_once_within_10_s() {
    for (status, reason) in [("False", "CalicoIsUp"), ("True", "NoRouteCreated")] {
        let mut world = World::with_nodes(2).await;
        settle().await;
        // The time of the write differs from the time of the periodic pass.
        sleep(Duration::from_secs(7)).await;
        let before = world.spent();
        says(&world, "n0", status, reason);
        sleep(Duration::from_secs(9)).await;
        assert_eq!(world.condition("n0"), format!("{status} {reason}"), "the delay is not over");
        sleep(Duration::from_secs(2)).await;
        assert_eq!(world.condition("n0"), SERVED, "after {reason}");
        settle().await;
        assert_eq!(world.spent(), (before.0, before.1 + 1), "after {reason}");
        world.stop().await;
    }
}

// Behaviour: R16
#[tokio::test(start_paused = true)]
async fn repeated_foreign_condition_costs_one_write_in_10_s() {
    let mut world = World::with_nodes(1).await;
    settle().await;
    let (before, began) = (world.spent(), Instant::now());
    for _ in 0..12 {
        says(&world, "n0", "False", "CalicoIsUp");
        eventually("the controller's own value", || world.condition("n0") == SERVED).await;
    }
    let n_writes = world.spent().1 - before.1;
    assert_eq!(n_writes, 12);
    assert!(began.elapsed() > Duration::from_secs(100), "{:?}", began.elapsed());
    world.stop().await;
}

/// The controller had no conclusion about the node yet, so the write triggered no pass.
// Behaviour: R16
#[tokio::test(start_paused = true)]
async fn foreign_condition_during_the_first_pass_is_overwritten() {
    let mut world = World::with_nodes(1).await;
    world.stop().await;
    let before = world.spent();
    world.put(numbered(1));
    world.cloud.slow("ApplyRoutes", Duration::from_secs(5));
    // No change in the cloud triggers another pass soon.
    world.cloud.fail_next(
        "ApplyRoutes",
        AdapterError::new(Reason::OwnedByOther, "another client wrote the condition"),
    );
    world.start();
    sleep(Duration::from_secs(3)).await;
    assert_eq!(world.spent(), before, "the pass is in progress");
    says(&world, "n0", "False", "CalicoIsUp");
    sleep(Duration::from_secs(4)).await;
    assert_eq!(
        (world.condition("n0").as_str(), world.condition("n1").as_str()),
        (SERVED, "True NoRouteCreated")
    );
    assert_eq!(world.spent(), (before.0 + 1, before.1 + 2));
    world.stop().await;
}

/// The cluster moved to another provider, and the former provider's nodes still exist.
// Behaviour: R2
#[tokio::test(start_paused = true)]
async fn node_of_another_cloud_gets_no_route_and_no_condition() {
    let mut world = World::new();
    world.marks_routes();
    world.cloud.edit(|state| state.info.provider = "sim".to_owned());
    world.put(node("old").provider_id("aws:///z/i-1").pods("10.244.9.0/24").at("192.0.2.9"));
    world.put(node("odd").provider_id("aws:///z/i-2").pods("10.244.x").at("192.0.2.8"));
    says(&world, "old", "False", "RouteCreated");
    world.put(numbered(0));
    world.start();
    eventually("the condition of this cloud's node", || world.condition("n0") == SERVED).await;
    settle().await;
    assert_eq!(world.routes(), ["10.244.0.0/24 via sim://north/n0 at 192.0.2.1"]);
    assert_eq!((world.condition("old"), world.condition("odd")), (SERVED.to_owned(), String::new()));
    assert_eq!(world.spent(), (1, 1), "for this cloud's node");
    assert!(world.kube.events().is_empty(), "{:?}", world.kube.events());
    world.stop().await;
}

/// The other project has a cluster with the same pod CIDRs, whose routes would conflict.
#[tokio::test(start_paused = true)]
async fn adapter_in_another_project_changes_no_condition() {
    let mut world = World::with_nodes(2).await;
    let ours = world.cloud.edit(|state| {
        let theirs =
            (0..3).map(|n| Route { vendor_id: format!("rt-{n}"), ..foreign(&format!("10.244.{n}.0/24")) });
        std::mem::replace(&mut state.routes, theirs.map(|route| (route.vendor_id.clone(), route)).collect())
    });
    world.cloud.moves_to("other");
    world.put(numbered(2));
    settle().await;
    let conditions: Vec<String> = (0..3).map(|n| world.condition(&format!("n{n}"))).collect();
    assert_eq!(conditions, [SERVED, SERVED, ""]);
    let events = world.kube.events();
    assert!(!events.iter().any(|event| event.contains("FailedToCreateRoute")), "{events:?}");
    assert!(
        events
            .iter()
            .any(|event| event.contains("WaitsForCloud n2") && event.contains("now uses project other,")),
        "{events:?}"
    );

    world.cloud.edit(|state| state.routes = ours);
    world.cloud.moves_to("fake");
    eventually("the new node is served", || world.condition("n2") == SERVED).await;
    assert_eq!(world.routes().len(), 3);
    world.stop().await;
}
