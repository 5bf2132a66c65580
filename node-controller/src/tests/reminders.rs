//! Tests that a waiting node's Event is re-emitted before the API server drops it, as the same Event and without a request to the adapter.

use std::time::Duration;

use controller_core::{
    mirror::ObjectName,
    testing::{eventually, instance, node},
};
use k8s_openapi::api::core::v1::Node;
use tokio::time::sleep;

use super::world::{World, id, settle};

fn n_emitted(world: &World, reason: &str) -> i32 {
    let events = world.kube.event_objects();
    let counts: Vec<i32> = events
        .iter()
        .filter(|event| event.reason.as_deref() == Some(reason))
        .filter_map(|event| event.count)
        .collect();
    assert!(counts.len() <= 1, "in one Event: {:?}", world.kube.events());
    counts.first().copied().unwrap_or_default()
}

/// Checks that the Event is emitted at 0, 30, 60, 90 and 120 minutes, each time within two minutes. This must cause no call and no write to
/// a Node.
async fn is_re_emitted_for_two_hours(world: &World, reason: &str) {
    let (asked, written) = (world.cloud.calls("BatchGetInstances"), world.kube.writes().len());
    for times in 1..=5 {
        sleep(Duration::from_mins(2)).await;
        assert_eq!(n_emitted(world, reason), times, "{:?}", world.kube.events());
        sleep(Duration::from_mins(27)).await;
        assert_eq!(n_emitted(world, reason), times, "not earlier: {:?}", world.kube.events());
        sleep(Duration::from_mins(1)).await;
    }
    assert_eq!((world.cloud.calls("BatchGetInstances"), world.kube.writes().len()), (asked, written));
}

async fn is_not_emitted_again(world: &World, reason: &str) {
    settle().await;
    let before = n_emitted(world, reason);
    sleep(Duration::from_hours(1)).await;
    assert_eq!(n_emitted(world, reason), before, "{:?}", world.kube.events());
}

// Behaviour: NI10
#[tokio::test(start_paused = true)]
async fn foreign_instance_is_reported_while_the_node_waits() {
    let mut world = World::new();
    world.start();
    settle().await;
    world.kube.put::<Node>(node("a").uninitialised().provider_id("aws:///z/i-1"));
    eventually("the Event is emitted", || n_emitted(&world, "InstanceForeign") == 1).await;
    is_re_emitted_for_two_hours(&world, "InstanceForeign").await;
    world.kube.delete::<Node>(&ObjectName::cluster("a"));
    is_not_emitted_again(&world, "InstanceForeign").await;
}

// Behaviour: NI10
#[tokio::test(start_paused = true)]
async fn ambiguous_name_is_reported_until_one_instance_is_left() {
    let mut world = World::new();
    for n in ["1", "2"] {
        world.cloud.put(instance(&id(n)).named("a").at("10.0.0.1"));
    }
    world.start();
    settle().await;
    world.kube.put::<Node>(node("a").uninitialised());
    eventually("the Event is emitted", || n_emitted(&world, "InstanceAmbiguous") == 1).await;
    is_re_emitted_for_two_hours(&world, "InstanceAmbiguous").await;
    world.cloud.put(instance(&id("2")).named("b").at("10.0.0.1"));
    eventually("the node is initialised", || world.is_initialised("a")).await;
    is_not_emitted_again(&world, "InstanceAmbiguous").await;
}
