//! Tests the deletion brake with the whole controller.

use std::time::Duration;

use controller_core::{
    mirror::ObjectName,
    node::TO_BE_DELETED,
    testing::{Fault, Verb, eventually, instance},
};
use k8s_openapi::api::core::v1::{Node, Taint};
use tokio::time::sleep;

use super::world::{World, id, known, running};

// Behaviour: ND12, W3
#[tokio::test(start_paused = true)]
async fn brake_holds_all_nodes_and_reports_each_once() {
    let world = running(10).await;
    for n in 0..4 {
        world.lose(&format!("n{n}"));
    }
    sleep(Duration::from_hours(5)).await;
    assert_eq!(world.n_deletions(), 0);
    for n in 0..4 {
        let words = format!("kubectl annotate node n{n} cloudadapter.dev/delete-despite-brake=uid-n{n}");
        assert!(world.has_event("DeletionHeld", &words), "{:?}", world.kube.events());
    }
    let whole = world.kube.events().into_iter().find(|event| event.contains("NodeDeletionBrakeTripped"));
    let whole = whole.expect("one Event for all nodes");
    assert!(whole.contains("4 of 10") && whole.contains("the limit is 3 per 10m"), "{whole}");
    let objects = world.kube.event_objects();
    let whole = objects.iter().find(|event| event.reason.as_deref() == Some("NodeDeletionBrakeTripped"));
    let about = whole.map(|event| &event.involved_object).expect("the Event has an object");
    let about = (about.kind.as_deref(), about.name.as_deref(), about.uid.as_deref());
    assert_eq!(about, (Some("Namespace"), Some("kube-system"), Some("cluster-uid")), "without an election");
    let held = |event: &&String| event.contains(" DeletionHeld n1: ");
    let events = world.kube.events();
    let n_events = events.iter().filter(held).count();
    assert!((5..=6).contains(&n_events), "each hour: {n_events}");

    // One of the four nodes is ready again, and the brake allows the deletion of three nodes.
    world.set_ready("n0", "True");
    eventually("the other nodes are deleted", || world.n_deletions() == 3).await;
}

/// The cloud reports four nodes as gone, and then returns an error for one of them.
// Behaviour: ND12
#[tokio::test(start_paused = true)]
async fn tripped_brake_is_released_only_by_signs_of_life() {
    for trouble in
        ["an error", "not visible", "the adapter is unavailable for a while", "ready", "listed", "exists"]
    {
        let world = running(10).await;
        for n in 0..4 {
            world.lose(&format!("n{n}"));
        }
        eventually("the nodes are held", || world.has_event("DeletionHeld", "")).await;
        match trouble {
            "not visible" => {
                world.cloud.edit(|state| state.gone.remove(&id("n0")));
            }
            "the adapter is unavailable for a while" => {
                world.cloud.edit(|state| state.failing.insert(id("n0")));
                world.cloud.away(true);
                sleep(Duration::from_mins(1)).await;
                world.cloud.away(false);
            }
            "exists" => world.put_unlisted(&id("n0"), "n0"),
            _ => {
                world.cloud.edit(|state| state.failing.insert(id("n0")));
            }
        }
        if trouble != "exists" {
            // The controller renews each proof of absence every five minutes.
            sleep(Duration::from_mins(20)).await;
            assert_eq!(world.n_deletions(), 0, "{trouble}");
        }
        match trouble {
            "exists" => {}
            "listed" => world.cloud.put(instance(&id("n0")).named("n0")),
            _ => world.set_ready("n0", "True"),
        }
        eventually("the number of the other nodes is allowed", || world.n_deletions() == 3).await;
        assert!(world.exists("n0"), "{trouble}");
    }
}

#[tokio::test(start_paused = true)]
async fn node_deleted_by_a_user_is_not_held() {
    let world = running(10).await;
    for n in 0..4 {
        world.lose(&format!("n{n}"));
    }
    eventually("the nodes are held", || world.has_event("DeletionHeld", "")).await;
    world.cloud.edit(|state| state.failing.insert(id("n0")));
    sleep(Duration::from_mins(20)).await;
    assert_eq!(world.n_deletions(), 0);
    world.kube.delete::<Node>(&ObjectName::cluster("n0"));
    eventually("three deletions are allowed", || world.n_deletions() == 3).await;
}

// Behaviour: ND12
#[tokio::test(start_paused = true)]
async fn all_held_nodes_are_reported_in_several_passes() {
    let mut world = World::new();
    let n_nodes = 1500;
    for n in 0..n_nodes {
        let name = format!("n{n}");
        world.cloud.edit(|state| state.gone.insert(id(&name)));
        world.kube.put::<Node>(known(&name).ready("Unknown"));
    }
    world.start();
    sleep(Duration::from_mins(1)).await;
    assert!(world.has_event("NodeDeletionBrakeTripped", "1500 of 1500"));
    sleep(Duration::from_mins(4)).await;
    let n_events = world.kube.events().iter().filter(|event| event.contains(" DeletionHeld ")).count();
    assert_eq!(n_events, n_nodes, "each of them is deleted once");
}

// Behaviour: ND12
#[tokio::test(start_paused = true)]
async fn only_released_nodes_are_deleted() {
    let world = running(10).await;
    for n in 0..5 {
        world.lose(&format!("n{n}"));
    }
    eventually("the nodes are held", || world.has_event("DeletionHeld", "")).await;
    world.let_go("n0", "uid-n0");
    world.let_go("n1", "uid-somebody-else");
    eventually("the node is deleted", || !world.exists("n0")).await;
    sleep(Duration::from_mins(5)).await;
    assert_eq!(world.n_deletions(), 1, "four nodes are still too many");
    world.let_go("n1", "uid-n1");
    eventually("the last three are allowed", || world.n_deletions() == 5).await;
}

#[tokio::test(start_paused = true)]
async fn release_is_not_a_proof_of_absence() {
    let world = running(10).await;
    world.cloud.edit(|state| drop(state.instances.remove(&id("n1"))));
    world.set_ready("n1", "Unknown");
    world.let_go("n1", "uid-n1");
    sleep(Duration::from_hours(1)).await;
    assert!(world.exists("n1"));
}

#[tokio::test(start_paused = true)]
async fn one_of_three_nodes_is_deleted_per_window() {
    let world = running(3).await;
    world.lose("n0");
    eventually("one node is deleted", || !world.exists("n0")).await;
    world.lose("n1");
    sleep(Duration::from_mins(8)).await;
    assert!(world.exists("n1"));
    assert!(world.has_event("DeletionHeld", "n1: "), "{:?}", world.kube.events());
    sleep(Duration::from_mins(3)).await;
    assert!(!world.exists("n1"), "the next window");
}

// Behaviour: ND12
#[tokio::test(start_paused = true)]
async fn repeated_restarts_do_not_raise_the_limit() {
    let mut world = running(10).await;
    world.lose("n0");
    world.lose("n1");
    for _ in 0..10 {
        world.stop().await;
        world.start();
        sleep(Duration::from_mins(2)).await;
    }
    assert!(
        world.exists("n0") && world.exists("n1"),
        "3 of 10 are allowed in 10 minutes, and the second after 3:20"
    );
    assert!(
        world.has_event("DeletionDelayed", "n0: Deletion waits up to 10m after controller start."),
        "{:?}",
        world.kube.events()
    );
    assert!(!world.has_event("DeletionHeld", ""), "{:?}", world.kube.events());
    sleep(Duration::from_secs(100)).await;
    assert!(!world.exists("n0") && !world.exists("n1"));
}

#[tokio::test(start_paused = true)]
async fn restart_does_not_release_the_brake() {
    let mut world = running(10).await;
    for n in 0..5 {
        world.lose(&format!("n{n}"));
    }
    eventually("the nodes are held", || world.has_event("DeletionHeld", "")).await;
    world.stop().await;
    world.start();
    let before = world.kube.events().len();
    sleep(Duration::from_mins(50)).await;
    assert_eq!(world.n_deletions(), 0);
    assert!(world.kube.events().len() > before, "reported again");
}

#[tokio::test(start_paused = true)]
async fn many_absent_nodes_share_calls() {
    let mut world = World::new();
    for n in 0..600 {
        let name = format!("n{n}");
        world.cloud.edit(|state| state.gone.insert(id(&name)));
        world.kube.put::<Node>(known(&name).ready("Unknown"));
    }
    world.start();
    sleep(Duration::from_mins(2)).await;
    assert!(world.has_event("NodeDeletionBrakeTripped", "600 of 600"));
    assert_eq!(world.cloud.calls("BatchGetInstances"), 4, "two batches, twice");
}

// Behaviour: ND12
#[tokio::test(start_paused = true)]
async fn unanswered_deletion_counts_once() {
    let world = running(10).await;
    world.kube.order(Fault::hang().on(Verb::Delete, "nodes").of("n0"));
    world.lose("n0");
    sleep(Duration::from_mins(5)).await;
    assert!(world.n_deletions() > 5, "{} tries", world.n_deletions());
    world.lose("n1");
    world.lose("n2");
    eventually("three of ten are allowed", || !world.exists("n1") && !world.exists("n2")).await;
    assert!(!world.has_event("DeletionHeld", ""), "{:?}", world.kube.events());
    world.kube.heal();
    eventually("the node is deleted, too", || !world.exists("n0")).await;
}

// Behaviour: ND13
#[tokio::test(start_paused = true)]
async fn nodes_that_the_autoscaler_removes_do_not_trip_the_brake() {
    let world = running(10).await;
    let announced =
        Taint { key: TO_BE_DELETED.to_owned(), effect: "NoSchedule".to_owned(), ..Taint::default() };
    for n in 0..6 {
        let name = format!("n{n}");
        world.kube.change::<Node>(&ObjectName::cluster(&name), |node| {
            node.spec.get_or_insert_default().taints = Some(vec![announced.clone()]);
        });
        world.lose(&name);
    }
    eventually("all of them are deleted", || (0..6).all(|n| !world.exists(&format!("n{n}")))).await;
    assert!(!world.has_event("DeletionHeld", ""), "{:?}", world.kube.events());
    assert!((6..10).all(|n| world.exists(&format!("n{n}"))));
}
