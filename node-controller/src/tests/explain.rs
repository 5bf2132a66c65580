//! Tests that the status page of a node agrees with the node's Events.

use std::time::Duration;

use cloud_api_proto::{AdapterError, Reason};
use controller_core::{
    explain::report::{Explanation, State},
    mirror::ObjectName,
    testing::{Fault, Verb, eventually, instance, node},
};
use k8s_openapi::api::core::v1::Node;
use tokio::time::sleep;

use super::world::{World, id, running, settle};

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
async fn node_without_an_instance_waits_with_the_text_of_its_event() {
    let mut world = World::new();
    world.kube.put::<Node>(node("a").uninitialised());
    world.start();
    eventually("the Event is emitted", || world.event_note("InstanceNotVisible", "a").is_some()).await;
    sleep(Duration::from_mins(30)).await;
    let seen = world.explained("a");
    assert_eq!((seen.state, seen.waits_for), (State::Waiting, world.event_note("InstanceNotVisible", "a")));
    assert_eq!((seen.wanted.join(""), seen.cloud.len()), ("an instance named a".to_owned(), 0));
    assert!(seen.attempts > 3 && seen.next_try.is_some(), "{} {:?}", seen.attempts, seen.next_try);
    assert_eq!(world.unsettled(), ["a"]);
    world.cloud.put(instance("sim://north/i-1").named("a").at("10.0.0.1"));
    eventually("the node is initialised", || world.is_initialised("a")).await;
    settle().await;
    let seen = world.explained("a");
    assert_eq!((seen.state, world.unsettled().len()), (State::Settled, 0));
    assert!(seen.wanted[0].contains("sim://north/i-1"), "{:?}", seen.wanted);
    assert_eq!(seen.cloud, ["sim://north/i-1 a there"]);
}

#[tokio::test(start_paused = true)]
async fn node_without_provider_id_and_taint_is_not_looked_up() {
    let mut world = World::new();
    world.kube.put::<Node>(node("a"));
    world.start();
    settle().await;
    let seen = world.explained("a");
    assert_eq!((seen.state, seen.cloud.len(), world.unsettled().len()), (State::NotOurs, 0, 0));
    assert!(seen.wanted[0].ends_with("and the cloud lists no instance named a"), "{:?}", seen.wanted);
}

#[tokio::test(start_paused = true)]
async fn error_of_the_adapter_is_shown_with_its_reason() {
    let mut world = World::new();
    (0..100).for_each(|_| {
        world.cloud.fail_next("BatchGetInstances", AdapterError::new(Reason::VendorAuth, "token expired"));
    });
    world.kube.put::<Node>(node("a").uninitialised());
    world.start();
    eventually("the Event is emitted", || world.event_note("CloudProviderFailed", "a").is_some()).await;
    let seen = world.explained("a");
    assert_eq!(seen.waits_for, world.event_note("CloudProviderFailed", "a"));
    assert_eq!(seen.reason.as_deref(), Some("VENDOR_AUTH"));
}

#[tokio::test(start_paused = true)]
async fn refused_writes_are_explained_and_absent_nodes_forgotten() {
    let mut world = World::new();
    world.kube.order(Fault::status(403).on(Verb::Patch, "nodes/status"));
    for name in ["a", "b"] {
        world.cloud.put(instance(&id(name)).named(name).at("10.0.0.1"));
        world.kube.put::<Node>(node(name).uninitialised());
    }
    world.start();
    eventually("the Event is emitted", || world.event_note("SyncFailed", "a").is_some()).await;
    settle().await;
    let seen = world.explained("a");
    assert_eq!((seen.state, seen.waits_for), (State::Waiting, world.event_note("SyncFailed", "a")));
    assert!(seen.plan.iter().any(|line| line.starts_with("addresses ")), "{:?}", seen.plan);
    world.kube.delete::<Node>(&ObjectName::cluster("b"));
    settle().await;
    assert_eq!((world.unsettled(), world.explained("b").known), (vec!["a".to_owned()], false));
    world.kube.put::<Node>(node("a").uid("uid-2").uninitialised());
    settle().await;
    assert_eq!(world.unsettled(), ["a"], "only the new node");
    world.kube.heal();
    eventually("the node is initialised", || world.is_initialised("a")).await;
    settle().await;
    assert!(world.unsettled().is_empty());
}

#[tokio::test(start_paused = true)]
async fn tripped_brake_is_shown_for_each_node_and_as_a_whole() {
    let world = running(10).await;
    assert_eq!(
        world.explain.status().expect("the controller runs").unsettled,
        0,
        "nothing is kept of nodes in sync"
    );
    for n in 0..4 {
        world.lose(&format!("n{n}"));
    }
    sleep(Duration::from_secs(7)).await;
    assert!(
        world.explained("n0").plan.iter().any(|line| line.starts_with("ask the cloud ")),
        "not proven yet"
    );
    eventually("the nodes are held", || world.event_note("DeletionHeld", "n3").is_some()).await;
    settle().await;
    for n in 0..4 {
        let seen = world.explained(&format!("n{n}"));
        let command = format!("kubectl annotate node n{n} cloudadapter.dev/delete-despite-brake=uid-n{n}");
        let ends = |text: Option<String>| text.is_some_and(|text| text.ends_with(&command));
        assert!(ends(world.event_note("DeletionHeld", &format!("n{n}"))), "{:?}", world.kube.events());
        let whole =
            seen.waits_for.as_ref().is_some_and(|text| text.contains("credentials, project and region"));
        assert!(seen.state == State::Waiting && whole && ends(seen.waits_for.clone()), "{seen:?}");
    }
    let status = world.explain.status().expect("the controller runs");
    let whole = status.held_back.first().is_some_and(|text| text.contains("(n0, n1, n2, n3)"));
    assert!((status.unsettled, status.held_back.len()) == (4, 1) && whole, "{:?}", status.held_back);
    world.set_ready("n0", "True");
    eventually("the other nodes are deleted", || world.n_deletions() == 3).await;
    settle().await;
    let status = world.explain.status().expect("the controller runs");
    assert_eq!((status.unsettled, status.held_back), (0, vec![]));
}
