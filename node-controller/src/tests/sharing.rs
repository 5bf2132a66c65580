//! Tests a cluster with nodes of several clouds: what a release does to its own nodes, and that it does nothing to all others.

use std::time::Duration;

use cloud_api_proto::v1alpha1::InstanceState;
use controller_core::{
    explain::report::State,
    mirror::ObjectName,
    node::SHUTDOWN,
    selector::Selector,
    testing::{NodeBuilder, eventually, instance, node},
};
use k8s_openapi::api::core::v1::Node;
use tokio::time::sleep;

use super::world::{WARM, World, id, known, running, settle};
use crate::ownership::{EXCLUSION_LABEL, GRACE, LabelRules, OWNER_LABEL, OwnerLabel};

const REGION: &str = "topology.kubernetes.io/region";
const OLDER_ZONE: &str = "failure-domain.beta.kubernetes.io/zone";

fn rules(region: &str) -> LabelRules {
    LabelRules {
        selector: Some(Selector::read(&format!("{REGION}={region}")).unwrap()),
        owner: Some(OwnerLabel { key: OWNER_LABEL.to_owned(), cloud: region.to_owned() }),
        ..LabelRules::default()
    }
}

/// Returns a world in which the controller has this region's cloud.
fn release(region: &str) -> World {
    let mut world = World::new();
    world.rules = rules(region);
    world
}

fn unclaimed(world: &World) -> Vec<String> {
    world.kube.events().into_iter().filter(|event| event.contains(" NodeUnclaimed ")).collect()
}

/// Nodes of other releases, each with everything that this controller would change on a node of its own.
fn nodes_of_others() -> Vec<(&'static str, NodeBuilder)> {
    let stale = |name| node(name).label(OLDER_ZONE, "z").tainted(SHUTDOWN, None, "NoSchedule");
    vec![
        ("ready", stale("ready").provider_id("aws:///z/i-1").ready("True")),
        ("down", node("down").provider_id("aws:///z/i-2").ready("Unknown").label(OLDER_ZONE, "z")),
        ("new", stale("new").provider_id("aws:///z/i-3").uninitialised().ready("True")),
        ("labelled", stale("labelled").provider_id(&id("labelled")).label(OWNER_LABEL, "us").ready("True")),
        ("gone", node("gone").provider_id(&id("gone")).label(OWNER_LABEL, "us").ready("Unknown")),
        ("claimed", stale("claimed").uninitialised().label(REGION, "eu").label(OWNER_LABEL, "us")),
        ("elsewhere", stale("elsewhere").label(REGION, "us").ready("True")),
        ("off", node("off").label(REGION, "us").ready("Unknown")),
    ]
}

// Behaviour: NI21, NI22, NI23, ND8
#[tokio::test(start_paused = true)]
async fn nodes_of_other_releases_cost_no_call_no_write_and_no_event() {
    let mut world = release("eu");
    for name in ["labelled", "claimed", "elsewhere"] {
        world.cloud.put(instance(&id(name)).named(name).at("10.0.0.1"));
    }
    world.cloud.put(instance(&id("off")).named("off").state(InstanceState::Stopped));
    for (name, node) in nodes_of_others() {
        let new = name == "new" || name == "claimed";
        world.kube.put::<Node>(if new { node.created(world.cloud.clock().now()) } else { node });
    }
    world.start();
    sleep(GRACE - Duration::from_secs(1)).await;
    assert!(world.kube.events().is_empty(), "{:?}", world.kube.events());
    // The release of the other cloud initialises its node.
    world.kube.change::<Node>(&ObjectName::cluster("new"), |node| node.spec.as_mut().unwrap().taints = None);
    sleep(Duration::from_hours(2)).await;
    assert_eq!(world.cloud.calls("BatchGetInstances"), 0);
    assert!(world.kube.writes().is_empty(), "{:#?}", world.kube.writes());
    assert!(world.kube.events().is_empty(), "{:#?}", world.kube.events());
    for (name, _) in nodes_of_others() {
        let seen = world.explain.one(name).expect("a valid key");
        assert_eq!(seen.state, State::NotOurs, "{name}: {seen:?}");
        assert!(seen.wanted[0].starts_with("not this release's node: "), "{name}: {:?}", seen.wanted);
    }
    assert_eq!(world.explain.status().expect("the controller runs").unsettled, 0);
}

// Behaviour: NI22, NI23
#[tokio::test(start_paused = true)]
async fn own_node_gets_the_owner_label_with_the_removal_of_the_taint() {
    let mut world = release("eu");
    settle().await;
    for name in ["a", "b"] {
        world.cloud.put(instance(&id(name)).named(name).at("10.0.0.1"));
    }
    world.start();
    world.kube.put::<Node>(node("a").uninitialised().label(REGION, "eu"));
    // This node was initialised before the cloud had a name.
    world.kube.put::<Node>(known("b").at("10.0.0.1").ready("True"));
    eventually("the node is initialised", || world.is_initialised("a")).await;
    settle().await;
    for name in ["a", "b"] {
        assert_eq!(world.label(name, OWNER_LABEL).as_deref(), Some("eu"), "{name}");
    }
    let writes = world.kube.writes();
    let of = |path: &str| writes.iter().filter(|write| write.path == path).collect::<Vec<_>>();
    let [patch] = of("/api/v1/nodes/a")[..] else { panic!("{writes:#?}") };
    let patch = patch.body.to_string();
    assert!(
        patch.contains("/metadata/labels/cloudadapter.dev~1cloud") && patch.contains("/spec/taints"),
        "{patch}"
    );
    assert_eq!(of("/api/v1/nodes/b").len(), 1);
    assert_eq!(world.cloud.calls("BatchGetInstances"), 0);
}

// Behaviour: NI22
#[tokio::test(start_paused = true)]
async fn node_is_initialised_when_its_labels_match() {
    let mut world = release("eu");
    settle().await;
    world.cloud.put(instance(&id("a")).named("a").at("10.0.0.1"));
    world.start();
    world.kube.put::<Node>(node("a").uninitialised());
    settle().await;
    assert!(!world.is_initialised("a"));
    world.kube.change::<Node>(&ObjectName::cluster("a"), |node| {
        node.metadata.labels = Some([(REGION.to_owned(), "eu".to_owned())].into());
    });
    eventually("the node is initialised", || world.is_initialised("a")).await;
}

// Behaviour: NI24
#[tokio::test(start_paused = true)]
async fn releases_share_one_event_about_a_node_that_none_claims() {
    let mut worlds = [release("eu"), release("us")];
    worlds[1].kube = worlds[0].kube.clone();
    for world in &mut worlds {
        world.start();
    }
    let now = worlds[0].cloud.clock().now();
    worlds[0].kube.put::<Node>(node("a").uninitialised().created(now));
    worlds[0].kube.put::<Node>(node("b").uninitialised().provider_id("aws:///z/i-1").created(now));
    sleep(GRACE - Duration::from_secs(2)).await;
    assert!(worlds[0].kube.events().is_empty(), "{:?}", worlds[0].kube.events());
    sleep(Duration::from_hours(3)).await;
    let events = unclaimed(&worlds[0]);
    let [of_a, of_b] = &events[..] else { panic!("{events:#?}") };
    assert!(of_a.contains(" a: ") && of_a.contains("nodeController.nodes.selector"), "{of_a}");
    assert!(of_b.contains(" b: ") && of_b.contains("aws:///z/i-1"), "{of_b}");
    assert_eq!(worlds[0].kube.events().len(), 2);
    assert!(worlds[0].kube.writes().is_empty());
    assert_eq!(worlds.iter().map(|world| world.cloud.calls("BatchGetInstances")).sum::<u32>(), 0);
}

// Behaviour: NI21, NI24
#[tokio::test(start_paused = true)]
async fn node_whose_provider_id_the_adapter_does_not_know_is_reported_once() {
    let mut world = release("eu");
    world.start();
    let now = world.cloud.clock().now();
    world.kube.put::<Node>(node("a").uninitialised().provider_id("test-provider-id").created(now));
    sleep(GRACE - Duration::from_secs(2)).await;
    assert!(world.kube.events().is_empty(), "{:?}", world.kube.events());
    let seen = world.explain.one("a").expect("a valid key");
    assert!(seen.waits_for.is_some_and(|text| text.contains("belongs to another cloud or region")));
    sleep(Duration::from_hours(3)).await;
    assert_eq!((unclaimed(&world).len(), world.kube.events().len()), (1, 1), "{:?}", world.kube.events());
}

#[tokio::test(start_paused = true)]
async fn dry_run_writes_neither_label_nor_event() {
    let mut world = release("eu");
    world.dry_run = true;
    settle().await;
    world.cloud.put(instance(&id("b")).named("b").at("10.0.0.1"));
    world.start();
    world.kube.put::<Node>(node("a").uninitialised());
    world.kube.put::<Node>(known("b").at("10.0.0.1").ready("True"));
    sleep(GRACE + Duration::from_mins(1)).await;
    assert!(world.kube.writes().is_empty() && world.kube.events().is_empty());
    let plan = world.explain.one("b").expect("a valid key").plan.join("\n");
    assert!(plan.contains("cloudadapter.dev/cloud=eu"), "{plan}");
}

// Behaviour: ND14
#[tokio::test(start_paused = true)]
async fn excluded_node_is_not_deleted_and_follows_the_cloud() {
    let world = running(3).await;
    world.kube.change::<Node>(&ObjectName::cluster("n1"), |node| {
        node.metadata.labels.get_or_insert_default().insert(EXCLUSION_LABEL.to_owned(), String::new());
    });
    world.lose("n1");
    sleep(WARM).await;
    assert!(world.exists("n1"));
    assert_eq!((world.cloud.calls("BatchGetInstances"), world.kube.events().len()), (0, 0));
    let wanted = world.explain.one("n1").expect("a valid key").wanted.join("\n");
    assert!(wanted.contains(&format!("excluded from deletion by label {EXCLUSION_LABEL}")), "{wanted}");
    world.cloud.put(instance(&id("n1")).named("n1").at("10.0.0.7"));
    eventually("the addresses follow", || world.addresses("n1") == ["InternalIP=10.0.0.7"]).await;
}

// Behaviour: ND14
#[tokio::test(start_paused = true)]
async fn label_set_just_before_the_deletion_prevents_it() {
    for label in [EXCLUSION_LABEL, OWNER_LABEL] {
        let mut world = release("eu");
        for n in 0..3 {
            let name = format!("n{n}");
            world.cloud.put(instance(&id(&name)).named(&name));
            world.kube.put::<Node>(known(&name).label(OWNER_LABEL, "eu").ready("True"));
        }
        world.start();
        sleep(WARM).await;
        world.lose("n1");
        sleep(Duration::from_secs(7)).await;
        // The watch does not show the label.
        world.kube.silence_watches();
        world.kube.change::<Node>(&ObjectName::cluster("n1"), |node| {
            node.metadata.labels.get_or_insert_default().insert(label.to_owned(), "us".to_owned());
        });
        sleep(Duration::from_mins(1)).await;
        assert_eq!(world.cloud.calls("BatchGetInstances"), 2, "the absence is proven");
        assert_eq!(world.n_deletions(), 0, "{label}");
    }
}
