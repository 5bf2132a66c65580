//! Conditions in the status of Services.

use std::time::Duration;

use cloud_api_proto::{AdapterError, DOMAIN, Reason, v1alpha1::LoadBalancerCondition};
use controller_core::testing::{Fault, Verb, service};
use k8s_openapi::{
    api::core::v1::{Node, Service},
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
};

use super::world::World;
use crate::plan::{conditions::READY, service::Classes};

impl World {
    fn condition(&self, service: &str, name: &str) -> Option<Condition> {
        let conditions = self.get(service)?.status?.conditions.unwrap_or_default();
        conditions.into_iter().find(|it| it.type_ == name)
    }

    /// Status, reason and message of the condition.
    fn ready(&self, service: &str) -> Option<(String, String, String)> {
        self.condition(service, READY).map(|it| (it.status, it.reason, it.message))
    }

    fn has(&self, service: &str, status: &str, reason: &str) -> bool {
        self.ready(service).is_some_and(|it| (it.0.as_str(), it.1.as_str()) == (status, reason))
    }

    async fn eventually_has(&self, service: &str, status: &str, reason: &str) {
        let what = format!("{service} has the condition {status} {reason}");
        self.eventually(&what, |world| world.has(service, status, reason)).await;
    }
}

fn listed(name: &str) -> Condition {
    Condition {
        type_: name.to_owned(),
        status: "True".to_owned(),
        reason: "Known".to_owned(),
        last_transition_time: Time(controller_core::testing::BEGIN),
        message: String::new(),
        observed_generation: None,
    }
}

/// The condition is written together with the finalizer and with the addresses, so it costs no separate write.
// Behaviour: S30
#[tokio::test(start_paused = true)]
async fn condition_follows_the_load_balancer_without_further_writes() {
    let world = World::new();
    world.node("a");
    let world = world.started().await;
    world.cloud.edit(|state| state.pending = 3);
    world.service(service("web").port(80));
    world.change("web", |it| {
        it.metadata.generation = Some(4);
        it.status.get_or_insert_default().conditions = Some(vec![listed("example.com/Known")]);
    });
    world.eventually_has("web", "False", "LoadBalancerPending").await;
    world.eventually_ingress_of("web").await;
    let ready = world.condition("web", READY).unwrap();
    assert_eq!((ready.status.as_str(), ready.observed_generation), ("True", Some(4)));
    world.quiet().await;
    assert_eq!(world.kube.writes().iter().filter(|it| it.path.contains("/services/")).count(), 2);
    assert!(world.condition("web", "example.com/Known").is_some(), "conditions of others stay");

    world.change("web", |it| it.metadata.generation = Some(5));
    let observed = |world: &World| world.condition("web", READY).unwrap().observed_generation == Some(5);
    world.eventually("the next generation is observed", observed).await;
    let after = world.condition("web", READY).unwrap();
    assert_eq!(after.last_transition_time, ready.last_transition_time);
    world.stop().await;
}

// Behaviour: S30
#[tokio::test(start_paused = true)]
async fn condition_has_the_cause_of_the_event() {
    let world = World::new();
    world.node("a");
    let world = world.started().await;
    let key = format!("lb.{DOMAIN}/internal");
    world.cloud.fail_next("EnsureLoadBalancer", AdapterError::new(Reason::VendorQuota, "50 load balancers"));
    world.service(service("web").port(80)).service(service("new").port(80).annotation(&key, "perhaps"));
    world.eventually_has("web", "False", "VendorQuota").await;
    world.eventually_has("new", "False", "InvalidService").await;
    for name in ["web", "new"] {
        let (_, _, message) = world.ready(name).unwrap();
        let event = world.kube.event_note("SyncLoadBalancerFailed", name).unwrap();
        assert_eq!(event, format!("Error syncing load balancer: {message}"));
    }
    world.eventually_has("web", "True", "LoadBalancerReady").await;
    world.change("new", |it| it.metadata.annotations = None);
    world.eventually_has("new", "True", "LoadBalancerReady").await;
    world.stop().await;
}

// Behaviour: S30
#[tokio::test(start_paused = true)]
async fn node_changes_and_restarts_keep_the_condition() {
    let world = World::start().await;
    world.node("a").service(service("web").port(80));
    world.eventually_has("web", "True", "LoadBalancerReady").await;
    world.quiet().await;
    world.cloud.edit(|state| state.pending = 3);
    let writes = world.kube.writes().len();
    world.node("b");
    world.quiet().await;
    let world = world.restart().await;
    world.quiet().await;
    let written = world.kube.writes().split_off(writes);
    assert!(written.iter().all(|it| it.path.contains("events")), "{written:?}");
    world.stop().await;
}

/// The adapter tries the write again, and finally gives up.
// Behaviour: S33
#[tokio::test(start_paused = true)]
async fn failed_write_is_an_event_and_a_condition() {
    let failed = "create web failed (503, OUTCOME_UNKNOWN): CreateLoadBalancer: out of order";
    let world = World::new();
    world.node("a");
    let world = world.started().await;
    let says = |rest: u32| {
        let message =
            format!("{failed}; next try in about {rest} s, after a check whether the write was made");
        world.cloud.edit(|state| {
            state.pending = 1000;
            state.conditions = vec![LoadBalancerCondition { r#type: "WriteFailed".to_owned(), message }];
        });
    };
    says(40);
    world.service(service("web").port(80));
    world.eventually_has("web", "False", "WriteFailed").await;
    let (_, _, message) = world.ready("web").unwrap();
    assert_eq!(
        message,
        format!("{failed}; next try in about 40 s, after a check whether the write was made")
    );
    let event = format!("Error syncing load balancer: {message}");
    assert_eq!(world.kube.event_note("SyncLoadBalancerFailed", "web").as_ref(), Some(&event));
    assert_eq!(world.explained("web").waits_for.as_ref(), Some(&event));
    let (writes, events) = (world.kube.writes().len(), world.events());

    says(7);
    tokio::time::sleep(Duration::from_mins(5)).await;
    assert_eq!((world.kube.writes().len(), world.events()), (writes, events.clone()), "nothing has changed");
    world.cloud.fail_next("EnsureLoadBalancer", AdapterError::new(Reason::OutcomeUnknown, failed));
    tokio::time::sleep(Duration::from_mins(5)).await;
    assert_eq!(world.events(), events, "the same failure");

    world.cloud.edit(|state| state.pending = 0);
    world.eventually_has("web", "True", "LoadBalancerReady").await;
    world.stop().await;
}

/// A controller of a version without conditions wrote the finalizer and the addresses.
// Behaviour: S30
#[tokio::test(start_paused = true)]
async fn upgrade_costs_one_patch_per_service() {
    const NAMES: [&str; 3] = ["a", "b", "c"];
    let world = World::start().await;
    world.node("n");
    for name in NAMES {
        world.service(service(name).port(80));
        world.eventually_has(name, "True", "LoadBalancerReady").await;
    }
    let world = world.stop().await;
    for name in NAMES {
        world.change(name, |it| it.status.as_mut().unwrap().conditions = None);
    }
    let writes = world.kube.writes().len();
    let world = world.started().await;
    for name in NAMES {
        world.eventually_has(name, "True", "LoadBalancerReady").await;
    }
    world.quiet().await;
    assert_eq!(world.kube.writes().len() - writes, NAMES.len());
    let world = world.restart().await;
    world.quiet().await;
    assert_eq!(world.kube.writes().len() - writes, NAMES.len(), "the next restart writes nothing");
    world.stop().await;
}

/// An invalid Service has a condition, but no finalizer.
// Behaviour: S32
#[tokio::test(start_paused = true)]
async fn conditions_are_removed_with_the_type() {
    let world = World::new();
    world.node("a");
    let world = world.started().await;
    let key = format!("lb.{DOMAIN}/internal");
    world.service(service("web").port(80)).service(service("new").port(80).annotation(&key, "perhaps"));
    world.eventually_has("web", "True", "LoadBalancerReady").await;
    world.eventually_has("new", "False", "InvalidService").await;
    for name in ["web", "new"] {
        world.change(name, |it| it.spec.as_mut().unwrap().type_ = Some("ClusterIP".to_owned()));
        world.eventually("the condition is removed", |world| world.ready(name).is_none()).await;
    }
    world.stop().await;
}

// Behaviour: S32
#[tokio::test(start_paused = true)]
async fn conditions_of_another_controller_stay() {
    let classes = Classes { own: Some("a/b".to_owned()), unclassed: false };
    let world = World::new().classes(classes).started().await;
    world.node("a");
    world.service(service("other").port(80));
    world.change("other", |it| {
        it.status.get_or_insert_default().conditions = Some(vec![listed(READY)]);
    });
    world.service(service("ours").port(80).class("a/b"));
    world.eventually_has("ours", "True", "LoadBalancerReady").await;
    world.quiet().await;
    assert!(world.has("other", "True", "Known"));
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn failed_write_of_a_condition_is_retried() {
    let world = World::start().await;
    world.kube.order(Fault::status(500).on(Verb::Patch, "services/status").times(2));
    world.service(service("new").port(80).annotation(&format!("lb.{DOMAIN}/internal"), "perhaps"));
    world.eventually_has("new", "False", "InvalidService").await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn dry_run_writes_no_condition() {
    let world = World::new().only_looking(true).started().await;
    world.service(service("web").port(80));
    world.service(service("new").port(80).annotation(&format!("lb.{DOMAIN}/internal"), "perhaps"));
    world.quiet().await;
    assert!(world.kube.writes().is_empty());
    world.kube.delete::<Service>(&super::world::name("web"));
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn unreachable_adapter_changes_no_condition_for_a_short_time() {
    let world = World::new();
    world.node("a");
    let world = world.started().await;
    world.service(service("web").port(80));
    world.eventually_has("web", "True", "LoadBalancerReady").await;
    world.quiet().await;
    let writes = world.kube.writes().len();
    world.cloud.away(true);
    tokio::time::sleep(Duration::from_secs(5)).await;
    world.cloud.away(false);
    world.quiet().await;
    assert_eq!(world.kube.writes().len(), writes);
    world.stop().await;
}

/// Node changes end readiness only if no node is left that can serve.
// Behaviour: S34
#[tokio::test(start_paused = true)]
async fn service_without_nodes_is_not_ready() {
    let world = World::start().await;
    world.node("a").node("b").service(service("web").port(80));
    world.eventually_has("web", "True", "LoadBalancerReady").await;
    let excluded = |name: &str| {
        let it = controller_core::testing::node(name).provider_id(&format!("sim://r1/{name}")).at("10.0.0.1");
        it.label("node.kubernetes.io/exclude-from-external-load-balancers", "")
    };
    for name in ["a", "b"] {
        world.kube.put::<Node>(excluded(name));
    }
    world.eventually_has("web", "False", "NoAvailableNodes").await;
    world.quiet().await;
    let (_, _, message) = world.ready("web").unwrap();
    let why = "2 nodes excluded by label node.kubernetes.io/exclude-from-external-load-balancers";
    assert_eq!(message, format!("no node can serve: {why}"));
    let waits = world.explained("web").waits_for.unwrap_or_default();
    assert_eq!(waits, format!("There are no available nodes for LoadBalancer: {why}"));
    world.node("a");
    world.eventually_has("web", "True", "LoadBalancerReady").await;
    assert_eq!(world.explained("web").waits_for, None);

    // A Service without nodes from its beginning gets its address.
    let key = format!("lb.{DOMAIN}/node-selector");
    world.service(service("mars").port(80).annotation(&key, "zone=mars"));
    world.eventually_has("mars", "False", "NoAvailableNodes").await;
    let (_, _, message) = world.ready("mars").unwrap();
    assert_eq!(message, "no node matches annotation lb.cloudadapter.dev/node-selector: zone=mars");
    assert!(!world.ingress("mars").is_empty());
    world.stop().await;
}
