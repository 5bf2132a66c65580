//! Tests new and known nodes while other clients write them too, or while the API server fails.

use std::time::Duration;

use cloud_api_proto::v1alpha1::Scope;
use controller_core::{
    mirror::ObjectName,
    testing::{FakeKube, Fault, Verb, eventually, instance, node},
};
use k8s_openapi::{api::core::v1::Node, apimachinery::pkg::apis::meta::v1::Time};
use tokio::time::sleep;

use super::world::{World, settle};

const ZONE: &str = "topology.kubernetes.io/zone";
const OLDER_ZONE: &str = "failure-domain.beta.kubernetes.io/zone";

async fn initialised() -> World {
    let mut world = World::new();
    settle().await;
    world.cloud.put(instance("sim://north/i-1").named("a").at("10.0.0.1"));
    world.kube.put::<Node>(node("a").uninitialised());
    world.start();
    eventually("the node is initialised", || world.is_initialised("a")).await;
    settle().await;
    world
}

fn change(kube: &FakeKube, change: impl FnOnce(&mut Node)) {
    kube.change::<Node>(&ObjectName::cluster("a"), change);
}

fn set_label(kube: &FakeKube, key: &str, value: Option<&str>) {
    change(kube, |node| {
        let labels = node.metadata.labels.get_or_insert_default();
        match value {
            Some(value) => drop(labels.insert(key.to_owned(), value.to_owned())),
            None => drop(labels.remove(key)),
        }
    });
}

// Behaviour: NI15, W6
#[tokio::test(start_paused = true)]
async fn a_node_without_addresses_keeps_its_taint() {
    let mut world = World::new();
    world.cloud.put(instance("sim://north/i-1").named("a").at("10.0.0.1"));
    world.kube.put::<Node>(node("a").uninitialised());
    world.kube.order(Fault::status(500).on(Verb::Patch, "nodes/status"));
    world.start();
    sleep(Duration::from_mins(30)).await;
    assert!(!world.is_initialised("a"));
    world.kube.heal();
    eventually("the controller continues", || world.is_initialised("a")).await;
    assert_eq!(world.addresses("a"), ["InternalIP=10.0.0.1"]);
}

// Behaviour: NI15
#[tokio::test(start_paused = true)]
async fn restart_between_addresses_and_taint_continues() {
    let mut world = World::new();
    world.cloud.put(instance("sim://north/i-1").named("a").at("10.0.0.1"));
    world.kube.put::<Node>(node("a").uninitialised());
    // The first write contains the addresses. The second and all later writes fail.
    world.kube.before_next_write(|_: &FakeKube| ());
    world.kube.before_next_write(|kube: &FakeKube| kube.order(Fault::status(503).on(Verb::Patch, "nodes")));
    world.start();
    eventually("the addresses are written", || !world.addresses("a").is_empty()).await;
    assert!(!world.is_initialised("a"));
    world.stop().await;
    let before = world.kube.writes().len();
    world.kube.heal();
    world.start();
    eventually("the node is initialised", || world.is_initialised("a")).await;
    settle().await;
    assert_eq!(world.kube.writes().len(), before + 1, "the addresses are not written twice");
}

// Behaviour: NI2
#[tokio::test(start_paused = true)]
async fn fifty_heartbeats_cause_no_work() {
    let world = initialised().await;
    let (writes, reads) = (world.kube.writes().len(), world.kube.requests(Verb::Get, "nodes"));
    for _ in 0..50 {
        let now = Time(world.cloud.clock().now());
        change(&world.kube, |node| {
            let again: Node = controller_core::testing::node("x").ready("False").build();
            let mut conditions = again.status.and_then(|status| status.conditions).expect("one");
            conditions[0].last_heartbeat_time = Some(now);
            node.status.get_or_insert_default().conditions = Some(conditions);
        });
        sleep(Duration::from_secs(10)).await;
    }
    assert_eq!(world.kube.writes().len(), writes);
    assert_eq!(world.kube.requests(Verb::Get, "nodes"), reads);
    assert_eq!(world.cloud.calls("BatchGetInstances"), 0);
    assert!(
        world.node("a").status.and_then(|status| status.conditions).is_some(),
        "conditions belong to the kubelet"
    );
}

// Behaviour: NI16
#[tokio::test(start_paused = true)]
async fn events_are_from_the_former_component() {
    let world = initialised().await;
    let events = world.kube.event_objects();
    let [synced] = events.as_slice() else { panic!("{:?}", world.kube.events()) };
    assert_eq!(synced.reason.as_deref(), Some("Synced"));
    assert_eq!(synced.reporting_component.as_deref(), Some("cloud-node-controller"));
}

// Behaviour: NA2
#[tokio::test(start_paused = true)]
async fn changed_labels_are_restored_by_one_write() {
    let world = initialised().await;
    let before = world.kube.writes().len();
    set_label(&world.kube, ZONE, Some("by-hand"));
    eventually("the cloud's value takes precedence", || world.label("a", ZONE).as_deref() == Some("north-1"))
        .await;
    set_label(&world.kube, OLDER_ZONE, None);
    eventually("under both names", || world.label("a", OLDER_ZONE).as_deref() == Some("north-1")).await;
    settle().await;
    assert_eq!(world.kube.writes().len(), before + 2);
    assert_eq!(world.cloud.calls("BatchGetInstances"), 0);
}

// Behaviour: NA3
#[tokio::test(start_paused = true)]
async fn older_label_follows_the_current_one_without_a_cloud() {
    let world = initialised().await;
    world.cloud.away(true);
    sleep(Duration::from_mins(1)).await;
    // The cache still has the node's instance, so the cloud's label replaces the user's label.
    set_label(&world.kube, ZONE, Some("by-hand"));
    eventually("the cloud's value takes precedence", || world.label("a", ZONE).as_deref() == Some("north-1"))
        .await;

    world.kube.put::<Node>(
        node("b").provider_id("sim://north/unseen").label(ZONE, "mine").label(OLDER_ZONE, "old"),
    );
    world.kube.put::<Node>(node("c").provider_id("sim://north/unseen-2").label(OLDER_ZONE, "old"));
    eventually("the current name takes precedence", || {
        world.label("b", OLDER_ZONE).as_deref() == Some("mine")
    })
    .await;
    eventually("or is created", || world.label("c", ZONE).as_deref() == Some("old")).await;
    let before = world.kube.writes().len();
    settle().await;
    assert_eq!(world.kube.writes().len(), before);
}

// Behaviour: NA4
#[tokio::test(start_paused = true)]
async fn extra_labels_follow_the_cloud_and_foreign_ones_stay() {
    let world = initialised().await;
    let machine = instance("sim://north/i-1").named("a").at("10.0.0.1");
    let rack = || world.label("a", "example.com/rack");
    set_label(&world.kube, "example.com/owner", Some("me"));
    world.cloud.put(machine.clone().label("example.com/rack", "r1").label("example.com/owner", "cloud"));
    eventually("it is added", || rack().as_deref() == Some("r1")).await;
    world.cloud.put(machine.clone().label("example.com/rack", "r2").label("example.com/owner", "cloud-2"));
    eventually("the node follows the cloud", || rack().as_deref() == Some("r2")).await;
    set_label(&world.kube, "example.com/rack", Some("mine"));
    settle().await;
    assert_eq!(rack().as_deref(), Some("mine"), "a user's value stays");
    set_label(&world.kube, "example.com/rack", None);
    eventually("what is absent is added", || rack().as_deref() == Some("r2")).await;
    world.cloud.put(machine);
    settle().await;
    assert_eq!(rack().as_deref(), Some("r2"), "never removed");
    assert_eq!(world.label("a", "example.com/owner").as_deref(), Some("me"));
}

// Behaviour: NA4
#[tokio::test(start_paused = true)]
async fn former_values_are_forgotten_when_a_node_is_initialised() {
    let mut world = World::new();
    let machine = instance("sim://north/i-1").named("a").at("10.0.0.1");
    world.cloud.put(machine.clone().label("example.com/rack", "r1"));
    world.start();
    settle().await;
    world.cloud.put(machine.label("example.com/rack", "r2"));
    settle().await;
    world.kube.put::<Node>(
        node("a").uninitialised().provider_id("sim://north/i-1").label("example.com/rack", "r1"),
    );
    eventually("the node is initialised", || world.is_initialised("a")).await;
    sleep(Duration::from_mins(20)).await;
    assert_eq!(world.label("a", "example.com/rack").as_deref(), Some("r1"));
}

#[tokio::test(start_paused = true)]
async fn the_regular_comparison_finds_nothing_to_do() {
    let world = initialised().await;
    let before = world.kube.writes().len();
    sleep(Duration::from_hours(2)).await;
    assert_eq!(world.kube.writes().len(), before);
    assert_eq!(world.cloud.calls("BatchGetInstances"), 0);
}

#[tokio::test(start_paused = true)]
async fn annotation_that_becomes_invalid_later_changes_nothing() {
    let world = initialised().await;
    let before = world.kube.writes().len();
    change(&world.kube, |node| {
        let annotations = node.metadata.annotations.get_or_insert_default();
        annotations.insert("alpha.kubernetes.io/provided-node-ip".to_owned(), "192.0.2.99".to_owned());
    });
    settle().await;
    assert_eq!(world.kube.writes().len(), before);
    assert_eq!(world.addresses("a"), ["InternalIP=10.0.0.1"]);
}

#[tokio::test(start_paused = true)]
async fn instance_of_another_project_is_not_selected_by_name() {
    let mut world = World::new();
    settle().await;
    world.cloud.put(instance("sim://north/i-1").named("a").at("10.0.0.1"));
    world.kube.put::<Node>(node("a").uninitialised());
    // The node is like a hybrid node: initialised, and without a provider ID.
    world.cloud.put(instance("sim://north/i-3").named("c").at("10.0.0.3"));
    world.kube.put::<Node>(node("c"));
    world.start();
    eventually("the node is initialised", || world.is_initialised("a")).await;
    eventually("it has addresses", || world.addresses("c") == ["InternalIP=10.0.0.3"]).await;

    world.cloud.moves_to("other");
    world.cloud.put(instance("sim://north/i-9").named("b").at("10.9.0.9"));
    world.put_unlisted("sim://north/i-8", "d");
    world.cloud.put(instance("sim://north/i-3").named("c").at("10.9.0.3"));
    world.kube.put::<Node>(node("b").uninitialised());
    world.kube.put::<Node>(node("d").uninitialised());
    sleep(Duration::from_mins(30)).await;
    assert_eq!((world.provider_id("b"), world.is_initialised("b")), (None, false));
    assert_eq!((world.provider_id("d"), world.is_initialised("d")), (None, false));
    assert_eq!(world.addresses("c"), ["InternalIP=10.0.0.3"]);
    let events = world.kube.events();
    let is_reported = |event: &String| {
        event.starts_with("Warning CloudMoved b: ")
            && event.contains("the adapter now uses project other, not fake.")
    };
    assert!(events.iter().any(is_reported), "{events:?}");

    world.cloud.moves_to("fake");
    eventually("the node is initialised", || world.is_initialised("b")).await;
}

/// The watch has not reported yet that the adapter was replaced.
#[tokio::test(start_paused = true)]
async fn answer_by_name_counts_only_from_the_clusters_project() {
    let mut world = World::new();
    settle().await;
    world.start();
    settle().await;
    world.cloud.edit(|state| {
        let scope = state.info.scope.insert(Scope::default());
        (scope.project, scope.fingerprint) = ("other".to_owned(), "other".to_owned());
    });
    world.put_unlisted("sim://north/i-9", "b");
    world.kube.put::<Node>(node("b").uninitialised());
    sleep(Duration::from_mins(30)).await;
    assert!(world.cloud.calls("BatchGetInstances") > 0);
    assert_eq!((world.provider_id("b"), world.is_initialised("b")), (None, false));
}

// Behaviour: NA7
#[tokio::test(start_paused = true)]
async fn instance_without_addresses_leaves_its_node_tainted() {
    let mut world = World::new();
    settle().await;
    world.cloud.put(instance("sim://north/i-1").named("a"));
    world.kube.put::<Node>(node("a").uninitialised());
    world.start();
    sleep(Duration::from_mins(30)).await;
    assert!(!world.is_initialised("a"));
    assert!(world.has_event("InstanceWithoutAddresses", "lists an address"), "{:?}", world.kube.events());
    world.cloud.put(instance("sim://north/i-1").named("a").at("10.0.0.1"));
    eventually("the node is initialised", || world.is_initialised("a")).await;
    assert_eq!(world.addresses("a"), ["InternalIP=10.0.0.1"]);
}

/// In a cluster, some nodes have the ID with the region and others without it, and the adapter lists one of the forms.
#[tokio::test(start_paused = true)]
async fn both_forms_of_a_provider_id_are_followed() {
    for (listed, written) in [("sim:///a", "sim://north/a"), ("sim://north/a", "sim:///a")] {
        let mut world = World::new();
        let scope = Scope { region: "north".to_owned(), fingerprint: "f".to_owned(), ..Scope::default() };
        world.cloud.edit(|state| state.info.scope = Some(scope));
        let machine = |ip: &str| instance(listed).named("a").at(ip);
        world.cloud.put(machine("10.0.0.1"));
        settle().await;
        world.kube.put::<Node>(node("a").provider_id(written).at("10.0.0.1"));
        world.start();
        settle().await;
        world.cloud.put(machine("10.0.0.2"));
        let addresses = || world.addresses("a").contains(&"InternalIP=10.0.0.2".to_owned());
        tokio::time::timeout(Duration::from_secs(60), eventually("the node follows the cloud", addresses))
            .await
            .expect(written);
        world.stop().await;
    }
}
