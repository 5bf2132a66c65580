//! Tests which routes of deleted nodes are removed, and when no route is removed.

use super::*;

fn events(world: &World, reason: &str) -> Vec<String> {
    world.kube.events().into_iter().filter(|event| event.contains(reason)).collect()
}

// Behaviour: R11, W19
#[tokio::test(start_paused = true)]
async fn empty_list_of_nodes_removes_nothing_and_is_reported() {
    let mut world = World::with_nodes(3).await;
    world.stop().await;
    let before = world.spent();
    (0..3).for_each(|n| world.delete(&format!("n{n}")));
    world.start();
    settle().await;
    assert_eq!((world.routes().len(), world.spent()), (3, before));
    let held = events(&world, "RouteRemovalHeld");
    assert_eq!(held.len(), 1, "{held:?}");
    assert!(
        held[0].starts_with("Warning RouteRemovalHeld kube-system: Removal is held for 3 routes"),
        "{held:?}"
    );
    assert!(held[0].contains("--route-removal-max-share=100"), "{held:?}");

    (0..3).for_each(|n| world.put(numbered(n)));
    eventually("the nodes are served again", || world.condition("n2") == SERVED).await;
    settle().await;
    assert_eq!((world.routes().len(), world.cloud.calls("ApplyRoutes")), (3, before.0));
    world.stop().await;
}

// Behaviour: R11
#[tokio::test(start_paused = true)]
async fn list_that_lost_most_nodes_removes_nothing() {
    let mut world = World::with_nodes(10).await;
    settle().await;
    let before = world.spent();
    world.kube.away(true);
    (0..7).for_each(|n| world.delete(&format!("n{n}")));
    world.kube.compact();
    world.kube.away(false);
    settle().await;
    assert_eq!((world.routes().len(), world.spent()), (10, before));
    let held = events(&world, "RouteRemovalHeld");
    assert!(held.len() == 1 && held[0].contains("7 routes"), "{held:?}");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn operator_allows_all_removals() {
    let mut world = World::with_nodes(3).await;
    world.stop().await;
    (0..3).for_each(|n| world.delete(&format!("n{n}")));
    world.start_with(&["--route-removal-max-share=100"]);
    eventually("all routes are gone", || world.routes().is_empty()).await;
    assert_eq!(events(&world, "RouteRemovalHeld"), [""; 0]);
    world.stop().await;
}

// Behaviour: P31
#[tokio::test(start_paused = true)]
async fn route_of_a_node_deleted_during_a_stop_is_removed() {
    let mut world = World::with_nodes(4).await;
    world.stop().await;
    world.delete("n1");
    world.start();
    eventually("the route of the node is gone", || world.routes().len() == 3).await;
    settle().await;
    assert_eq!(world.spent(), (2, 4));
    world.stop().await;
}

// Behaviour: R11
#[tokio::test(start_paused = true)]
async fn routes_to_absent_instances_have_no_limit() {
    let mut world = World::with_nodes(10).await;
    world.stop().await;
    (0..8).for_each(|n| world.delete(&format!("n{n}")));
    let gone = |route: &Route| (0..8).any(|n| route.destination == format!("10.244.{n}.0/24"));
    world.cloud.edit(|state| {
        let routes = state.routes.values_mut().filter(|route| gone(route));
        routes.for_each(|route| {
            route.state = RouteState::Blackhole.into();
            route.next_hop.as_mut().expect("each route has a next hop").provider_id.clear();
        });
    });
    world.start();
    eventually("two routes are left", || world.routes().len() == 2).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn black_holes_to_existing_instances_are_held() {
    let mut world = World::with_nodes(10).await;
    world.stop().await;
    (0..8).for_each(|n| world.delete(&format!("n{n}")));
    world.cloud.edit(|state| {
        state.routes.values_mut().for_each(|route| route.state = RouteState::Blackhole.into());
    });
    world.start();
    settle().await;
    let ours = (0..8).filter(|n| world.routes().iter().any(|it| it.starts_with(&format!("10.244.{n}.0/24"))));
    assert_eq!(ours.count(), 8);
    assert_eq!(events(&world, "RouteRemovalHeld").len(), 1);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn route_is_removed_after_an_observed_deletion_of_its_node() {
    let mut world = World::with_nodes(1).await;
    world.delete("n0");
    tokio::time::sleep(Duration::from_secs(9)).await;
    assert_eq!(world.routes().len(), 1, "the node could be registered again");
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(world.routes(), [""; 0]);
    assert_eq!(world.cloud.calls("ApplyRoutes"), 2);
    world.stop().await;
}

/// The pods keep running, and need their routes.
#[tokio::test(start_paused = true)]
async fn mass_deletion_of_nodes_keeps_routes_of_existing_instances() {
    let mut world = World::with_nodes(3).await;
    let before = world.spent();
    (0..3).for_each(|n| world.delete(&format!("n{n}")));
    tokio::time::sleep(Duration::from_mins(2)).await;
    assert_eq!(
        (world.routes().len(), events(&world, "RouteRemovalHeld")),
        (3, vec![]),
        "the API server may still list them"
    );
    settle().await;
    assert_eq!((world.routes().len(), world.spent()), (3, before));
    let held = events(&world, "RouteRemovalHeld");
    assert!(held.len() == 1 && held[0].contains("nodes were deleted; the limit is 1 per"), "{held:?}");

    world.cloud.edit(|state| {
        state.routes.values_mut().for_each(|route| {
            route.state = RouteState::Blackhole.into();
            route.next_hop.as_mut().expect("each route has a next hop").provider_id.clear();
        });
    });
    eventually("they are removed with their instances", || world.routes().is_empty()).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn node_registered_again_at_once_keeps_its_route() {
    let mut world = World::with_nodes(2).await;
    let before = world.spent();
    let n0: Node = world.kube.get(&ObjectName::cluster("n0")).expect("a node");
    world.delete("n0");
    tokio::time::sleep(Duration::from_secs(5)).await;
    world.kube.put::<Node>(n0);
    settle().await;
    assert_eq!((world.routes().len(), world.spent()), (2, before));
    world.stop().await;
}

// Behaviour: R9
#[tokio::test(start_paused = true)]
async fn node_with_a_new_uid_inherits_its_route() {
    let mut world = World::with_nodes(2).await;
    let before = world.spent();
    world.delete("n0");
    tokio::time::sleep(Duration::from_secs(5)).await;
    world.put(numbered(0).uid("uid-2"));
    eventually("the node is served", || world.condition("n0") == SERVED).await;
    settle().await;
    assert_eq!(
        (world.routes().len(), world.spent()),
        (2, (before.0, before.1 + 1)),
        "its condition is written, and it has no route"
    );

    world.delete("n0");
    tokio::time::sleep(Duration::from_secs(9)).await;
    assert_eq!(world.routes().len(), 2, "the node could be registered once more");
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(world.routes(), ["10.244.1.0/24 via sim://north/n1 at 192.0.2.1"]);
    world.stop().await;
}
