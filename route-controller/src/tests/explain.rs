//! Tests that the status page of a node's routes agrees with the node's Events.

use controller_core::explain::report::{Explanation, State};

use super::*;

const SECOND: Duration = Duration::from_secs(1);

impl World {
    fn explained(&self, node: &str) -> Explanation {
        self.explain.one(node).expect("a valid key")
    }

    fn unsettled(&self) -> Vec<String> {
        self.explain.all().expect("the controller runs").objects.into_iter().map(|it| it.key).collect()
    }

    fn event_note(&self, reason: &str, node: &str) -> Option<String> {
        self.kube.event_note(reason, node)
    }
}

#[tokio::test(start_paused = true)]
async fn node_with_its_route_is_in_sync_and_shows_both_sides() {
    let world = World::with_nodes(2).await;
    settle().await;
    let seen = world.explained("n1");
    assert_eq!((seen.state, seen.known), (State::Settled, true));
    assert_eq!(seen.wanted, ["route to 10.244.1.0/24 via sim://north/n1 at 192.0.2.1"]);
    let [route] = seen.cloud.as_slice() else { panic!("{:?}", seen.cloud) };
    assert!(
        route.ends_with(" to 10.244.1.0/24 via sim://north/n1 at 192.0.2.1 ACTIVE, of this cluster"),
        "{route}"
    );
    assert!(world.unsettled().is_empty());
    assert!(!world.explained("other").known);
}

#[tokio::test(start_paused = true)]
async fn failed_route_waits_with_the_text_of_its_event() {
    let world = World::with_nodes(1).await;
    world.cloud.fail_next("ApplyRoutes", AdapterError::new(Reason::VendorQuota, "50 routes"));
    world.put(numbered(1));
    eventually("the Event is emitted", || world.event_note("FailedToCreateRoute", "n1").is_some()).await;
    tokio::time::sleep(2 * SECOND).await;
    let seen = world.explained("n1");
    assert_eq!((seen.state, seen.waits_for), (State::Waiting, world.event_note("FailedToCreateRoute", "n1")));
    assert_eq!((seen.reason.as_deref(), seen.attempts), (Some("VENDOR_QUOTA"), 1));
    assert_eq!(seen.plan, ["create 10.244.1.0/24 to n1 via sim://north/n1 at 192.0.2.1"]);
    let (since, next) = (seen.since.expect("the object waits"), seen.next_try.expect("it is retried"));
    assert!((295..=303).contains(&next.duration_since(since).as_secs()), "{since} {next}");
    assert_eq!(world.unsettled(), ["n1"]);
    eventually("the node is served", || world.condition("n1") == SERVED).await;
    settle().await;
    assert!(world.unsettled().is_empty());
}

#[tokio::test(start_paused = true)]
async fn refused_cidrs_and_waits_are_shown() {
    let mut world = World::new();
    world.marks_routes();
    world.put(ready("a", "10.244.1.0/24"));
    world.put(ready("same", "10.244.1.0/24"));
    world.put(node("new").pods("10.244.2.0/24"));
    world.start();
    eventually("the Event is emitted", || world.event_note("PodCIDRRefused", "same").is_some()).await;
    tokio::time::sleep(5 * SECOND).await;
    let seen = world.explained("same");
    assert_eq!((seen.state, seen.waits_for), (State::Waiting, world.event_note("PodCIDRRefused", "same")));
    let seen = world.explained("new");
    assert!(seen.waits_for.is_some_and(|it| it.contains("until node-controller writes")));
    assert_eq!(world.unsettled(), ["new", "same"]);
    world.delete("same");
    world.delete("new");
    settle().await;
    assert!(world.unsettled().is_empty());
}

#[tokio::test(start_paused = true)]
async fn new_node_waits_for_an_unavailable_cloud() {
    let world = World::with_nodes(1).await;
    world.cloud.away(true);
    world.put(numbered(1));
    tokio::time::sleep(5 * SECOND).await;
    assert_eq!(world.explained("n1").state, State::Waiting, "before an Event is emitted");
    eventually("the Event is emitted", || world.event_note("WaitsForCloud", "n1").is_some()).await;
    tokio::time::sleep(60 * SECOND).await;
    assert_eq!(world.explained("n1").waits_for, world.event_note("WaitsForCloud", "n1"));
    assert_eq!((world.explained("n0").state, world.unsettled()), (State::Settled, vec!["n1".to_owned()]));
    assert!(world.explain.status().expect("the controller runs").adapter.trouble.is_some());
    world.cloud.away(false);
    eventually("the node is served", || world.condition("n1") == SERVED).await;
    settle().await;
    assert!(world.unsettled().is_empty());
}

#[tokio::test(start_paused = true)]
async fn held_routes_are_reported_for_the_cluster() {
    let mut world = World::with_nodes(3).await;
    world.stop().await;
    (0..3).for_each(|n| world.delete(&format!("n{n}")));
    world.start();
    settle().await;
    let status = world.explain.status().expect("the controller runs");
    let note = world.event_note("RouteRemovalHeld", "kube-system").expect("for all of them");
    let (fault, _remedy) = note.split_once(". ").expect("the fault and the remedy");
    let held = status.held_back.first().expect("the text for all of them");
    assert!(held.starts_with(fault) && held.contains("Destinations: 10."), "{held}");
    assert_eq!((status.held_back.len(), status.unsettled), (1, 0), "none of the nodes exists");
    (0..3).for_each(|n| world.put(numbered(n)));
    settle().await;
    assert!(world.explain.status().expect("the controller runs").held_back.is_empty());
}
