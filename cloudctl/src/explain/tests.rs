//! Tests of reports that are built from pages.

use insta::assert_snapshot;
use serde_json::{Value, json};

use super::*;
use crate::{
    output::{Format, Report as _, written},
    session::Process,
};

fn now() -> Timestamp {
    "2026-01-02T03:04:05Z".parse().expect("a time")
}

fn web() -> Object {
    Object::service(&objects::key("default/web").expect("a key"), "x")
}

fn said(component: Component, replica: &str, more: &Value) -> Page<Explanation> {
    let mut page =
        json!({ "controller": component.name(), "kind": "Service", "key": "default/web", "known": true });
    for (key, value) in more.as_object().into_iter().flatten() {
        page[key] = value.clone();
    }
    let content = serde_json::from_value(page).expect("a page");
    Page { process: Process::fake(component, replica), content }
}

fn waits() -> Page<Explanation> {
    said(
        Component::ServiceController,
        "sc-2",
        &json!({
            "held": true, "shard": 1, "state": "waiting", "wanted": ["1 listener: TCP 80 -> 30080", "2 backends"],
            "plan": ["add finalizer", "ensure (first comparison)"], "waitsFor": "The words of the Event", "reason": "BUDGET_EXHAUSTED",
            "since": "2026-01-02T03:01:05Z", "nextTry": "2026-01-02T03:04:17Z", "attempts": 4,
        }),
    )
}

fn elsewhere() -> Page<Explanation> {
    said(Component::ServiceController, "sc-1", &json!({ "held": false, "shard": 1, "state": "notLookedAt" }))
}

fn adapter() -> Page<AdapterStatus> {
    let content = serde_json::from_value(json!({
        "at": now(), "leader": true,
        "budgets": [
            { "bucket": "loadbalancer", "rate": 0.5, "ceiling": 5.0, "tokens": 0.1, "queued": 9,
                "pausedUntil": "2026-01-02T03:04:15Z", "history": [{ "calls": 3 }] },
            { "bucket": "compute", "rate": 5.0, "ceiling": 5.0 },
        ],
        "queues": [
            { "bucket": "loadbalancer", "class": "INTERACTIVE", "controller": "service-controller", "queued": 9, "oldestSeconds": 70.0 },
            { "bucket": "network", "class": "BACKGROUND", "controller": "route-controller", "queued": 1, "oldestSeconds": 7.0 },
        ],
        "breakers": [{ "family": "loadbalancer", "state": "HALF_OPEN" }, { "family": "compute", "state": "CLOSED" }],
        "tasks": [{ "key": "u1", "name": "default/web", "waitsFor": "waits for the call budget of bucket loadbalancer: 9 calls ahead at 0.5 a second, next call in about 18 s", "sinceSeconds": 71.0, "done": 1, "total": 4 }],
    }));
    Page { process: Process::fake(Component::CloudAdapter, "ca"), content: content.expect("a page") }
}

#[test]
fn the_shard_holder_and_the_budget_are_shown() {
    let mut report = report(&web(), now(), vec![elsewhere(), waits()], vec![adapter()]);
    report.events = vec![ObjectEvent {
        at: Some("2026-01-02T03:02:05Z".parse().expect("a time")),
        r#type: "Warning".to_owned(),
        reason: "SyncLoadBalancerFailed".to_owned(),
        from: "service-controller".to_owned(),
        count: 2,
        message: "The words of the Event".to_owned(),
    }];
    assert_snapshot!(written(&report, Format::Table, false).expect("written"), @r"
    Service default/web: waits for 3m
      said by    service-controller, replica sc-2, shard 1
      wanted     1 listener: TCP 80 -> 30080
                 2 backends
      cloud has  -
      plan       add finalizer
                 ensure (first comparison)
      because    The words of the Event
      reason     BUDGET_EXHAUSTED
      tried      4 times
      next try   in 12s

    At the adapter
      1 of 4 changes made, for 1m 11s; waits for the call budget of bucket loadbalancer: 9 calls ahead at 0.5 a second, next call in about 18 s

    Budget
      queue of loadbalancer, INTERACTIVE, service-controller: 9 calls wait, the oldest for 1m 10s
      bucket loadbalancer: 0.5/s of 5/s, 0.1 tokens, 9 queued, paused by the vendor for 10s
      breaker loadbalancer: half open

    Events
      LAST  TIMES  TYPE     REASON                  FROM                MESSAGE
      2m    2      Warning  SyncLoadBalancerFailed  service-controller  The words of the Event
    ");
    assert!(!report.is_well(), "it waits");
    let text = written(&report, Format::Json, false).expect("written");
    assert_eq!(serde_json::from_str::<ExplainReport>(&text).expect("read"), report);
}

#[test]
fn an_object_that_only_a_change_helps_has_a_next_try_without_a_time() {
    let mut waits = waits();
    waits.content.next_try = None;
    let report = report(&web(), now(), vec![waits], Vec::new());
    let text = written(&report, Format::Table, false).expect("written");
    assert!(text.contains("next try   as soon as this changes"), "{text}");
}

#[test]
fn the_queue_length_comes_from_the_adapter() {
    let before = "waits for the call budget of bucket loadbalancer: 30 calls ahead at 0.5 a second, next call in about 60 s";
    let mut waits = waits();
    waits.content.waits_for = Some(before.to_owned());
    let report = report(&web(), now(), vec![waits], vec![adapter()]);
    let words = report.explanations[0].page.waits_for.as_deref();
    assert_eq!(words, report.task.as_ref().map(|task| task.waits_for.as_str()));
}

#[test]
fn unmanaged_objects_and_unknown_states_are_not_well() {
    for (state, words) in [
        ("notOurs", "not managed by this controller"),
        ("dreams", "in a state that this version of cloudctl does not know"),
    ] {
        let page = said(Component::ServiceController, "sc", &json!({ "held": true, "state": state }));
        let report = report(&web(), now(), vec![page], Vec::new());
        let text = written(&report, Format::Table, false).expect("written");
        assert!(text.starts_with(&format!("Service default/web: {words}\n")), "{text}");
        assert!(!report.is_well(), "{state}");
    }
}

#[test]
fn an_object_in_an_unheld_shard_is_not_well() {
    let report = report(&web(), now(), vec![elsewhere()], Vec::new());
    let text = written(&report, Format::Table, false).expect("written");
    assert!(text.starts_with("Service default/web: no replica that was read holds its shard\n"), "{text}");
    assert!(!report.is_well());
}

#[test]
fn a_load_balancer_that_serves_nothing_is_not_well() {
    let of = |wanted: &[&str], cloud: &[&str]| {
        let more = json!({ "held": true, "state": "settled", "wanted": wanted, "cloud": cloud });
        report(&web(), now(), vec![said(Component::ServiceController, "sc", &more)], Vec::new())
    };
    for (wanted, cloud, why) in [
        (
            &["1 listener: TCP 80", "0 nodes: no node matches zone=mars"][..],
            &["lb-1 ACTIVE, 0 backends"][..],
            "no node can serve it: no node matches zone=mars",
        ),
        (
            &["1 listener: TCP 80", "2 nodes"],
            &["lb-1 ACTIVE, 0 backends"],
            "its load balancer has no backends",
        ),
        (
            &["1 listener: TCP 80", "2 nodes"],
            &["lb-1 ACTIVE, 0 backends", "  name the backend of a shop"],
            "its load balancer has no backends",
        ),
        (&["1 listener: TCP 80", "2 nodes"], &[], "the cloud lists no load balancer of this Service"),
    ] {
        let report = of(wanted, cloud);
        assert!(!report.is_well() && report.serves_nothing.as_deref() == Some(why), "{report:#?}");
        let text = written(&report, Format::Table, false).expect("written");
        assert!(text.starts_with("Service default/web: serves nothing\n") && text.contains(why), "{text}");
    }
    assert!(of(&["1 listener: TCP 80", "10 nodes"], &["lb-1 ACTIVE 192.0.2.1, 10 backends"]).is_well());
    assert!(of(&["no load balancer"], &[]).is_well());
}

/// The endpoints are read only if the load balancer could serve.
#[test]
fn a_load_balancer_in_sync_needs_endpoints() {
    for (state, wanted, cloud, needs) in [
        ("settled", "2 nodes", "lb-1 ACTIVE, 2 backends", true),
        ("settled", "2 nodes", "lb-1 ACTIVE, 0 backends", false),
        ("settled", "no load balancer", "", false),
        ("waiting", "2 nodes", "lb-1 ACTIVE, 2 backends", false),
    ] {
        let more = json!({ "held": true, "state": state, "wanted": [wanted], "cloud": [cloud] });
        let report = report(&web(), now(), vec![said(Component::ServiceController, "sc", &more)], Vec::new());
        assert_eq!(report.has_backends(), needs, "{state} {wanted} {cloud}");
    }
}

#[test]
fn a_settled_object_shows_no_budget() {
    let settled = said(
        Component::ServiceController,
        "sc",
        &json!({ "held": true, "state": "settled", "cloud": ["lb-1 ACTIVE"] }),
    );
    let mut adapter = adapter();
    adapter.content.tasks.clear();
    let report = report(&web(), now(), vec![settled], vec![adapter]);
    assert!(report.is_well() && report.budget.is_none() && report.task.is_none(), "{report:#?}");
    let text = written(&report, Format::Table, false).expect("written");
    assert!(text.contains("\n  plan       nothing to do\n"), "{text}");
    assert_eq!(written(&report, Format::Name, false).expect("written"), "service/default/web\n");
}

#[test]
fn an_unknown_object_is_reported() {
    let unknown = said(Component::ServiceController, "sc", &json!({ "known": false }));
    let mut report = report(&web(), now(), vec![unknown], vec![adapter()]);
    assert_eq!(report.unknown, None, "the API server is queried");
    assert_eq!(report.names(), [""; 0]);
    report.unknown = Some("no object has this name; similar names: webs".to_owned());
    let text = written(&report, Format::Table, false).expect("written");
    assert!(
        text.starts_with("Service default/web: no object has this name; similar names: webs\n"),
        "{text}"
    );
    assert!(!report.is_well());
}

#[test]
fn without_a_readable_controller_no_object_is_called_unknown() {
    let report = report(&web(), now(), Vec::new(), vec![adapter()]);
    let text = written(&report, Format::Table, false).expect("written");
    assert!(
        text.starts_with(
            "Service default/web: none of the controllers that may have this object could be read\n"
        ),
        "{text}"
    );
}
