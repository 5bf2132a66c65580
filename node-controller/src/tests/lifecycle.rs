//! The end of nodes, with the whole controller.

use std::time::Duration;

use cloud_api_proto::{
    AdapterError, Reason,
    v1alpha1::{InstanceState, Priority},
};
use controller_core::{
    mirror::ObjectName,
    node::{DELETE_DESPITE_BRAKE, SHUTDOWN, TO_BE_DELETED, taints},
    testing::{FakeKube, Fault, NodeBuilder, Verb, eventually, instance, node},
};
use k8s_openapi::api::core::v1::{Node, Taint};
use tokio::time::{Instant, sleep};

use super::world::{SETTINGS, World};
use crate::plan::labels::PAIRS;

/// The brake begins empty: this is when it may let go whatever it may within a window.
const WARM: Duration = Duration::from_secs(601);

/// As `node`, initialised and on its machine.
pub(super) fn known(name: &str) -> NodeBuilder {
    let values = ["small", "north-1", "north"];
    let labels = PAIRS.iter().zip(values).flat_map(|(pair, value)| pair.map(|key| (key, value)));
    labels.fold(node(name).provider_id(&id(name)), |node, (key, value)| node.label(key, value))
}

pub(super) fn id(name: &str) -> String {
    format!("sim://north/{name}")
}

/// So many nodes, `n0` and so on, that run on machines of the cloud, and a controller that has been at work for a while.
async fn running(n_nodes: usize) -> World {
    let mut world = World::new();
    for n in 0..n_nodes {
        let name = format!("n{n}");
        world.cloud.put(instance(&id(&name)).named(&name));
        world.kube.put::<Node>(known(&name).ready("True"));
    }
    world.start();
    sleep(WARM).await;
    world
}

impl World {
    pub(super) fn set_ready(&self, name: &str, status: &str) {
        self.kube.change::<Node>(&ObjectName::cluster(name), |node| {
            let again: Node = controller_core::testing::node("x").ready(status).build();
            let conditions = again.status.and_then(|status| status.conditions);
            node.status.get_or_insert_default().conditions = conditions;
        });
    }

    pub(super) fn exists(&self, name: &str) -> bool {
        self.node(name).metadata.name.is_some()
    }

    fn has_shutdown_taint(&self, name: &str) -> bool {
        taints(&self.node(name)).iter().any(|taint| taint.key == SHUTDOWN && taint.effect == "NoSchedule")
    }

    fn n_deletions(&self) -> usize {
        self.kube.writes().iter().filter(|write| write.method == "DELETE").count()
    }

    /// The machine goes, and the kubelet with it.
    fn lose(&self, name: &str) {
        self.cloud.end(&id(name));
        self.set_ready(name, "Unknown");
    }

    fn let_go(&self, name: &str, uid: &str) {
        self.kube.change::<Node>(&ObjectName::cluster(name), |node| {
            let annotations = node.metadata.annotations.get_or_insert_default();
            annotations.insert(DELETE_DESPITE_BRAKE.to_owned(), uid.to_owned());
        });
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_goes_when_its_machine_is_proven_to_be_gone() {
    let world = running(3).await;
    world.lose("n1");
    sleep(Duration::from_secs(29)).await;
    assert!(world.exists("n1"), "one word is no proof");
    eventually("it goes", || !world.exists("n1")).await;
    assert_eq!(world.cloud.calls("BatchGetInstances"), 2);
    let requests = world.cloud.read(|state| state.batch_gets.clone());
    for request in requests {
        let context = request.context.expect("a context");
        assert_eq!(context.priority(), Priority::Lifecycle);
        assert_eq!(context.max_staleness, Some(prost_types::Duration::default()), "live");
    }
    eventually("it is told", || {
        world
            .has_event("DeletingNode", "n1: Deleting node n1 because it does not exist in the cloud provider")
    })
    .await;
    let events = world.kube.event_objects();
    let event =
        events.iter().find(|event| event.reason.as_deref() == Some("DeletingNode")).expect("it is there");
    assert_eq!(event.type_.as_deref(), Some("Normal"));
    assert_eq!(event.reporting_controller.as_deref(), Some("cloud-node-lifecycle-controller"));
    assert_eq!(event.regarding.as_ref().and_then(|node| node.uid.as_deref()), Some("uid-n1"));
    let writes = world.kube.writes();
    let [delete] = writes.as_slice() else { panic!("{writes:?}") };
    assert_eq!((delete.method.as_str(), delete.path.as_str()), ("DELETE", "/api/v1/nodes/n1"));
    assert_eq!(delete.body["preconditions"]["uid"], "uid-n1");
    assert!(delete.body["preconditions"]["resourceVersion"].is_string(), "{delete:?}");
}

#[tokio::test(start_paused = true)]
async fn no_node_goes_while_the_adapter_is_in_another_project() {
    let world = running(3).await;
    world.cloud.moves_to("other");
    world.lose("n1");
    sleep(Duration::from_mins(10)).await;
    assert!(world.exists("n1"));
    assert!(
        world.has_event(
            "CloudMoved",
            "the cloud adapter works in another part of the cloud now: project other"
        )
    );
    world.cloud.moves_to("fake");
    eventually("it goes", || !world.exists("n1")).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_not_ready_costs_nothing_while_the_cloud_lists_its_machine() {
    let world = running(200).await;
    for n in 0..200 {
        world.set_ready(&format!("n{n}"), "Unknown");
    }
    sleep(Duration::from_hours(1)).await;
    assert_eq!(world.cloud.calls("BatchGetInstances"), 0);
    assert!(world.kube.writes().is_empty(), "{:?}", world.kube.writes());
    assert!(world.kube.events().is_empty(), "{:?}", world.kube.events());
}

#[tokio::test(start_paused = true)]
async fn a_ready_node_is_never_deleted_whatever_the_cloud_thinks() {
    let world = running(3).await;
    world.cloud.end(&id("n1"));
    sleep(Duration::from_hours(1)).await;
    assert!(world.exists("n1"));
    assert_eq!(world.cloud.calls("BatchGetInstances"), 0, "nobody even asks");
}

#[tokio::test(start_paused = true)]
async fn an_absence_that_is_not_proven_deletes_nothing_and_is_told() {
    let world = running(3).await;
    world.cloud.edit(|state| drop(state.instances.remove(&id("n1"))));
    world.set_ready("n1", "Unknown");
    eventually("it is told", || world.has_event("InstanceNotVisible", "kubectl delete node n1")).await;
    sleep(Duration::from_hours(24)).await;
    assert!(world.exists("n1"));
    assert_eq!(world.n_deletions(), 0);
    // 5 s doubling to 5 min.
    let questions = world.cloud.calls("BatchGetInstances");
    assert!((280..=300).contains(&questions), "{questions}");
}

#[tokio::test(start_paused = true)]
async fn a_cloud_that_cannot_tell_deletes_nothing() {
    let world = running(3).await;
    world.lose("n1");
    world.cloud.edit(|state| state.untold.insert(id("n1")));
    sleep(Duration::from_hours(1)).await;
    assert!(world.exists("n1"));
    world.cloud.edit(|state| state.untold.clear());
    eventually("it goes when the cloud can tell", || !world.exists("n1")).await;
}

#[tokio::test(start_paused = true)]
async fn a_throttled_question_is_repeated_when_the_cloud_said() {
    let world = running(3).await;
    let error = AdapterError::new(Reason::VendorThrottled, "slow down").retry_after(Duration::from_secs(100));
    world.cloud.fail_next("BatchGetInstances", error);
    world.lose("n1");
    sleep(Duration::from_secs(95)).await;
    assert_eq!(world.cloud.calls("BatchGetInstances"), 1);
    eventually("it goes", || !world.exists("n1")).await;
    assert_eq!(world.cloud.calls("BatchGetInstances"), 3);
}

#[tokio::test(start_paused = true)]
async fn nodes_of_other_clouds_and_nodes_without_a_machine_are_left_alone() {
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

#[tokio::test(start_paused = true)]
async fn an_adapter_that_is_away_deletes_nothing() {
    let world = running(3).await;
    world.lose("n1");
    world.cloud.away(true);
    sleep(Duration::from_hours(1)).await;
    assert!(world.exists("n1"));
    world.cloud.away(false);
    eventually("it goes", || !world.exists("n1")).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_whose_machine_comes_back_in_between_stays() {
    let world = running(3).await;
    world.lose("n1");
    eventually("it was asked about", || world.cloud.calls("BatchGetInstances") == 1).await;
    world.cloud.put(instance(&id("n1")).named("n1"));
    sleep(Duration::from_secs(20)).await;
    world.cloud.edit(|state| drop(state.instances.remove(&id("n1"))));
    sleep(Duration::from_secs(29)).await;
    assert!(world.exists("n1"), "it begins anew");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_ready_for_a_moment_begins_anew() {
    let world = running(3).await;
    world.lose("n1");
    eventually("it was asked about", || world.cloud.calls("BatchGetInstances") == 1).await;
    sleep(Duration::from_secs(25)).await;
    world.set_ready("n1", "True");
    sleep(Duration::from_secs(10)).await;
    world.set_ready("n1", "Unknown");
    sleep(Duration::from_secs(29)).await;
    assert!(world.exists("n1"));
    eventually("it goes", || !world.exists("n1")).await;
}

#[tokio::test(start_paused = true)]
async fn a_sign_of_life_counts_however_short_it_is() {
    for name in ["ready", "listed"] {
        let world = running(3).await;
        world.lose("n1");
        eventually("it was asked about", || world.cloud.calls("BatchGetInstances") == 1).await;
        sleep(Duration::from_secs(26)).await;
        match name {
            "ready" => world.set_ready("n1", "True"),
            _ => world.cloud.put(instance(&id("n1")).named("n1")),
        }
        sleep(Duration::from_millis(10)).await;
        world.lose("n1");
        sleep(Duration::from_secs(29)).await;
        assert!(world.exists("n1"), "{name}: it begins anew");
        eventually("it goes", || !world.exists("n1")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_becomes_ready_in_the_last_moment_stays() {
    let world = running(3).await;
    // The mirror of the nodes is cut off: it does not see what happens.
    world.lose("n1");
    eventually("it was asked about", || world.cloud.calls("BatchGetInstances") == 1).await;
    sleep(Duration::from_secs(5)).await;
    world.kube.order(Fault::slow(Duration::from_secs(3)).on(Verb::Get, "nodes"));
    eventually("it was asked about again", || world.cloud.calls("BatchGetInstances") == 2).await;
    world.kube.order(Fault::hang().on(Verb::Watch, "nodes"));
    world.set_ready("n1", "True");
    sleep(Duration::from_secs(60)).await;
    assert!(world.exists("n1"));
}

#[tokio::test(start_paused = true)]
async fn a_node_that_changes_between_the_look_and_the_deletion_is_looked_at_again() {
    let world = running(3).await;
    world.kube.before_next_write(|kube: &FakeKube| {
        kube.change::<Node>(&ObjectName::cluster("n1"), |node| {
            node.metadata.labels.get_or_insert_default().insert("new".to_owned(), "label".to_owned());
        });
    });
    world.lose("n1");
    eventually("it goes all the same", || !world.exists("n1")).await;
    assert_eq!(world.n_deletions(), 2, "the first was refused");
    assert!(!world.has_event("DeletingNodeFailed", ""), "{:?}", world.kube.events());
}

#[tokio::test(start_paused = true)]
async fn a_node_made_anew_under_its_name_is_not_deleted_for_the_old_one() {
    let world = running(3).await;
    world.kube.before_next_write(|kube: &FakeKube| {
        kube.delete::<Node>(&ObjectName::cluster("n1"));
        kube.put::<Node>(node("n1").uid("uid-new").provider_id("sim://north/new").ready("Unknown"));
    });
    world.cloud.put(instance("sim://north/new").named("n1"));
    world.lose("n1");
    eventually("it is tried", || world.n_deletions() == 1).await;
    sleep(Duration::from_mins(10)).await;
    assert_eq!(world.node("n1").metadata.uid.as_deref(), Some("uid-new"));
    assert_eq!(world.n_deletions(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_deletion_that_fails_is_told_and_tried_again() {
    for fault in [Fault::status(500), Fault::throttled(Duration::from_secs(1)), Fault::hang()] {
        let world = running(3).await;
        world.kube.order(fault.on(Verb::Delete, "nodes").times(1));
        world.lose("n1");
        eventually("it is told", || world.has_event("DeletingNodeFailed", "Failed deleting node n1: ")).await;
        sleep(Duration::from_mins(11)).await;
        assert!(!world.exists("n1"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_somebody_else_deletes_first_is_no_failure() {
    let world = running(3).await;
    world.kube.before_next_write(|kube: &FakeKube| kube.delete::<Node>(&ObjectName::cluster("n1")));
    world.lose("n1");
    eventually("it is gone", || !world.exists("n1")).await;
    sleep(Duration::from_mins(10)).await;
    assert!(!world.has_event("DeletingNodeFailed", ""), "{:?}", world.kube.events());
    assert_eq!(world.n_deletions(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_new_node_whose_machine_is_not_listed_yet_is_not_deleted() {
    let mut world = World::new();
    world.settings.lifecycle.limits.window = Duration::from_secs(1);
    world.start();
    sleep(Duration::from_secs(10)).await;
    world.cloud.edit(|state| state.gone.insert(id("young")));
    let created = world.cloud.clock().now();
    world.kube.put::<Node>(known("young").uninitialised().ready("False").created(created));
    sleep(Duration::from_secs(280)).await;
    assert!(world.exists("young"));
    eventually("after five minutes it may go", || !world.exists("young")).await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_is_switched_off_taints_its_node_until_that_is_ready() {
    let world = running(3).await;
    let other = Taint { key: "kept".to_owned(), effect: "NoExecute".to_owned(), ..Taint::default() };
    world.kube.change::<Node>(&ObjectName::cluster("n1"), |node| {
        node.spec.get_or_insert_default().taints = Some(vec![other.clone()]);
    });
    world.cloud.put(instance(&id("n1")).named("n1").state(InstanceState::Stopped));
    sleep(Duration::from_mins(1)).await;
    assert!(!world.has_shutdown_taint("n1"), "it is ready");
    world.set_ready("n1", "Unknown");
    eventually("it is tainted", || world.has_shutdown_taint("n1")).await;
    let ours = Taint { key: SHUTDOWN.to_owned(), effect: "NoSchedule".to_owned(), ..Taint::default() };
    assert_eq!(taints(&world.node("n1")), [other.clone(), ours]);
    sleep(Duration::from_hours(1)).await;
    assert_eq!(world.kube.writes().len(), 1, "once");

    world.cloud.put(instance(&id("n1")).named("n1"));
    sleep(Duration::from_mins(1)).await;
    assert!(world.has_shutdown_taint("n1"), "it stays until the node is ready");
    world.set_ready("n1", "True");
    eventually("it goes", || !world.has_shutdown_taint("n1")).await;
    assert_eq!(taints(&world.node("n1")), [other]);
    assert_eq!(world.cloud.calls("BatchGetInstances"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_taint_of_ours_does_not_cost_anybody_else_theirs() {
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
    eventually("it is tainted", || world.has_shutdown_taint("n1")).await;
    let node = world.node("n1");
    let keys: Vec<&str> = taints(&node).iter().map(|taint| taint.key.as_str()).collect();
    assert_eq!(keys, ["t0", "t1", "t2", SHUTDOWN]);
}

#[tokio::test(start_paused = true)]
async fn a_ready_node_loses_the_taint_though_the_adapter_says_nothing_any_more() {
    let world = running(3).await;
    world.cloud.put(instance(&id("n1")).named("n1").state(InstanceState::Stopped));
    world.set_ready("n1", "Unknown");
    eventually("it is tainted", || world.has_shutdown_taint("n1")).await;
    world.lose("n2");
    world.cloud.hang(true);
    sleep(Duration::from_secs(5)).await;
    world.set_ready("n1", "True");
    sleep(Duration::from_secs(6)).await;
    assert!(!world.has_shutdown_taint("n1"));
}

#[tokio::test(start_paused = true)]
async fn one_node_whose_write_hangs_keeps_no_other() {
    let world = running(20).await;
    world.kube.order(Fault::hang().on(Verb::Delete, "nodes").of("n1"));
    for name in ["n1", "n2", "n3"] {
        world.lose(name);
    }
    sleep(Duration::from_secs(45)).await;
    assert!(world.exists("n1") && !world.exists("n2") && !world.exists("n3"));
}

#[tokio::test(start_paused = true)]
async fn when_too_many_would_go_none_goes_and_everybody_is_told_once() {
    let world = running(10).await;
    for n in 0..4 {
        world.lose(&format!("n{n}"));
    }
    sleep(Duration::from_hours(24)).await;
    assert_eq!(world.n_deletions(), 0);
    for n in 0..4 {
        let words = format!("kubectl annotate node n{n} cloudadapter.dev/delete-despite-brake=uid-n{n}");
        assert!(world.has_event("DeletionHeld", &words), "{:?}", world.kube.events());
    }
    let whole = world.kube.events().into_iter().find(|event| event.contains("NodeDeletionBrakeTripped"));
    let whole = whole.expect("one for all");
    assert!(whole.contains("4 of 10") && whole.contains("no more than 3 may go within 10m"), "{whole}");
    let held = |event: &&String| event.contains(" DeletionHeld n1: ");
    let events = world.kube.events();
    let told = events.iter().filter(held).count();
    assert!((24..=25).contains(&told), "each hour: {told}");

    // One of them less, and the others are as many as may go.
    world.set_ready("n0", "True");
    eventually("the others go", || world.n_deletions() == 3).await;
}

#[tokio::test(start_paused = true)]
async fn whom_a_person_lets_go_goes_and_nobody_else() {
    let world = running(10).await;
    for n in 0..5 {
        world.lose(&format!("n{n}"));
    }
    eventually("they are held", || world.has_event("DeletionHeld", "")).await;
    world.let_go("n0", "uid-n0");
    world.let_go("n1", "uid-somebody-else");
    eventually("it goes", || !world.exists("n0")).await;
    sleep(Duration::from_mins(5)).await;
    assert_eq!(world.n_deletions(), 1, "four are still too many");
    world.let_go("n1", "uid-n1");
    eventually("the last three are as many as may go", || world.n_deletions() == 5).await;
}

#[tokio::test(start_paused = true)]
async fn to_let_a_node_go_is_no_proof() {
    let world = running(10).await;
    world.cloud.edit(|state| drop(state.instances.remove(&id("n1"))));
    world.set_ready("n1", "Unknown");
    world.let_go("n1", "uid-n1");
    sleep(Duration::from_hours(1)).await;
    assert!(world.exists("n1"));
}

#[tokio::test(start_paused = true)]
async fn of_three_nodes_one_goes_in_a_window() {
    let world = running(3).await;
    world.lose("n0");
    eventually("one goes", || !world.exists("n0")).await;
    world.lose("n1");
    sleep(Duration::from_mins(8)).await;
    assert!(world.exists("n1"));
    assert!(world.has_event("DeletionHeld", "n1: "), "{:?}", world.kube.events());
    sleep(Duration::from_mins(3)).await;
    assert!(!world.exists("n1"), "the next window");
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_is_started_over_and_over_deletes_no_more_than_one_that_runs() {
    let mut world = running(10).await;
    world.lose("n0");
    world.lose("n1");
    for _ in 0..10 {
        world.stop().await;
        world.start();
        sleep(Duration::from_mins(2)).await;
    }
    assert!(world.exists("n0") && world.exists("n1"), "3 of 10 may go in 10 minutes: the second after 3:20");
    assert!(world.has_event("DeletionDelayed", "n0: Will be deleted"), "{:?}", world.kube.events());
    assert!(!world.has_event("DeletionHeld", ""), "{:?}", world.kube.events());
    sleep(Duration::from_secs(100)).await;
    assert!(!world.exists("n0") && !world.exists("n1"));
}

#[tokio::test(start_paused = true)]
async fn a_restart_while_the_brake_holds_changes_nothing() {
    let mut world = running(10).await;
    for n in 0..5 {
        world.lose(&format!("n{n}"));
    }
    eventually("they are held", || world.has_event("DeletionHeld", "")).await;
    world.stop().await;
    world.start();
    let before = world.kube.events().len();
    sleep(Duration::from_mins(50)).await;
    assert_eq!(world.n_deletions(), 0);
    assert!(world.kube.events().len() > before, "told anew");
}

#[tokio::test(start_paused = true)]
async fn many_nodes_that_are_gone_share_their_questions() {
    let mut world = World::new();
    for n in 0..600 {
        let name = format!("n{n}");
        world.cloud.edit(|state| state.gone.insert(id(&name)));
        world.kube.put::<Node>(known(&name).ready("Unknown"));
    }
    world.start();
    sleep(Duration::from_mins(2)).await;
    assert!(world.has_event("NodeDeletionBrakeTripped", "600 of 600"));
    assert_eq!(world.cloud.calls("BatchGetInstances"), 4, "twice two batches");
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_is_away_loses_nothing_but_time() {
    let world = running(3).await;
    world.kube.away(true);
    world.lose("n1");
    sleep(Duration::from_mins(30)).await;
    assert!(world.exists("n1"));
    world.kube.away(false);
    eventually("it goes", || !world.exists("n1")).await;
}

#[tokio::test(start_paused = true)]
async fn a_deletion_that_is_never_answered_counts_once() {
    let world = running(10).await;
    world.kube.order(Fault::hang().on(Verb::Delete, "nodes").of("n0"));
    world.lose("n0");
    sleep(Duration::from_mins(5)).await;
    assert!(world.n_deletions() > 5, "{} tries", world.n_deletions());
    world.lose("n1");
    world.lose("n2");
    eventually("three of ten may go", || !world.exists("n1") && !world.exists("n2")).await;
    assert!(!world.has_event("DeletionHeld", ""), "{:?}", world.kube.events());
    world.kube.heal();
    eventually("it goes, too", || !world.exists("n0")).await;
}

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
    eventually("all of them go", || (0..6).all(|n| !world.exists(&format!("n{n}")))).await;
    assert!(!world.has_event("DeletionHeld", ""), "{:?}", world.kube.events());
    assert!((6..10).all(|n| world.exists(&format!("n{n}"))));
}

/// What the README promises from when the node is not ready and its machine not listed, if the cloud can prove that it is gone so much
/// later.
fn bound(unproven_for: Duration) -> Duration {
    let settings = SETTINGS.lifecycle;
    2 * unproven_for + Duration::from_secs(5) + settings.confirm_after + 2 * settings.period
}

#[tokio::test(start_paused = true)]
async fn from_the_loss_of_a_machine_to_the_end_of_its_node_there_is_a_bound() {
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
        eventually("it goes", || !world.exists("n1")).await;
        let (took, bound) = (lost.elapsed(), bound(unproven_for));
        assert!(
            took <= bound,
            "{took:?} and not {bound:?} after {ends_for:?}, unproven for {unproven_for:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_went_while_nobody_looked_takes_its_node_along() {
    let mut world = running(4).await;
    world.stop().await;
    world.lose("n1");
    world.kube.delete::<Node>(&ObjectName::cluster("n2"));
    world.cloud.end(&id("n2"));
    world.start();
    eventually("it goes", || !world.exists("n1")).await;
    sleep(WARM).await;
    assert!(world.exists("n0") && world.exists("n3"));
    assert_eq!(
        (world.n_deletions(), world.cloud.calls("BatchGetInstances")),
        (1, 2),
        "n2 is nobody's concern"
    );
}

#[tokio::test(start_paused = true)]
async fn whoever_changes_a_node_in_each_attempt_to_delete_it_does_not_keep_it() {
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
    eventually("it goes in the end", || !world.exists("n1")).await;
    assert_eq!(world.n_deletions(), 21);
    assert!(!world.has_event("DeletingNodeFailed", "") && !world.has_event("DeletionHeld", ""));
}

#[tokio::test(start_paused = true)]
async fn whoever_changes_the_taints_in_each_attempt_does_not_keep_ours_away() {
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
    eventually("it is tainted in the third pass", || world.has_shutdown_taint("n1")).await;
    assert_eq!(taints(&world.node("n1")).len(), 13, "and nobody lost one");
    assert_eq!(world.kube.writes().len(), 13);
}

#[tokio::test(start_paused = true)]
async fn an_adapter_that_takes_no_question_deletes_nothing() {
    for trouble in ["lacks the call", "lets nobody in", "says nothing"] {
        let world = running(3).await;
        match trouble {
            "lacks the call" => world.cloud.without("BatchGetInstances"),
            "lets nobody in" => {
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
        assert!(questions < 30, "{trouble}: {questions} questions in an hour");
        world.cloud.with("BatchGetInstances");
        world.cloud.edit(|state| state.errors.clear());
        world.cloud.hang(false);
        eventually("it goes when the cloud can be asked", || !world.exists("n1")).await;
    }
}
