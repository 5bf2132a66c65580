//! Tests when nodes are deleted, with the whole controller.

use std::time::Duration;

use cloud_api_proto::{
    AdapterError, Reason,
    v1alpha1::{InstanceState, Priority},
};
use controller_core::{
    mirror::ObjectName,
    testing::{FakeKube, Fault, Verb, eventually, instance, node},
};
use k8s_openapi::api::core::v1::Node;
use tokio::time::{Instant, sleep};

use super::world::{SETTINGS, WARM, World, id, known, running};

// Behaviour: ND7, W4
#[tokio::test(start_paused = true)]
async fn node_is_deleted_when_its_instance_is_proven_gone() {
    let world = running(3).await;
    world.lose("n1");
    sleep(Duration::from_secs(29)).await;
    assert!(world.exists("n1"), "one answer is not a proof");
    eventually("the node is deleted", || !world.exists("n1")).await;
    assert_eq!(world.cloud.calls("BatchGetInstances"), 2);
    let requests = world.cloud.read(|state| state.batch_gets.clone());
    for request in requests {
        let context = request.context.expect("a context");
        assert_eq!(context.priority(), Priority::Lifecycle);
        assert_eq!(context.max_staleness, Some(prost_types::Duration::default()), "live");
    }
    eventually("the Event is emitted", || {
        world
            .has_event("DeletingNode", "n1: Deleting node n1 because it does not exist in the cloud provider")
    })
    .await;
    let events = world.kube.event_objects();
    let event =
        events.iter().find(|event| event.reason.as_deref() == Some("DeletingNode")).expect("the node exists");
    assert_eq!(event.type_.as_deref(), Some("Normal"));
    assert_eq!(event.reporting_component.as_deref(), Some("cloud-node-lifecycle-controller"));
    assert_eq!(event.involved_object.uid.as_deref(), Some("uid-n1"));
    let writes = world.kube.writes();
    let [delete] = writes.as_slice() else { panic!("{writes:?}") };
    assert_eq!((delete.method.as_str(), delete.path.as_str()), ("DELETE", "/api/v1/nodes/n1"));
    assert_eq!(delete.body["preconditions"]["uid"], "uid-n1");
    assert!(delete.body["preconditions"]["resourceVersion"].is_string(), "{delete:?}");
}

/// In a rolling update, the next replica of the adapter answers before the adapter counts as unavailable.
#[tokio::test(start_paused = true)]
async fn replaced_adapter_is_asked_for_its_provider_id_scheme() {
    let world = running(3).await;
    sleep(Duration::from_mins(1)).await;
    let asked = world.cloud.calls("GetInfo");
    world.cloud.away(true);
    sleep(Duration::from_millis(10)).await;
    world.cloud.away(false);
    eventually("the cloud is asked", || world.cloud.calls("GetInfo") == asked + 1).await;
    sleep(Duration::from_mins(10)).await;
    assert_eq!(world.cloud.calls("GetInfo"), asked + 1, "once");
}

// Behaviour: P12
#[tokio::test(start_paused = true)]
async fn no_node_is_deleted_while_the_adapter_is_in_another_project() {
    let world = running(3).await;
    world.cloud.moves_to("other");
    world.lose("n1");
    sleep(Duration::from_mins(10)).await;
    assert!(world.exists("n1"));
    assert!(world.has_event("CloudMoved", "The adapter now uses project other, not fake."));
    world.cloud.moves_to("fake");
    eventually("the node is deleted", || !world.exists("n1")).await;
}

// Behaviour: ND4, W1
#[tokio::test(start_paused = true)]
async fn unready_node_with_a_listed_instance_costs_nothing() {
    let world = running(200).await;
    for n in 0..200 {
        world.set_ready(&format!("n{n}"), "Unknown");
    }
    sleep(Duration::from_hours(1)).await;
    assert_eq!(world.cloud.calls("BatchGetInstances"), 0);
    assert!(world.kube.writes().is_empty(), "{:?}", world.kube.writes());
    assert!(world.kube.events().is_empty(), "{:?}", world.kube.events());
}

// Behaviour: ND1
#[tokio::test(start_paused = true)]
async fn ready_node_is_never_deleted() {
    let world = running(3).await;
    world.cloud.end(&id("n1"));
    sleep(Duration::from_hours(1)).await;
    assert!(world.exists("n1"));
    assert_eq!(world.cloud.calls("BatchGetInstances"), 0, "the cloud is not asked");
}

// Behaviour: ND6
#[tokio::test(start_paused = true)]
async fn unproven_absence_deletes_nothing_and_is_reported() {
    let world = running(3).await;
    world.cloud.edit(|state| drop(state.instances.remove(&id("n1"))));
    world.set_ready("n1", "Unknown");
    eventually("the Event is emitted", || world.has_event("InstanceNotVisible", "kubectl delete node n1"))
        .await;
    sleep(Duration::from_hours(6)).await;
    assert!(world.exists("n1"));
    assert_eq!(world.n_deletions(), 0);
    // The delay doubles from 5 s to 5 min.
    let questions = world.cloud.calls("BatchGetInstances");
    assert!((70..=80).contains(&questions), "{questions}");
}

// Behaviour: ND6
#[tokio::test(start_paused = true)]
async fn error_of_the_cloud_deletes_nothing() {
    let world = running(3).await;
    world.lose("n1");
    world.cloud.edit(|state| state.failing.insert(id("n1")));
    sleep(Duration::from_hours(1)).await;
    assert!(world.exists("n1"));
    world.cloud.edit(|state| state.failing.clear());
    eventually("the node is deleted when the cloud answers again", || !world.exists("n1")).await;
}

// Behaviour: ND6
#[tokio::test(start_paused = true)]
async fn error_of_the_cloud_is_reported_each_hour() {
    let world = running(3).await;
    world.lose("n1");
    world.cloud.edit(|state| state.failing.insert(id("n1")));
    let words = "n1: The node is not deleted: the cloud returned an error for its instance: ";
    eventually("the Event is emitted", || world.has_event("CloudProviderFailed", words)).await;
    assert!(world.has_event("CloudProviderFailed", "VENDOR_UNAVAILABLE: ordered by the test"));
    // The error alternates with answers.
    for n in 0..16 {
        sleep(Duration::from_mins(15)).await;
        world.cloud.edit(|state| {
            state.gone.remove(&id("n1"));
            if n % 2 == 0 { state.failing.remove(&id("n1")) } else { state.failing.insert(id("n1")) }
        });
    }
    let reported = |event: &&String| event.contains(" CloudProviderFailed n1: ");
    let n_events = world.kube.events().iter().filter(reported).count();
    assert!((2..=5).contains(&n_events), "{n_events} in 4 h: {:?}", world.kube.events());
}

#[tokio::test(start_paused = true)]
async fn throttled_request_is_retried_after_its_delay() {
    let world = running(3).await;
    let error = AdapterError::new(Reason::VendorThrottled, "slow down").retry_after(Duration::from_secs(100));
    world.cloud.fail_next("BatchGetInstances", error);
    world.lose("n1");
    sleep(Duration::from_secs(95)).await;
    assert_eq!(world.cloud.calls("BatchGetInstances"), 1);
    eventually("the node is deleted", || !world.exists("n1")).await;
    assert_eq!(world.cloud.calls("BatchGetInstances"), 3);
    assert!(!world.has_event("CloudProviderFailed", ""), "a single error is not reported");
}

// Behaviour: ND8, W3
#[tokio::test(start_paused = true)]
async fn nodes_of_other_clouds_or_without_an_instance_are_left_alone() {
    let mut world = World::new();
    world.cloud.put(instance(&id("n0")).named("n0"));
    for (name, id) in [("aws", "aws:///z/i-1"), ("odd", "i-1"), ("other", "simulated://north/i-1")] {
        world.kube.put::<Node>(node(name).provider_id(id).ready("Unknown"));
    }
    world.kube.put::<Node>(node("none").ready("Unknown"));
    world.start();
    sleep(Duration::from_hours(2)).await;
    assert_eq!(world.cloud.calls("BatchGetInstances"), 0);
    assert!(world.kube.writes().is_empty(), "{:?}", world.kube.writes());
}

// Behaviour: ND9
#[tokio::test(start_paused = true)]
async fn initialised_node_of_another_cloud_is_reported_once() {
    let mut world = World::new();
    world.cloud.put(instance(&id("n0")).named("n0"));
    world.kube.put::<Node>(known("n0").ready("True"));
    for (name, id, ready) in [
        ("aws", "aws:///z/i-1", "True"),
        ("down", "simulated://north/i-1", "Unknown"),
        ("odd", "i-1", "True"),
    ] {
        world.kube.put::<Node>(node(name).provider_id(id).ready(ready));
    }
    world.start();
    let words = "Ignoring the node: aws:///z/i-1 does not belong to cloud sim://. \
                 If it is gone: kubectl delete node aws";
    eventually("the Event is emitted", || world.has_event("InstanceOfAnotherCloud", words)).await;
    sleep(Duration::from_hours(26)).await;
    let events = world.kube.events();
    let reported: Vec<_> = events.iter().filter(|event| event.contains(" InstanceOfAnotherCloud ")).collect();
    assert_eq!(reported.len(), 2, "aws and down, once each: {reported:#?}");
    assert!(
        reported.iter().all(|event| !event.contains(" odd:") && !event.contains(" n0:")),
        "{reported:#?}"
    );
    assert_eq!(world.cloud.calls("BatchGetInstances"), 0);
    // The Event is emitted again when the condition begins again.
    world.cloud.edit(|state| state.info.provider = "aws".to_owned());
    world.cloud.away(true);
    sleep(Duration::from_secs(30)).await;
    world.cloud.away(false);
    eventually("the other nodes are reported", || {
        world.has_event("InstanceOfAnotherCloud", "sim://north/n0 does not belong")
    })
    .await;
}

// Behaviour: ND5
#[tokio::test(start_paused = true)]
async fn unavailable_adapter_deletes_nothing() {
    let world = running(3).await;
    world.lose("n1");
    world.cloud.away(true);
    sleep(Duration::from_hours(1)).await;
    assert!(world.exists("n1"));
    world.cloud.away(false);
    eventually("the node is deleted", || !world.exists("n1")).await;
}

#[tokio::test(start_paused = true)]
async fn node_whose_instance_returns_stays() {
    let world = running(3).await;
    world.lose("n1");
    eventually("the cloud was asked", || world.cloud.calls("BatchGetInstances") == 1).await;
    world.cloud.put(instance(&id("n1")).named("n1"));
    sleep(Duration::from_secs(20)).await;
    world.cloud.edit(|state| drop(state.instances.remove(&id("n1"))));
    sleep(Duration::from_secs(29)).await;
    assert!(world.exists("n1"), "the proof starts again");
}

#[tokio::test(start_paused = true)]
async fn node_that_is_ready_for_a_moment_starts_again() {
    let world = running(3).await;
    world.lose("n1");
    eventually("the cloud was asked", || world.cloud.calls("BatchGetInstances") == 1).await;
    sleep(Duration::from_secs(25)).await;
    world.set_ready("n1", "True");
    sleep(Duration::from_secs(10)).await;
    world.set_ready("n1", "Unknown");
    sleep(Duration::from_secs(29)).await;
    assert!(world.exists("n1"));
    eventually("the node is deleted", || !world.exists("n1")).await;
}

// Behaviour: ND11
#[tokio::test(start_paused = true)]
async fn short_sign_of_life_counts() {
    for name in ["ready", "listed"] {
        let world = running(3).await;
        world.lose("n1");
        eventually("the cloud was asked", || world.cloud.calls("BatchGetInstances") == 1).await;
        sleep(Duration::from_secs(26)).await;
        match name {
            "ready" => world.set_ready("n1", "True"),
            _ => world.cloud.put(instance(&id("n1")).named("n1")),
        }
        sleep(Duration::from_millis(10)).await;
        world.lose("n1");
        sleep(Duration::from_secs(29)).await;
        assert!(world.exists("n1"), "{name}: the proof starts again");
        eventually("the node is deleted", || !world.exists("n1")).await;
    }
}

// Behaviour: ND11
#[tokio::test(start_paused = true)]
async fn node_that_becomes_ready_at_the_last_moment_stays() {
    let world = running(3).await;
    // The cache of the nodes is disconnected, so it does not show the changes.
    world.lose("n1");
    eventually("the cloud was asked", || world.cloud.calls("BatchGetInstances") == 1).await;
    sleep(Duration::from_secs(5)).await;
    world.kube.order(Fault::slow(Duration::from_secs(3)).on(Verb::Get, "nodes"));
    eventually("the cloud was asked again", || world.cloud.calls("BatchGetInstances") == 2).await;
    world.kube.order(Fault::hang().on(Verb::Watch, "nodes"));
    world.set_ready("n1", "True");
    sleep(Duration::from_secs(60)).await;
    assert!(world.exists("n1"));
}

#[tokio::test(start_paused = true)]
async fn node_that_changes_before_its_deletion_is_checked_again() {
    let world = running(3).await;
    world.kube.before_next_write(|kube: &FakeKube| {
        kube.change::<Node>(&ObjectName::cluster("n1"), |node| {
            node.metadata.labels.get_or_insert_default().insert("new".to_owned(), "label".to_owned());
        });
    });
    world.lose("n1");
    eventually("the node is deleted in spite of this", || !world.exists("n1")).await;
    assert_eq!(world.n_deletions(), 2, "the first attempt was refused");
    assert!(!world.has_event("DeletingNodeFailed", ""), "{:?}", world.kube.events());
}

// Behaviour: ND11
#[tokio::test(start_paused = true)]
async fn recreated_node_is_not_deleted_for_the_old_one() {
    let world = running(3).await;
    world.kube.before_next_write(|kube: &FakeKube| {
        kube.delete::<Node>(&ObjectName::cluster("n1"));
        kube.put::<Node>(node("n1").uid("uid-new").provider_id("sim://north/new").ready("Unknown"));
    });
    world.cloud.put(instance("sim://north/new").named("n1"));
    world.lose("n1");
    eventually("the call is attempted", || world.n_deletions() == 1).await;
    sleep(Duration::from_mins(10)).await;
    assert_eq!(world.node("n1").metadata.uid.as_deref(), Some("uid-new"));
    assert_eq!(world.n_deletions(), 1);
}

// Behaviour: ND7
#[tokio::test(start_paused = true)]
async fn failed_deletion_is_reported_and_retried() {
    for fault in [Fault::status(500), Fault::throttled(Duration::from_secs(1)), Fault::hang()] {
        let world = running(3).await;
        world.kube.order(fault.on(Verb::Delete, "nodes").times(1));
        world.lose("n1");
        eventually("the Event is emitted", || {
            world.has_event("DeletingNodeFailed", "Failed deleting node n1: ")
        })
        .await;
        sleep(Duration::from_mins(11)).await;
        assert!(!world.exists("n1"));
    }
}

#[tokio::test(start_paused = true)]
async fn node_deleted_by_another_client_is_not_a_failure() {
    let world = running(3).await;
    world.kube.before_next_write(|kube: &FakeKube| kube.delete::<Node>(&ObjectName::cluster("n1")));
    world.lose("n1");
    eventually("it is gone", || !world.exists("n1")).await;
    sleep(Duration::from_mins(10)).await;
    assert!(!world.has_event("DeletingNodeFailed", ""), "{:?}", world.kube.events());
    assert_eq!(world.n_deletions(), 1);
}

// Behaviour: ND10
#[tokio::test(start_paused = true)]
async fn new_node_whose_instance_is_not_listed_yet_is_not_deleted() {
    let mut world = World::new();
    world.settings.lifecycle.limits.window = Duration::from_secs(1);
    world.start();
    sleep(Duration::from_secs(10)).await;
    world.cloud.edit(|state| state.gone.insert(id("young")));
    let created = world.cloud.clock().now();
    world.kube.put::<Node>(known("young").uninitialised().ready("False").created(created));
    sleep(Duration::from_secs(280)).await;
    assert!(world.exists("young"));
    eventually("after five minutes it may be deleted", || !world.exists("young")).await;
}

// Behaviour: W5
#[tokio::test(start_paused = true)]
async fn hanging_write_does_not_block_other_deletions() {
    let world = running(20).await;
    world.kube.order(Fault::hang().on(Verb::Delete, "nodes").of("n1"));
    for name in ["n1", "n2", "n3"] {
        world.lose(name);
    }
    sleep(Duration::from_secs(45)).await;
    assert!(world.exists("n1") && !world.exists("n2") && !world.exists("n3"));
}

#[tokio::test(start_paused = true)]
async fn unavailable_api_server_only_delays() {
    let world = running(3).await;
    world.kube.away(true);
    world.lose("n1");
    sleep(Duration::from_mins(30)).await;
    assert!(world.exists("n1"));
    world.kube.away(false);
    eventually("the node is deleted", || !world.exists("n1")).await;
}

/// The bound in the README counts from the moment when the node is not ready and its instance is not listed. For the time `unproven_for`
/// after this moment, the cloud cannot prove the absence.
fn bound(unproven_for: Duration) -> Duration {
    let settings = SETTINGS.lifecycle;
    2 * unproven_for + Duration::from_secs(5) + settings.confirm_after + 2 * settings.period
}

// Behaviour: ND7
#[tokio::test(start_paused = true)]
async fn time_from_loss_to_deletion_is_bounded() {
    for (ends_for, unproven_for) in [(0, 0), (200, 0), (0, 30), (33, 30), (200, 30), (1000, 30), (200, 120)] {
        let (ends_for, unproven_for) = (Duration::from_secs(ends_for), Duration::from_secs(unproven_for));
        let world = running(3).await;
        world.cloud.put(instance(&id("n1")).named("n1").state(InstanceState::Terminating));
        world.set_ready("n1", "Unknown");
        sleep(ends_for).await;
        world.cloud.edit(|state| drop(state.instances.remove(&id("n1"))));
        let lost = Instant::now();
        sleep(unproven_for).await;
        world.cloud.end(&id("n1"));
        eventually("the node is deleted", || !world.exists("n1")).await;
        let (took, bound) = (lost.elapsed(), bound(unproven_for));
        assert!(
            took <= bound,
            "{took:?} and not {bound:?} after {ends_for:?}, unproven for {unproven_for:?}"
        );
    }
}

// Behaviour: P31
#[tokio::test(start_paused = true)]
async fn instance_lost_while_no_controller_ran_is_noticed() {
    let mut world = running(4).await;
    world.stop().await;
    world.lose("n1");
    world.kube.delete::<Node>(&ObjectName::cluster("n2"));
    world.cloud.end(&id("n2"));
    world.start();
    eventually("the node is deleted", || !world.exists("n1")).await;
    sleep(WARM).await;
    assert!(world.exists("n0") && world.exists("n3"));
    assert_eq!((world.n_deletions(), world.cloud.calls("BatchGetInstances")), (1, 2), "n2 is not reported");
}

// Behaviour: P31
#[tokio::test(start_paused = true)]
async fn adapter_gets_witnesses_of_the_cluster() {
    let world = running(4).await;
    world.cloud.edit(|state| state.wants_witnesses = true);
    world.lose("n1");
    eventually("the node is deleted", || !world.exists("n1")).await;
    assert!(["n0", "n2", "n3"].iter().all(|name| world.exists(name)));
    let asked: Vec<usize> =
        world.cloud.read(|state| state.batch_gets.iter().map(|request| request.refs.len()).collect());
    assert_eq!(asked, [1, 3, 3], "each request after a failed proof has witnesses");
}

#[tokio::test(start_paused = true)]
async fn lost_instances_are_no_witnesses() {
    let world = running(3).await;
    world.cloud.edit(|state| state.wants_witnesses = true);
    for name in ["n0", "n1", "n2"] {
        world.lose(name);
    }
    sleep(Duration::from_hours(1)).await;
    assert!(["n0", "n1", "n2"].iter().all(|name| world.exists(name)));
    assert!(world.cloud.read(|state| state.batch_gets.iter().all(|request| request.refs.len() == 3)));
}

// Behaviour: P32
#[tokio::test(start_paused = true)]
async fn repeated_conflicts_do_not_prevent_a_deletion() {
    let world = running(3).await;
    for n in 0..20 {
        world.kube.before_next_write(move |kube: &FakeKube| {
            kube.change::<Node>(&ObjectName::cluster("n1"), |node| {
                let labels = node.metadata.labels.get_or_insert_default();
                labels.insert("new".to_owned(), n.to_string());
            });
        });
    }
    world.lose("n1");
    eventually("the node is deleted in the end", || !world.exists("n1")).await;
    assert_eq!(world.n_deletions(), 21);
    assert!(!world.has_event("DeletingNodeFailed", "") && !world.has_event("DeletionHeld", ""));
}

// Behaviour: ND6, P30
#[tokio::test(start_paused = true)]
async fn adapter_that_refuses_requests_deletes_nothing() {
    for trouble in ["lacks the call", "forbids it", "says nothing"] {
        let world = running(3).await;
        match trouble {
            "lacks the call" => world.cloud.without("BatchGetInstances"),
            "forbids it" => {
                for _ in 0..100 {
                    let refusal = AdapterError::new(Reason::CallerForbidden, "you may not");
                    world.cloud.fail_next("BatchGetInstances", refusal);
                }
            }
            _ => {}
        }
        world.lose("n1");
        if trouble == "says nothing" {
            world.cloud.hang(true);
        }
        sleep(Duration::from_hours(1)).await;
        assert!(world.exists("n1"), "{trouble}");
        let questions = world.cloud.calls("BatchGetInstances");
        assert!(questions < 30, "{trouble}: {questions} requests in an hour");
        world.cloud.with("BatchGetInstances");
        world.cloud.edit(|state| state.errors.clear());
        world.cloud.hang(false);
        eventually("the node is deleted when the cloud can be asked", || !world.exists("n1")).await;
    }
}
