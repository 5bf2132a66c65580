//! The explain page of a Service. The module `events` tests the texts of Events.

use std::time::Duration;

use cloud_api_proto::{AdapterError, DOMAIN, Reason};
use controller_core::{
    explain::report::{Explanation, State},
    testing::{node, service},
};
use k8s_openapi::api::core::v1::{Node, Service};

use super::world::{World, name};
use crate::plan::left_over::Orphans;

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_hours(1);

impl World {
    pub(super) fn explained(&self, service: &str) -> Explanation {
        self.explain.one(&format!("default/{service}")).expect("a good key")
    }

    fn unsettled(&self) -> Vec<String> {
        self.explain.all().expect("the controller runs").objects.into_iter().map(|it| it.key).collect()
    }

    fn event_message(&self, service: &str, reason: &str) -> Option<String> {
        self.kube.event_note(reason, service)
    }
}

#[tokio::test(start_paused = true)]
async fn explain_shows_settled_service() {
    let world = World::start().await;
    world.node("a").node("b");
    world.service(service("web").port(80));
    world.eventually_ingress_of("web").await;
    world.quiet().await;
    let seen = world.explained("web");
    assert_eq!((seen.state, seen.known, seen.held, seen.since), (State::Settled, true, true, None));
    assert_eq!(seen.wanted, ["1 listener: TCP 80 -> 30080", "2 nodes"]);
    assert_eq!(seen.cloud, ["lb-uid-web ACTIVE 203.0.113.1, 2 backends, tcp/80", "  name lb-uid-web"]);
    assert_eq!((seen.plan, seen.waits_for, seen.attempts), (vec![], None, 0));
    assert!(world.unsettled().is_empty());
    let none = world.explained("other");
    assert_eq!((none.known, none.state), (false, State::NotLookedAt));
    world.service(service("internal"));
    world.change("internal", |it| it.spec.as_mut().unwrap().type_ = Some("ClusterIP".to_owned()));
    world.quiet().await;
    assert!(!world.explained("internal").known, "not managed by this controller");
}

#[tokio::test(start_paused = true)]
async fn explain_shows_annotation_settings() {
    let world = World::start().await;
    let tags = format!("team={}", "x".repeat(300));
    let web = service("web").port(80).annotation("lb.cloudadapter.dev/internal", "true");
    world.service(web.annotation("lb.cloudadapter.dev/tags", &tags));
    world.quiet().await;
    let wanted = world.explained("web").wanted;
    assert_eq!(wanted[..2], ["1 listener: TCP 80 -> 30080", "annotation lb.cloudadapter.dev/internal: true"]);
    assert!(wanted[2].starts_with("annotation lb.cloudadapter.dev/tags: team=xxx"), "{wanted:?}");
    assert_eq!(wanted[2].chars().count(), 200);
}

#[tokio::test(start_paused = true)]
async fn explain_shows_settings_of_the_spec() {
    let world = World::start().await;
    world.service(service("web").port(80).annotation("lb.cloudadapter.dev/internal", "true"));
    world.change("web", |it| {
        let spec = it.spec.as_mut().unwrap();
        spec.ports.as_mut().unwrap()[0].app_protocol = Some("kubernetes.io/h2c".to_owned());
        spec.external_traffic_policy = Some("Local".to_owned());
        spec.health_check_node_port = Some(32_000);
        spec.load_balancer_source_ranges = Some(vec!["10.0.0.0/8".to_owned(); 50]);
    });
    world.quiet().await;
    let wanted = world.explained("web").wanted;
    assert_eq!(
        wanted[..3],
        [
            "1 listener: TCP 80 -> 30080 (appProtocol kubernetes.io/h2c)",
            "spec.externalTrafficPolicy: Local",
            "spec.healthCheckNodePort: 32000"
        ]
    );
    assert!(wanted[3].starts_with("spec.loadBalancerSourceRanges: 10.0.0.0/8, 10."), "{wanted:?}");
    assert_eq!(wanted[3].chars().count(), 200);
    assert_eq!(wanted[4], "annotation lb.cloudadapter.dev/internal: true");
}

/// The finalizer is written, and the adapter has not answered the next step yet.
#[tokio::test(start_paused = true)]
async fn finished_steps_are_not_in_the_plan() {
    let world = World::new();
    world.node("a");
    let world = world.started().await;
    world.cloud.edit(|state| state.slow.extend([("EnsureLoadBalancer", 20 * SECOND)]));
    world.service(service("web").port(80));
    world.eventually("the finalizer is written", |world| !world.finalizers("web").is_empty()).await;
    tokio::time::sleep(SECOND).await;
    assert_eq!(world.explained("web").plan, ["ensure (not active yet)"]);
    world.cloud.edit(|state| state.slow.clear());
    world.eventually_ingress_of("web").await;
    world.quiet().await;
    let seen = world.explained("web");
    assert_eq!((seen.state, seen.plan), (State::Settled, vec![]));
}

#[tokio::test(start_paused = true)]
async fn explain_uses_event_text_of_refusal() {
    let world = World::new();
    world.node("a");
    let world = world.started().await;
    let full = || AdapterError::new(Reason::VendorQuota, "50 load balancers");
    (0..2).for_each(|_| world.cloud.fail_next("EnsureLoadBalancer", full()));
    world.service(service("web").port(80));
    world
        .eventually("an Event is emitted", |world| {
            world.event_message("web", "SyncLoadBalancerFailed").is_some()
        })
        .await;
    let seen = world.explained("web");
    assert_eq!(seen.waits_for, world.event_message("web", "SyncLoadBalancerFailed"));
    assert_eq!((seen.state, seen.reason.as_deref()), (State::Waiting, Some("VENDOR_QUOTA")));
    assert_eq!(seen.plan, ["ensure (not active yet)"]);
    assert_eq!(world.unsettled(), ["default/web"]);
    let attempts = seen.attempts;
    let (since, next) =
        (seen.since.expect("the time since which it waits"), seen.next_try.expect("a retry is planned"));
    assert!((295..=303).contains(&next.duration_since(since).as_secs()), "{since} {next}");
    tokio::time::sleep(303 * SECOND).await;
    let seen = world.explained("web");
    assert!(seen.attempts > attempts, "{}", seen.attempts);
    assert_eq!(seen.since, Some(since), "the time does not change");
    world.eventually_ingress_of("web").await;
    world.quiet().await;
    assert_eq!((world.explained("web").state, world.unsettled()), (State::Settled, vec![]));
}

#[tokio::test(start_paused = true)]
async fn explain_shows_mistake_while_old_settings_apply() {
    let world = World::new();
    world.node("a");
    let world = world.started().await;
    let key = format!("lb.{DOMAIN}/internal");
    world.service(service("web").port(80)).service(service("new").port(80).annotation(&key, "yes, please"));
    world.eventually_ingress_of("web").await;
    world.change("web", |it| {
        it.metadata.annotations.get_or_insert_default().insert(key.clone(), "yes, please".to_owned());
    });
    world.quiet().await;
    for name in ["web", "new"] {
        let reported = world.event_message(name, "SyncLoadBalancerFailed").expect("an Event is emitted");
        assert_eq!(
            (world.explained(name).state, world.explained(name).waits_for),
            (State::Waiting, Some(reported))
        );
    }
    tokio::time::sleep(HOUR).await;
    assert_eq!(world.unsettled(), ["default/new", "default/web"]);
    for name in ["web", "new"] {
        world.change(name, |it| it.metadata.annotations = None);
    }
    world.quiet().await;
    assert!(world.unsettled().is_empty());
}

/// The adapter refuses the current settings, and the previous settings are in force.
#[tokio::test(start_paused = true)]
async fn refused_settings_are_not_settled_by_replacement() {
    let world = World::new();
    world.node("a");
    let world = world.started().await;
    world.service(service("web").port(80));
    world.eventually_ingress_of("web").await;
    world.quiet().await;
    world.cloud.fail_next("EnsureLoadBalancer", AdapterError::field("spec.listeners", "no port 81"));
    world.change("web", |it| it.spec.as_mut().unwrap().ports.as_mut().unwrap()[0].port = 81);
    world
        .eventually("an Event is emitted", |world| {
            world.event_message("web", "SyncLoadBalancerFailed").is_some()
        })
        .await;
    tokio::time::sleep(SECOND).await;
    let seen = world.explained("web");
    assert_eq!((seen.state, seen.reason.as_deref()), (State::Waiting, Some("FIELD_INVALID")));
    assert_eq!(seen.waits_for, world.event_message("web", "SyncLoadBalancerFailed"));
    world.change("web", |it| it.spec.as_mut().unwrap().ports.as_mut().unwrap()[0].port = 82);
    world.quiet().await;
    assert!(world.unsettled().is_empty());
}

#[tokio::test(start_paused = true)]
async fn event_and_page_name_why_the_adapter_cannot_reach_its_cloud() {
    let world = World::start().await;
    let cause = "the adapter cannot reach the cloud: Authenticate: keystone.example:5000: Connection refused";
    for _ in 0..20 {
        world.cloud.fail_next("EnsureLoadBalancer", AdapterError::new(Reason::Starting, cause));
    }
    world.service(service("web").port(80));
    let named = |text: Option<String>| text.is_some_and(|it| it.contains(cause));
    world
        .eventually("the Event names the cause", |world| {
            named(world.event_message("web", "SyncLoadBalancerFailed"))
        })
        .await;
    assert!(named(world.explained("web").waits_for));
}

#[tokio::test(start_paused = true)]
async fn explain_shows_unreachable_adapter() {
    let world = World::new();
    world.node("a");
    world.cloud.away(true);
    let world = world.started().await;
    world.service(service("web").port(80));
    tokio::time::sleep(5 * SECOND).await;
    let seen = world.explained("web");
    assert!(
        seen.waits_for.is_some_and(|it| it.contains("the cloud adapter is ")),
        "the page says it before an Event does"
    );
    world
        .eventually("an Event is emitted", |world| {
            world.event_message("web", "SyncLoadBalancerFailed").is_some()
        })
        .await;
    tokio::time::sleep(HOUR).await;
    let seen = world.explained("web");
    assert_eq!(
        (seen.state, seen.waits_for),
        (State::Waiting, world.event_message("web", "SyncLoadBalancerFailed"))
    );
    assert_eq!(seen.cloud, ["not listed yet"]);
    let trouble = world
        .explain
        .status()
        .expect("the controller runs")
        .adapter
        .trouble
        .expect("the adapter is unreachable");
    assert!(trouble.starts_with("the cloud adapter has been unavailable since "), "{trouble}");
    world.cloud.away(false);
    world.eventually_ingress_of("web").await;
    world.quiet().await;
    assert!(world.unsettled().is_empty());
    assert_eq!(world.explain.status().expect("the controller runs").adapter.trouble, None);
}

#[tokio::test(start_paused = true)]
async fn explain_shows_pending_load_balancer() {
    let world = World::start().await;
    world.cloud.edit(|state| state.pending = 5);
    world.service(service("web").port(80));
    tokio::time::sleep(SECOND).await;
    let seen = world.explained("web");
    assert_eq!((seen.state, seen.waits_for), (State::Working, None), "{:?}", seen.plan);
    assert_eq!((seen.known, world.unsettled().len()), (true, 1));
    world.eventually_ingress_of("web").await;
}

#[tokio::test(start_paused = true)]
async fn orphan_and_brake_are_listed_until_it_is_gone() {
    let world = World::new().orphans(Orphans::DeleteAfter(HOUR)).started().await;
    world.node("a");
    for n in 0..10 {
        world.service(service(&format!("web-{n}")).port(80));
    }
    let all = |world: &World| (0..10).all(|n| !world.ingress(&format!("web-{n}")).is_empty());
    world.eventually("all Services have an address", all).await;
    world.quiet().await;
    for n in 0..6 {
        world.kube.put::<Service>(service(&format!("web-{n}")).port(80).deleted());
    }
    world
        .eventually("all deletions are held", |world| {
            (0..6).all(|n| world.event_message(&format!("web-{n}"), "OrphanHeld").is_some())
        })
        .await;
    tokio::time::sleep(SECOND).await;
    for n in 0..6 {
        let seen = world.explained(&format!("web-{n}"));
        assert_eq!((seen.known, seen.state), (false, State::Waiting));
        assert_eq!(seen.waits_for, world.event_message(&format!("web-{n}"), "OrphanHeld"));
        assert!(seen.cloud[0].starts_with(&format!("lb-uid-web-{n} ACTIVE 203.0.113.")), "{:?}", seen.cloud);
    }
    let status = world.explain.status().expect("the controller runs");
    let reported = world.event_message("kube-system", "OrphanHeld").expect("an Event for all of them");
    assert_eq!((status.unsettled, status.held_back), (6, vec![reported]));
    for n in 0..6 {
        world.cloud.edit(|state| drop(state.load_balancers.remove(&format!("lb-uid-web-{n}"))));
    }
    tokio::time::sleep(HOUR).await;
    let status = world.explain.status().expect("the controller runs");
    assert_eq!((status.unsettled, status.held_back), (0, vec![]));
}

#[tokio::test(start_paused = true)]
async fn explain_of_settled_services_costs_nothing() {
    let world = World::new();
    world.node("a");
    let world = world.started().await;
    for n in 0..50 {
        world.service(service(&format!("web-{n}")).port(80));
    }
    world
        .eventually("all Services have an address", |world| {
            (0..50).all(|n| !world.ingress(&format!("web-{n}")).is_empty())
        })
        .await;
    world.quiet().await;
    assert_eq!(world.explain.status().expect("the controller runs").unsettled, 0);
    for n in 0..50 {
        world.kube.delete::<Service>(&name(&format!("web-{n}")));
    }
    world.quiet().await;
    assert_eq!(world.explain.status().expect("the controller runs").unsettled, 0);
}

/// The page shows both classes, so that users can see a typo in either of them.
#[tokio::test(start_paused = true)]
async fn explain_names_both_classes_of_unmanaged_service() {
    let world = World::start().await;
    world.service(service("other").port(80).class("foo.io/bar"));
    world.eventually("the Service is known", |world| world.explained("other").known).await;
    world.quiet().await;
    let seen = world.explained("other");
    assert_eq!(seen.state, State::NotOurs);
    assert_eq!(
        seen.wanted,
        [r#"nothing: class "foo.io/bar" is not managed by this controller (--load-balancer-class: none)"#]
    );
    assert!(world.unsettled().is_empty(), "nothing is to be done");
}

#[tokio::test(start_paused = true)]
async fn explain_shows_unanswered_call() {
    let world = World::new();
    world.node("a");
    let world = world.started().await;
    world.cloud.edit(|state| state.slow.extend([("EnsureLoadBalancer", 20 * SECOND)]));
    world.service(service("web").port(80));
    tokio::time::sleep(3 * SECOND).await;
    let seen = world.explained("web");
    assert_eq!((seen.state, seen.waits_for), (State::Working, None), "the adapter may still answer");
    tokio::time::sleep(5 * SECOND).await;
    let seen = world.explained("web");
    let waits = seen.waits_for.expect("the Service waits for the adapter");
    assert!(waits.starts_with("EnsureLoadBalancer has had no answer from the cloud adapter for "), "{waits}");
    assert_eq!(seen.state, State::Waiting);
    assert_eq!(world.explain.status().expect("the controller runs").adapter.trouble, Some(waits));
    world.cloud.edit(|state| state.slow.clear());
    world.eventually_ingress_of("web").await;
    world.quiet().await;
    assert_eq!(world.explained("web").state, State::Settled);
    assert_eq!(world.explain.status().expect("the controller runs").adapter.trouble, None);
}

/// The adapter's text about a failing write is shown unchanged, both while the adapter retries the write and after it has given up for now.
#[tokio::test(start_paused = true)]
async fn explain_uses_adapter_text_of_failed_write() {
    let world = World::start().await;
    let failed = "create web failed (503, OUTCOME_UNKNOWN): CreateLoadBalancer: out of order";
    let unknown = || AdapterError::new(Reason::OutcomeUnknown, failed).retry_after(HOUR);
    world.cloud.fail_next("EnsureLoadBalancer", unknown());
    world.service(service("web").port(80));
    world
        .eventually("an Event is emitted", |world| {
            world.event_message("web", "SyncLoadBalancerFailed").is_some()
        })
        .await;
    let reported = world.event_message("web", "SyncLoadBalancerFailed").expect("the Event exists");
    assert_eq!(
        reported,
        format!("Error syncing load balancer: {failed}; the adapter first checks whether the write was made")
    );
    assert_eq!(world.explained("web").waits_for, Some(reported));
}

// Behaviour: S13
#[tokio::test(start_paused = true)]
async fn explain_names_selector_without_nodes() {
    let world = World::start().await;
    world.node("a").node("b");
    world.service(service("web").port(80).annotation("lb.cloudadapter.dev/node-selector", "zone=mars"));
    let event = "Warning UnAvailableLoadBalancer web: There are no available nodes for LoadBalancer: no node matches \
                 annotation lb.cloudadapter.dev/node-selector: zone=mars";
    world.eventually_events(&[event]).await;
    world.quiet().await;
    let nodes = |world: &World| world.explained("web").wanted.pop().unwrap_or_default();
    assert_eq!(
        nodes(&world),
        "0 nodes: no node matches annotation lb.cloudadapter.dev/node-selector: zone=mars"
    );
    // An excluded node that matches the selector is a different cause.
    let excluded = node("m").provider_id("sim://r1/m").at("10.0.0.7").label("zone", "mars");
    let excluded = excluded.label("node.kubernetes.io/exclude-from-external-load-balancers", "");
    world.kube.put::<Node>(excluded);
    world.quiet().await;
    assert_eq!(
        nodes(&world),
        "0 nodes: 2 nodes not matched by node-selector, 1 node excluded by label node.kubernetes.io/exclude-from-external-load-balancers"
    );
    let waits = world.explained("web").waits_for.unwrap_or_default();
    assert!(waits.contains("1 node excluded by label"), "{waits}");
}
