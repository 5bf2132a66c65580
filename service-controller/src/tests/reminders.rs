//! Tests that Events of lasting conditions are re-emitted before the API server drops them. They are re-emitted after half an hour, with
//! the same text, as the same Event.

use std::time::Duration;

use cloud_api_proto::{AdapterError, Reason};
use controller_core::{mirror::ObjectName, testing::service};
use k8s_openapi::api::core::v1::Service;

use super::world::World;

/// Returns how often this text was emitted, and asserts that it was always the same Event.
fn reported(world: &World, words: &str) -> usize {
    let events: Vec<String> = world.events().into_iter().filter(|event| event.contains(words)).collect();
    let [event] = events.as_slice() else {
        assert_eq!(events.len(), 0, "a single Event: {events:?}");
        return 0;
    };
    let count = event.rsplit_once(" (x").and_then(|(_, count)| count.strip_suffix(')'));
    count.map_or(1, |count| count.parse().expect("a number"))
}

/// Checks that the text is emitted at 0, 30, 60, 90 and 120 minutes; a reminder may be late by one resync.
async fn is_emitted_for_two_hours(world: &World, words: &str) {
    for times in 1..=5 {
        tokio::time::sleep(Duration::from_mins(6)).await;
        assert_eq!(reported(world, words), times, "{:?}", world.events());
        tokio::time::sleep(Duration::from_mins(23)).await;
        assert_eq!(reported(world, words), times, "no reminder before half an hour: {:?}", world.events());
        tokio::time::sleep(Duration::from_mins(1)).await;
    }
}

/// Waits longer than the interval of reminders.
async fn is_no_longer_emitted(world: &World, words: &str) {
    tokio::time::sleep(Duration::from_mins(1)).await;
    let before = reported(world, words);
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert_eq!(reported(world, words), before, "{:?}", world.events());
}

// Behaviour: S10
#[tokio::test(start_paused = true)]
async fn reminders_of_refusal_cause_no_extra_calls() {
    let world = World::start().await;
    for _ in 0..1000 {
        let error = AdapterError::field("spec.listeners[0].node_port", "is taken");
        world.cloud.fail_next("EnsureLoadBalancer", error);
    }
    world.service(service("web").port(80));
    let words =
        "spec.ports[0].nodePort: is taken; retried every 5 minutes, and as soon as the Service changes";
    world.eventually("an Event is emitted", |world| reported(world, words) == 1).await;
    let asked = world.cloud.calls("EnsureLoadBalancer");
    is_emitted_for_two_hours(&world, words).await;
    // The adapter is called at each resync, and when the connection is renewed, because it may support the setting by then.
    let asked = world.cloud.calls("EnsureLoadBalancer") - asked;
    assert!(asked <= 150 / 5 + 5, "{asked} calls in two and a half hours");
    world.cloud.edit(|state| state.errors.clear());
    world.change("web", |service| {
        service.spec.as_mut().unwrap().ports.as_mut().unwrap()[0].node_port = Some(30_081);
    });
    world.eventually_ingress("web", &["203.0.113.1"]).await;
    is_no_longer_emitted(&world, words).await;
}

// Behaviour: S10
#[tokio::test(start_paused = true)]
async fn reminder_of_retried_failure_repeats_first_text() {
    let world = World::start().await;
    for n in 0..100 {
        let error = AdapterError::new(Reason::VendorQuota, format!("10 of 10 are in use, request {n}"));
        world.cloud.fail_next("EnsureLoadBalancer", error);
    }
    world.service(service("web").port(80));
    let words = "10 of 10 are in use";
    world.eventually("an Event is emitted", |world| reported(world, words) == 1).await;
    // A retry emits the Event. The call to the cloud is retried every 5 minutes.
    tokio::time::sleep(Duration::from_secs(150)).await;
    for times in 1..=4 {
        assert_eq!(reported(&world, words), times, "{:?}", world.events());
        tokio::time::sleep(Duration::from_mins(30)).await;
    }
    world.cloud.edit(|state| state.errors.clear());
    world.eventually_ingress("web", &["203.0.113.1"]).await;
    is_no_longer_emitted(&world, words).await;
}

// Behaviour: S10
#[tokio::test(start_paused = true)]
async fn invalid_annotation_is_reported_while_it_lasts() {
    let world = World::start().await;
    world.service(service("web").port(80).annotation("lb.cloudadapter.dev/nonsense", "1"));
    let words = "lb.cloudadapter.dev/nonsense";
    world.eventually("an Event is emitted", |world| reported(world, words) == 1).await;
    is_emitted_for_two_hours(&world, words).await;
    assert_eq!(world.cloud.calls("EnsureLoadBalancer"), 0);
    world.change("web", |service| service.metadata.annotations = None);
    world.eventually_ingress("web", &["203.0.113.1"]).await;
    is_no_longer_emitted(&world, words).await;
}

// Behaviour: S9
#[tokio::test(start_paused = true)]
async fn long_creation_is_re_emitted() {
    let world = World::start().await;
    world.cloud.edit(|state| state.pending = u32::MAX);
    world.service(service("web").port(80));
    let words = "Ensuring load balancer";
    world.eventually("an Event is emitted", |world| reported(world, words) == 1).await;
    is_emitted_for_two_hours(&world, words).await;
    world.cloud.edit(|state| state.pending = 0);
    world.eventually_ingress("web", &["203.0.113.1"]).await;
    is_no_longer_emitted(&world, words).await;
}

#[tokio::test(start_paused = true)]
async fn deleted_service_gets_no_reminders() {
    let world = World::start().await;
    world.service(service("web").port(80).annotation("lb.cloudadapter.dev/nonsense", "1"));
    let words = "lb.cloudadapter.dev/nonsense";
    world.eventually("an Event is emitted", |world| reported(world, words) == 1).await;
    world.kube.delete::<Service>(&ObjectName::namespaced("default", "web"));
    is_no_longer_emitted(&world, words).await;
}

/// The adapter was unreachable, and now refuses the Service. The outage must not be reported again.
#[tokio::test(start_paused = true)]
async fn past_condition_is_not_re_emitted() {
    let world = World::start().await;
    world
        .cloud
        .fail_next("EnsureLoadBalancer", AdapterError::new(Reason::VendorQuota, "10 of 10 are in use"));
    for _ in 0..100 {
        let error = AdapterError::field("spec.listeners[0].node_port", "is taken");
        world.cloud.fail_next("EnsureLoadBalancer", error);
    }
    world.service(service("web").port(80));
    let (before, now) = ("10 of 10 are in use", "spec.ports[0].nodePort: is taken");
    world.eventually("the Service is refused", |world| reported(world, now) == 1).await;
    assert_eq!(reported(&world, before), 1);
    is_emitted_for_two_hours(&world, now).await;
    assert_eq!(reported(&world, before), 1, "{:?}", world.events());
}
