//! Tests the shutdown taint with the whole controller.

use std::time::Duration;

use cloud_api_proto::v1alpha1::InstanceState;
use controller_core::{
    mirror::ObjectName,
    node::{SHUTDOWN, taints},
    testing::{FakeKube, eventually, instance, node},
};
use k8s_openapi::api::core::v1::{Node, Taint};
use tokio::time::sleep;

use super::world::{WARM, World, id, running};

impl World {
    fn has_shutdown_taint(&self, name: &str) -> bool {
        taints(&self.node(name)).iter().any(|taint| taint.key == SHUTDOWN && taint.effect == "NoSchedule")
    }
}

// Behaviour: ND2
#[tokio::test(start_paused = true)]
async fn stopped_instance_taints_its_node_until_it_is_ready() {
    let world = running(3).await;
    let other = Taint { key: "kept".to_owned(), effect: "NoExecute".to_owned(), ..Taint::default() };
    world.kube.change::<Node>(&ObjectName::cluster("n1"), |node| {
        node.spec.get_or_insert_default().taints = Some(vec![other.clone()]);
    });
    world.cloud.put(instance(&id("n1")).named("n1").state(InstanceState::Stopped));
    sleep(Duration::from_mins(1)).await;
    assert!(!world.has_shutdown_taint("n1"), "it is ready");
    world.set_ready("n1", "Unknown");
    eventually("the node is tainted", || world.has_shutdown_taint("n1")).await;
    let ours = Taint { key: SHUTDOWN.to_owned(), effect: "NoSchedule".to_owned(), ..Taint::default() };
    assert_eq!(taints(&world.node("n1")), [other.clone(), ours]);
    sleep(Duration::from_hours(1)).await;
    assert_eq!(world.kube.writes().len(), 1, "once");

    world.cloud.put(instance(&id("n1")).named("n1"));
    sleep(Duration::from_mins(1)).await;
    assert!(world.has_shutdown_taint("n1"), "the taint stays until the node is ready");
    world.set_ready("n1", "True");
    eventually("the taint is removed", || !world.has_shutdown_taint("n1")).await;
    assert_eq!(taints(&world.node("n1")), [other]);
    assert_eq!(world.cloud.calls("BatchGetInstances"), 0);
}

/// Names may be misleading. They are enough for a taint, which is removed when the node is ready, but never for a deletion.
// Behaviour: ND3
#[tokio::test(start_paused = true)]
async fn node_without_provider_id_is_tainted_by_name_but_never_deleted() {
    let mut world = World::new();
    let stopped = |id: &str, name: &str| instance(id).named(name).state(InstanceState::Stopped);
    world.cloud.put(instance("sim://north/other").named("other"));
    world.cloud.put(stopped("sim://north/i-1", "one"));
    for id in ["sim://north/i-2", "sim://north/i-3"] {
        world.cloud.put(stopped(id, "two"));
    }
    world.cloud.put(stopped("sim://north/i-4", "ready"));
    for (name, ready) in [("one", "Unknown"), ("two", "Unknown"), ("ready", "True"), ("none", "Unknown")] {
        world.kube.put::<Node>(node(name).ready(ready));
    }
    world.start();
    eventually("the node is tainted", || world.has_shutdown_taint("one")).await;
    world.cloud.end("sim://north/i-1");
    sleep(WARM).await;
    for name in ["two", "ready", "none"] {
        assert!(!world.has_shutdown_taint(name), "{name}");
    }
    assert!(world.exists("one"), "only a provider ID proves an end");
    assert_eq!(world.cloud.calls("BatchGetInstances"), 0, "no request by name");
    world.set_ready("one", "True");
    eventually("the taint is removed", || !world.has_shutdown_taint("one")).await;
}

#[tokio::test(start_paused = true)]
async fn shutdown_taint_keeps_other_taints() {
    let world = running(3).await;
    for n in 0..3 {
        world.kube.before_next_write(move |kube: &FakeKube| {
            kube.change::<Node>(&ObjectName::cluster("n1"), |node| {
                let taint =
                    Taint { key: format!("t{n}"), effect: "NoSchedule".to_owned(), ..Taint::default() };
                node.spec.get_or_insert_default().taints.get_or_insert_default().push(taint);
            });
        });
    }
    world.cloud.put(instance(&id("n1")).named("n1").state(InstanceState::Stopped));
    world.set_ready("n1", "Unknown");
    eventually("the node is tainted", || world.has_shutdown_taint("n1")).await;
    let node = world.node("n1");
    let keys: Vec<&str> = taints(&node).iter().map(|taint| taint.key.as_str()).collect();
    assert_eq!(keys, ["t0", "t1", "t2", SHUTDOWN]);
}

// Behaviour: ND1, W5
#[tokio::test(start_paused = true)]
async fn ready_node_loses_the_taint_without_an_adapter() {
    let world = running(3).await;
    world.cloud.put(instance(&id("n1")).named("n1").state(InstanceState::Stopped));
    world.set_ready("n1", "Unknown");
    eventually("the node is tainted", || world.has_shutdown_taint("n1")).await;
    world.lose("n2");
    world.cloud.hang(true);
    sleep(Duration::from_secs(5)).await;
    world.set_ready("n1", "True");
    sleep(Duration::from_secs(6)).await;
    assert!(!world.has_shutdown_taint("n1"));
}

// Behaviour: P32
#[tokio::test(start_paused = true)]
async fn repeated_conflicts_do_not_prevent_the_taint() {
    let world = running(3).await;
    for n in 0..12 {
        world.kube.before_next_write(move |kube: &FakeKube| {
            kube.change::<Node>(&ObjectName::cluster("n1"), |node| {
                let key = format!("t{n}");
                let taint = Taint { key, effect: "NoSchedule".to_owned(), ..Taint::default() };
                node.spec.get_or_insert_default().taints.get_or_insert_default().push(taint);
            });
        });
    }
    world.cloud.put(instance(&id("n1")).named("n1").state(InstanceState::Stopped));
    world.set_ready("n1", "Unknown");
    eventually("the node is tainted in the third pass", || world.has_shutdown_taint("n1")).await;
    assert_eq!(taints(&world.node("n1")).len(), 13, "no taint was lost");
    assert_eq!(world.kube.writes().len(), 13);
}
