//! What the page says of a node, beside what its Events say.

use std::time::Duration;

use cloud_api_proto::{AdapterError, Reason};
use controller_core::{
    explain::report::{Explanation, State},
    mirror::ObjectName,
    testing::{Fault, Verb, eventually, instance, node},
};
use k8s_openapi::api::core::v1::Node;
use tokio::time::sleep;

use super::world::{World, calm, id, running};

impl World {
    fn explained(&self, node: &str) -> Explanation {
        self.explain.one(node).expect("a good key")
    }

    fn unsettled(&self) -> Vec<String> {
        self.explain.all().expect("it runs").objects.into_iter().map(|it| it.key).collect()
    }

    /// What the last Event of this reason on a node says.
    fn told(&self, reason: &str, node: &str) -> Option<String> {
        self.kube.told(reason, node)
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_whose_machine_is_not_in_the_cloud_waits_in_the_words_of_its_event() {
    let mut world = World::new();
    world.kube.put::<Node>(node("a").uninitialised());
    world.start();
    eventually("it is told", || world.told("InstanceNotVisible", "a").is_some()).await;
    sleep(Duration::from_mins(30)).await;
    let seen = world.explained("a");
    assert_eq!((seen.state, seen.waits_for), (State::Waiting, world.told("InstanceNotVisible", "a")));
    assert_eq!((seen.wanted.join(""), seen.cloud.len()), ("a machine named a".to_owned(), 0));
    assert!(seen.attempts > 3 && seen.next_try.is_some(), "{} {:?}", seen.attempts, seen.next_try);
    assert_eq!(world.unsettled(), ["a"]);
    world.cloud.put(instance("sim://north/i-1").named("a").at("10.0.0.1"));
    eventually("it is initialised", || world.is_initialised("a")).await;
    calm().await;
    let seen = world.explained("a");
    assert_eq!((seen.state, world.unsettled().len()), (State::Settled, 0));
    assert!(seen.wanted[0].contains("sim://north/i-1"), "{:?}", seen.wanted);
    assert_eq!(seen.cloud, ["sim://north/i-1 a there"]);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_nobody_says_has_a_machine_is_not_ours() {
    let mut world = World::new();
    world.kube.put::<Node>(node("a"));
    world.start();
    calm().await;
    let seen = world.explained("a");
    assert_eq!((seen.state, seen.cloud.len(), world.unsettled().len()), (State::NotOurs, 0, 0));
    assert!(
        seen.wanted[0].ends_with("is not looked for, and the cloud shows none named a"),
        "{:?}",
        seen.wanted
    );
}

#[tokio::test(start_paused = true)]
async fn what_the_adapter_cannot_tell_has_its_reason() {
    let mut world = World::new();
    (0..100).for_each(|_| {
        world.cloud.fail_next("BatchGetInstances", AdapterError::new(Reason::VendorAuth, "token expired"));
    });
    world.kube.put::<Node>(node("a").uninitialised());
    world.start();
    eventually("it is told", || world.told("CloudProviderFailed", "a").is_some()).await;
    let seen = world.explained("a");
    assert_eq!(seen.waits_for, world.told("CloudProviderFailed", "a"));
    assert_eq!(seen.reason.as_deref(), Some("VENDOR_AUTH"));
}

#[tokio::test(start_paused = true)]
async fn what_the_api_server_refuses_is_explained_and_nodes_that_are_gone_are_forgotten() {
    let mut world = World::new();
    world.kube.order(Fault::status(403).on(Verb::Patch, "nodes/status"));
    for name in ["a", "b"] {
        world.cloud.put(instance(&id(name)).named(name).at("10.0.0.1"));
        world.kube.put::<Node>(node(name).uninitialised());
    }
    world.start();
    eventually("it is told", || world.told("SyncFailed", "a").is_some()).await;
    calm().await;
    let seen = world.explained("a");
    assert_eq!((seen.state, seen.waits_for), (State::Waiting, world.told("SyncFailed", "a")));
    assert!(seen.plan.iter().any(|line| line.starts_with("addresses ")), "{:?}", seen.plan);
    world.kube.delete::<Node>(&ObjectName::cluster("b"));
    calm().await;
    assert_eq!((world.unsettled(), world.explained("b").known), (vec!["a".to_owned()], false));
    world.kube.put::<Node>(node("a").uid("anew").uninitialised());
    calm().await;
    assert_eq!(world.unsettled(), ["a"], "the new one alone");
    world.kube.heal();
    eventually("it is initialised", || world.is_initialised("a")).await;
    calm().await;
    assert!(world.unsettled().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_brake_that_holds_nodes_says_so_at_each_and_for_all() {
    let world = running(10).await;
    assert_eq!(
        world.explain.status().expect("it runs").unsettled,
        0,
        "nothing is kept of those that are well"
    );
    for n in 0..4 {
        world.lose(&format!("n{n}"));
    }
    sleep(Duration::from_secs(7)).await;
    assert!(
        world.explained("n0").plan.iter().any(|line| line.starts_with("ask the cloud ")),
        "not proven yet"
    );
    eventually("they are held", || world.told("DeletionHeld", "n3").is_some()).await;
    calm().await;
    for n in 0..4 {
        let seen = world.explained(&format!("n{n}"));
        assert_eq!(
            (seen.state, seen.waits_for),
            (State::Waiting, world.told("DeletionHeld", &format!("n{n}")))
        );
    }
    let status = world.explain.status().expect("it runs");
    let told = world.told("NodeDeletionBrakeTripped", "kube-system").expect("for all of them");
    assert_eq!((status.unsettled, status.held_back), (4, vec![told]));
    world.set_ready("n0", "True");
    eventually("the others go", || world.n_deletions() == 3).await;
    calm().await;
    let status = world.explain.status().expect("it runs");
    assert_eq!((status.unsettled, status.held_back), (0, vec![]));
}
