//! Tests the whole controller with a fake API server and a fake cloud, on paused time.

mod brake;
mod cost;
mod explain;
mod faults;
mod history;
mod initialisation;
mod lifecycle;
mod mass_loss;
mod progress;
mod rehearse;
mod reminders;
mod shards;
mod sharing;
mod shutdown;
mod spans;
mod world;

use std::time::Duration;

use cloud_api_proto::{AdapterError, Reason, v1alpha1::Priority};
use controller_core::{
    mirror::ObjectName,
    testing::{eventually, instance, node},
};
use k8s_openapi::api::core::v1::Node;

use self::world::{World, settle};

// Behaviour: NI16
#[tokio::test(start_paused = true)]
async fn node_older_than_the_listing_is_initialised_without_a_call() {
    let mut world = World::new();
    settle().await;
    world.cloud.put(instance("sim://north/i-1").named("a").at("10.0.0.1").external("192.0.2.1"));
    world.start();
    let joining = node("a").uninitialised().tainted("other", None, "NoSchedule").label("team", "blue");
    world.kube.put::<Node>(joining.address("Hostname", "a"));
    eventually("the node is initialised", || world.is_initialised("a")).await;

    let spec = world.node("a").spec.expect("a spec");
    assert_eq!(spec.provider_id.as_deref(), Some("sim://north/i-1"));
    assert_eq!(spec.taints.expect("the other taint").len(), 1);
    assert_eq!(world.addresses("a"), ["InternalIP=10.0.0.1", "ExternalIP=192.0.2.1", "Hostname=a"]);
    assert_eq!(world.label("a", "topology.kubernetes.io/zone").as_deref(), Some("north-1"));
    assert_eq!(world.label("a", "failure-domain.beta.kubernetes.io/zone").as_deref(), Some("north-1"));
    assert_eq!(world.label("a", "team").as_deref(), Some("blue"));
    assert_eq!(world.cloud.calls("BatchGetInstances"), 0);
    eventually("the Event is emitted", || world.has_event("Synced", "a: Node synced successfully")).await;
    settle().await;
    let paths: Vec<String> = world.kube.writes().into_iter().map(|write| write.path).collect();
    assert_eq!(
        paths,
        ["/api/v1/nodes/a/status", "/api/v1/nodes/a"],
        "first the addresses, then the other fields, then no further write"
    );
}

#[tokio::test(start_paused = true)]
async fn hundred_nodes_missing_in_the_cache_cost_few_calls() {
    let mut world = World::new();
    world.start();
    world.cloud.edit(|state| {
        for n in 0..100 {
            let id = format!("sim://north/i-{n}");
            let instance = instance(&id).named(&format!("n{n}")).at(&format!("10.0.0.{n}")).build();
            state.unlisted.push(id.clone());
            state.instances.insert(id, instance);
        }
    });
    for n in 0..100 {
        world.kube.put::<Node>(node(&format!("n{n}")).uninitialised());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    eventually("all nodes are initialised", || (0..100).all(|n| world.is_initialised(&format!("n{n}"))))
        .await;
    assert!(world.cloud.calls("BatchGetInstances") <= 2, "{}", world.cloud.calls("BatchGetInstances"));
    let priority =
        world.cloud.read(|state| state.batch_gets[0].context.clone().expect("a context").priority());
    assert_eq!(priority, Priority::Interactive);
    assert_eq!(world.kube.writes().len(), 200, "two writes per node");
}

#[tokio::test(start_paused = true)]
async fn hundred_nodes_younger_than_the_listing_cost_few_calls() {
    let mut world = World::new();
    for n in 0..100 {
        world.cloud.put(instance(&format!("sim://north/i-{n}")).named(&format!("n{n}")).at("10.0.0.1"));
    }
    world.cloud.lists(false);
    world.start();
    for n in 0..100 {
        world.kube.put::<Node>(node(&format!("n{n}")).uninitialised().created(world.cloud.clock().now()));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    eventually("all nodes are initialised", || (0..100).all(|n| world.is_initialised(&format!("n{n}"))))
        .await;
    assert!(world.cloud.calls("BatchGetInstances") <= 3, "{}", world.cloud.calls("BatchGetInstances"));
}

#[tokio::test(start_paused = true)]
async fn nodes_that_join_one_by_one_share_calls() {
    let mut world = World::new();
    world.start();
    for n in 0..20 {
        let name = format!("n{n}");
        world.put_unlisted(&format!("sim://north/i-{n}"), &name);
        let joining = node(&name).uninitialised().ready("True");
        world.kube.put::<Node>(joining.created(world.cloud.clock().now()));
        tokio::time::sleep(Duration::from_millis(400)).await;
    }
    eventually("all nodes are initialised", || (0..20).all(|n| world.is_initialised(&format!("n{n}")))).await;
    assert!(world.cloud.calls("BatchGetInstances") <= 5, "{}", world.cloud.calls("BatchGetInstances"));
}

// Behaviour: NI20
#[tokio::test(start_paused = true)]
async fn restart_costs_no_write_and_no_call() {
    let mut world = World::new();
    settle().await;
    for n in 0..20 {
        let name = format!("n{n}");
        let instance = instance(&format!("sim://north/i-{n}")).named(&name);
        world.cloud.put(instance.at(&format!("10.0.0.{n}")).at(&format!("fd00::{n}")));
        world.kube.put::<Node>(node(&name).uninitialised().address("Hostname", &name));
    }
    world.start();
    eventually("all nodes are initialised", || (0..20).all(|n| world.is_initialised(&format!("n{n}")))).await;
    settle().await;
    world.stop().await;
    let (writes, events) = (world.kube.writes().len(), world.kube.events());

    world.start();
    settle().await;
    assert_eq!(world.kube.writes().len(), writes);
    assert_eq!(world.kube.events(), events);
    assert_eq!(world.cloud.calls("BatchGetInstances"), 0);
}

// Behaviour: NI3
#[tokio::test(start_paused = true)]
async fn node_waits_for_its_instance_with_an_event() {
    let mut world = World::new();
    world.start();
    world.kube.put::<Node>(node("a").uninitialised());
    eventually("the Event is emitted", || world.has_event("InstanceNotVisible", "an instance named \"a\""))
        .await;
    assert!(
        world.has_event("InstanceNotVisible", "It lists no instances at all in project fake"),
        "{:?}",
        world.kube.events()
    );
    assert!(world.kube.writes().is_empty());
    world.cloud.put(instance("sim://north/i-1").named("a").at("10.0.0.1"));
    eventually("the watch reports it", || world.is_initialised("a")).await;
}

// Behaviour: NI4
#[tokio::test(start_paused = true)]
async fn instance_that_never_appears_is_looked_up_with_backoff() {
    let mut world = World::new();
    world.start();
    world.kube.put::<Node>(node("a").uninitialised());
    tokio::time::sleep(Duration::from_hours(1)).await;
    // The delay doubles from 1 s to 5 min. Within an hour, 9 attempts happen before the delay reaches 5 min, and 11 follow.
    let questions = world.cloud.calls("BatchGetInstances");
    assert!((15..=20).contains(&questions), "{questions}");
    assert!(world.kube.events().len() <= 3, "{}", world.kube.events().join("\n"));
}

// Behaviour: NI4
#[tokio::test(start_paused = true)]
async fn many_nodes_without_instances_share_calls() {
    let mut world = World::new();
    world.start();
    for n in 0..100 {
        world.kube.put::<Node>(node(&format!("n{n}")).uninitialised());
    }
    tokio::time::sleep(Duration::from_hours(1)).await;
    let questions = world.cloud.calls("BatchGetInstances");
    assert!(questions <= 20, "{questions}");
}

#[tokio::test(start_paused = true)]
async fn instance_that_only_a_call_finds_is_found() {
    let mut world = World::new();
    world.start();
    world.kube.put::<Node>(node("a").uninitialised());
    settle().await;
    world.put_unlisted("sim://north/i-1", "a");
    eventually("a later call finds it", || world.is_initialised("a")).await;
}

// Behaviour: NI6
#[tokio::test(start_paused = true)]
async fn ambiguous_name_is_not_resolved_by_guessing() {
    let mut world = World::new();
    world.cloud.put(instance("sim://north/i-1").named("a").at("10.0.0.1"));
    world.cloud.put(instance("sim://north/i-2").named("a").at("10.0.0.1"));
    world.kube.put::<Node>(node("a").uninitialised());
    world.start();
    eventually("the Event is emitted", || {
        world.has_event("InstanceAmbiguous", "sim://north/i-1, sim://north/i-2")
    })
    .await;
    assert!(!world.is_initialised("a"));
    world.cloud.edit(|state| drop(state.instances.remove("sim://north/i-1")));
    eventually("one instance is left", || world.is_initialised("a")).await;
    assert_eq!(world.provider_id("a").as_deref(), Some("sim://north/i-2"));
}

// Behaviour: NI6
#[tokio::test(start_paused = true)]
async fn ambiguous_name_found_by_a_call_is_not_resolved_by_guessing() {
    let mut world = World::new();
    world.put_unlisted("sim://north/i-1", "a");
    world.put_unlisted("sim://north/i-2", "a");
    world.kube.put::<Node>(node("a").uninitialised());
    world.start();
    eventually("the Event is emitted", || {
        world.has_event("CloudProviderFailed", "\"a\" names several instances")
    })
    .await;
    assert!(!world.is_initialised("a"));
    world.cloud.edit(|state| drop(state.instances.remove("sim://north/i-1")));
    eventually("one instance is left", || world.is_initialised("a")).await;
    assert_eq!(world.provider_id("a").as_deref(), Some("sim://north/i-2"));
}

// Behaviour: NI10
#[tokio::test(start_paused = true)]
async fn foreign_provider_id_keeps_the_node_waiting() {
    let mut world = World::new();
    world.start();
    for (name, id) in [("a", "aws:///z/i-1"), ("b", "test-provider-id")] {
        world.cloud.put(instance(&format!("sim://north/{name}")).named(name).at("10.0.0.1"));
        world.kube.put::<Node>(node(name).uninitialised().provider_id(id));
        eventually("the Event is emitted", || world.has_event("InstanceForeign", id)).await;
    }
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert!(!world.is_initialised("a") && !world.is_initialised("b"));
    assert!(world.kube.writes().is_empty(), "{:?}", world.kube.writes());
}

#[tokio::test(start_paused = true)]
async fn a_node_of_another_cloud_is_left_alone() {
    let mut world = World::new();
    world.start();
    world.kube.put::<Node>(node("a").uninitialised().provider_id("aws:///z/i-1"));
    eventually("the Event is emitted", || world.has_event("InstanceForeign", "aws:///z/i-1")).await;
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert_eq!(world.cloud.calls("BatchGetInstances"), 1);
    assert!(world.kube.writes().is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_event_of_a_node_names_why_the_adapter_cannot_reach_its_cloud() {
    let mut world = World::new();
    let cause = "the adapter cannot reach the cloud: Authenticate: keystone.example:5000: Connection refused";
    for _ in 0..20 {
        world.cloud.fail_next("WatchInstances", AdapterError::new(Reason::Starting, cause));
    }
    world.kube.put::<Node>(node("a").uninitialised());
    world.start();
    eventually("the Event is emitted", || world.has_event("CloudProviderUnavailable", cause)).await;
}

#[tokio::test(start_paused = true)]
async fn nodes_wait_for_an_unavailable_adapter_with_an_event() {
    let mut world = World::new();
    world.cloud.put(instance("sim://north/i-1").named("a").at("10.0.0.1"));
    world.cloud.away(true);
    world.kube.put::<Node>(node("a").uninitialised());
    world.start();
    eventually("the Event is emitted", || world.has_event("CloudProviderUnavailable", "unavailable since"))
        .await;
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert!(world.kube.writes().is_empty());
    assert!(world.kube.events().len() <= 10, "no Event flood:\n{}", world.kube.events().join("\n"));
    world.cloud.away(false);
    eventually("the controller continues", || world.is_initialised("a")).await;
}

// Behaviour: NI5
#[tokio::test(start_paused = true)]
async fn throttled_look_up_is_retried_after_its_delay() {
    let mut world = World::new();
    world.start();
    let error = AdapterError::new(Reason::VendorThrottled, "slow down").retry_after(Duration::from_secs(30));
    world.cloud.fail_next("BatchGetInstances", error);
    world.kube.put::<Node>(node("a").uninitialised());
    eventually("the Event is emitted", || {
        world.has_event("CloudProviderFailed", "VENDOR_THROTTLED: slow down")
    })
    .await;
    tokio::time::sleep(Duration::from_secs(25)).await;
    assert_eq!(world.cloud.calls("BatchGetInstances"), 1);
    eventually("the controller asks again", || world.cloud.calls("BatchGetInstances") == 2).await;
}

/// An adapter's fail-over, or a burst of calls, is over within seconds, so it needs no Event.
#[tokio::test(start_paused = true)]
async fn short_outage_of_the_adapter_emits_no_event() {
    let mut world = World::new();
    world.start();
    world.cloud.edit(|state| {
        state.unlisted.push("sim://north/i-1".to_owned());
        let instance = instance("sim://north/i-1").named("a").at("10.0.0.1").build();
        state.instances.insert("sim://north/i-1".to_owned(), instance);
    });
    for reason in [Reason::NotLeader, Reason::QueueFull] {
        world.cloud.fail_next("BatchGetInstances", AdapterError::new(reason, "not now"));
    }
    world.kube.put::<Node>(node("a").uninitialised());
    eventually("the node is initialised", || world.is_initialised("a")).await;
    assert_eq!(world.cloud.calls("BatchGetInstances"), 3);
    assert!(!world.has_event("CloudProviderFailed", ""), "{:?}", world.kube.events());
}

// Behaviour: P30
#[tokio::test(start_paused = true)]
async fn forbidden_call_is_reported_on_the_waiting_node() {
    let mut world = World::new();
    world.start();
    world.cloud.fail_next("BatchGetInstances", AdapterError::new(Reason::CallerForbidden, "you may not"));
    world.kube.put::<Node>(node("a").uninitialised());
    eventually("the Event is emitted", || {
        world.has_event("CloudProviderFailed", "CALLER_FORBIDDEN: you may not")
    })
    .await;
}

// Behaviour: NA1, NA10, W7
#[tokio::test(start_paused = true)]
async fn later_changes_in_the_cloud_are_written_alone() {
    let mut world = World::new();
    let machine = instance("sim://north/i-1").named("a").at("10.0.0.1");
    world.cloud.put(machine.clone());
    world.kube.put::<Node>(node("a").uninitialised());
    world.start();
    eventually("the node is initialised", || world.is_initialised("a")).await;
    settle().await;
    let before = world.kube.writes().len();

    world.cloud.put(machine.clone().of_type("large").external("192.0.2.1"));
    eventually("the address is written", || {
        world.addresses("a") == ["InternalIP=10.0.0.1", "ExternalIP=192.0.2.1"]
    })
    .await;
    let size = || world.label("a", "node.kubernetes.io/instance-type");
    eventually("the label is written", || size().as_deref() == Some("large")).await;
    assert_eq!(world.label("a", "beta.kubernetes.io/instance-type").as_deref(), Some("large"));
    assert_eq!(world.kube.writes().len(), before + 2);

    world.cloud.edit(|state| state.instances.clear());
    settle().await;
    assert_eq!(world.kube.writes().len(), before + 2, "an instance that is not listed changes nothing");
    assert_eq!(world.addresses("a").len(), 2);
}

// Behaviour: NA5, W9
#[tokio::test(start_paused = true)]
async fn addresses_keep_the_clouds_order_and_are_written_once() {
    let mut world = World::new();
    let machine = instance("sim://north/i-1").named("a");
    world.cloud.put(machine.at("10.0.0.1").external("192.0.2.1").at("fd00::1"));
    world.kube.put::<Node>(node("a").uninitialised());
    world.start();
    eventually("the node is initialised", || world.is_initialised("a")).await;
    settle().await;
    assert_eq!(world.addresses("a"), ["InternalIP=10.0.0.1", "ExternalIP=192.0.2.1", "InternalIP=fd00::1"]);

    let before = world.kube.writes().len();
    world.stop().await;
    world.start();
    settle().await;
    assert_eq!(world.kube.writes().len(), before);
}

// Behaviour: NI2
#[tokio::test(start_paused = true)]
async fn heartbeats_and_users_labels_cause_no_work() {
    let mut world = World::new();
    settle().await;
    world.cloud.put(instance("sim://north/i-1").named("a").at("10.0.0.1"));
    world.kube.put::<Node>(node("a").uninitialised());
    world.start();
    eventually("the node is initialised", || world.is_initialised("a")).await;
    settle().await;
    let before = world.kube.writes().len();
    for n in 0..100 {
        world.kube.change::<Node>(&ObjectName::cluster("a"), |node| {
            let labels = node.metadata.labels.get_or_insert_default();
            labels.insert("user".to_owned(), n.to_string());
        });
        tokio::time::sleep(Duration::from_secs(10)).await;
    }
    assert_eq!(world.kube.writes().len(), before);
    assert_eq!(world.cloud.calls("BatchGetInstances"), 0);
}

#[tokio::test(start_paused = true)]
async fn taint_added_by_another_client_survives() {
    let mut world = World::new();
    world.cloud.put(instance("sim://north/i-1").named("a"));
    // The address is written already, so that the only write is the patch.
    world.kube.put::<Node>(node("a").at("10.0.0.1").uninitialised());
    // The patch that removes the taint is refused, as if the list of taints had changed in between.
    world.kube.refuse_next(422);
    world.start();
    eventually("the controller retries", || world.is_initialised("a")).await;
    assert_eq!(world.kube.writes().len(), 2);
}

// Behaviour: NI19
#[tokio::test(start_paused = true)]
async fn recreated_node_is_another_node() {
    let mut world = World::new();
    world.cloud.put(instance("sim://north/i-1").named("a").at("10.0.0.1"));
    world.kube.put::<Node>(node("a").uninitialised());
    world.start();
    eventually("the node is initialised", || world.is_initialised("a")).await;
    world.kube.delete::<Node>(&ObjectName::cluster("a"));
    world.kube.put::<Node>(node("a").uid("uid-a2").uninitialised());
    eventually("the second node is initialised, too", || world.is_initialised("a")).await;
    assert_eq!(world.node("a").metadata.uid.as_deref(), Some("uid-a2"));
}

// Behaviour: NI7
#[tokio::test(start_paused = true)]
async fn replaced_instance_is_not_confused_with_the_new_one() {
    let mut world = World::new();
    world.cloud.put(instance("sim://north/i-1").named("a").at("10.0.0.1"));
    world.cloud.lists(false);
    world.start();
    settle().await;
    world.cloud.edit(|state| {
        state.instances.clear();
        let new = instance("sim://north/i-2").named("a").at("10.0.0.1").build();
        state.instances.insert(new.provider_id.clone(), new);
    });
    world.kube.put::<Node>(node("a").uninitialised().created(world.cloud.clock().now()));
    eventually("the node is initialised", || world.is_initialised("a")).await;
    assert_eq!(world.provider_id("a").as_deref(), Some("sim://north/i-2"));
    assert_eq!(world.cloud.calls("BatchGetInstances"), 1);
}

// Behaviour: NI7
#[tokio::test(start_paused = true)]
async fn answer_is_not_given_to_the_next_node_of_the_name() {
    let mut world = World::new();
    world.start();
    world.put_unlisted("sim://north/i-1", "a");
    world.kube.put::<Node>(node("a").uninitialised());
    eventually("the node is initialised", || world.is_initialised("a")).await;
    assert_eq!(world.provider_id("a").as_deref(), Some("sim://north/i-1"));

    world.kube.delete::<Node>(&ObjectName::cluster("a"));
    world.cloud.edit(|state| drop(state.instances.remove("sim://north/i-1")));
    world.put_unlisted("sim://north/i-2", "a");
    world.kube.put::<Node>(node("a").uid("uid-a2").uninitialised());
    eventually("the second node is initialised, too", || world.is_initialised("a")).await;
    assert_eq!(world.provider_id("a").as_deref(), Some("sim://north/i-2"));
}

#[tokio::test(start_paused = true)]
async fn recovered_api_server_receives_all_writes() {
    let mut world = World::new();
    world.cloud.put(instance("sim://north/i-1").named("a").at("10.0.0.1"));
    world.kube.put::<Node>(node("a").uninitialised());
    world.kube.away(true);
    world.start();
    tokio::time::sleep(Duration::from_mins(10)).await;
    world.kube.away(false);
    eventually("the controller continues", || world.is_initialised("a")).await;
    world.stop().await;
}
