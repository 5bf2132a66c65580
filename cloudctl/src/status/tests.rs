//! Tests of reports that are built from pages and Leases.

use insta::assert_snapshot;
use serde_json::{Value, json};

use super::*;
use crate::output::{Format, Report as _, written};

fn now() -> Timestamp {
    "2026-01-02T03:04:05Z".parse().expect("a time")
}

fn adapter() -> AdapterStatus {
    serde_json::from_value(json!({
        "at": now(), "adapter": "adapter-sim", "version": "0.1.0", "clusterId": "c1", "leader": true, "scope": "sim",
        "budgets": [{ "bucket": "loadbalancer", "rate": 2.5, "ceiling": 5.0, "tokens": 0.25, "queued": 3, "calls": 17,
            "throttled": 1, "pausedUntil": "2026-01-02T03:04:20Z" }],
        "queues": [{ "bucket": "loadbalancer", "class": "INTERACTIVE", "controller": "service-controller", "queued": 3,
            "oldestSeconds": 61.0 }],
        "breakers": [{ "family": "loadbalancer", "state": "OPEN", "retryAt": "2026-01-02T03:04:10Z" },
            { "family": "compute", "state": "CLOSED" }],
        "tasks": [{ "name": "default/a", "waitsFor": "waits for the call budget of bucket loadbalancer: 1 call ahead" },
            { "name": "default/b", "waitsFor": "waits for the call budget of bucket loadbalancer: 2 calls ahead" }],
        "moreTasks": 1,
        "snapshots": [{ "collection": "load-balancers", "ageSeconds": 12.0, "targetAgeSeconds": 60.0, "items": 4 },
            { "collection": "routes", "targetAgeSeconds": 120.0, "error": "VENDOR_UNAVAILABLE" }],
    }))
    .expect("a page")
}

fn controller(held: &[u32]) -> ControllerStatus {
    serde_json::from_value(json!({
        "controller": "service-controller", "version": "0.1.0", "clusterId": "c1", "shards": 2, "held": held,
        "adapter": { "replica": "ca-1" }, "queue": { "waiting": 1, "running": 2, "later": 3, "oldestSeconds": 0.5 },
        "unsettled": 4, "heldBack": ["12 of 20 load balancers would go at once"],
    }))
    .expect("a page")
}

fn lease(name: &str, spec: &Value) -> Lease {
    serde_json::from_value(json!({ "metadata": { "name": name }, "spec": spec })).expect("a Lease")
}

fn session(missing: Vec<Missing>) -> Session {
    Session { cluster: None, release: Release::within("ccm"), processes: Vec::new(), missing, now: now() }
}

fn page<T>(component: Component, name: &str, content: T) -> Page<T> {
    Page { process: Process::fake(component, name), content }
}

fn whole() -> StatusReport {
    let leases = [
        lease(
            "cloud-service-controller",
            &json!({ "holderIdentity": "sc-1", "acquireTime": "2026-01-02T02:00:00.000000Z", "renewTime": "2026-01-02T03:04:03.000000Z" }),
        ),
        lease(
            "cloud-service-controller-1",
            &json!({ "holderIdentity": "sc-2", "acquireTime": "2026-01-02T02:00:00.000000Z", "renewTime": "2026-01-02T03:00:03.000000Z" }),
        ),
        lease("cloud-service-controller-2", &json!({})),
        lease("cloud-service-controller-x", &json!({})),
        lease("another-program", &json!({ "holderIdentity": "it" })),
    ];
    let adapters = vec![page(Component::CloudAdapter, "ca-1", adapter())];
    let controllers = vec![page(Component::ServiceController, "sc-1", controller(&[0]))];
    let missing = vec![Missing::new("route-controller", "no pod"), Missing::new("leases", "why")];
    report(&session(missing), adapters, controllers, &leases)
}

#[test]
fn the_names_are_those_of_the_replicas() {
    assert_eq!(whole().names(), ["ca-1", "sc-1"]);
}

#[test]
fn a_failing_watch_is_the_first_trouble_of_a_controller() {
    let why =
        "the watch of services has been unavailable since 2026-01-02T03:04:05Z: the API server refuses it";
    let page_of = ControllerStatus { failing_watches: vec![why.to_owned()], ..controller(&[0, 1]) };
    let report = report(
        &session(Vec::new()),
        Vec::new(),
        vec![page(Component::ServiceController, "sc-1", page_of)],
        &[],
    );
    assert_eq!(report.troubles.first(), Some(&format!("service-controller sc-1: {why}")));
}

#[test]
fn a_namespace_without_controller_leases_is_reported() {
    let held = json!({ "holderIdentity": "it", "renewTime": "2026-01-02T03:04:03.000000Z" });
    let of = |name| shards(&Release::within("nope"), &[], &[lease(name, &held)], now());
    assert_eq!(elsewhere(&Release::within("nope"), &of("cloud-service-controller-1")), None);
    for shards in [of("cloud-adapter"), of("another-program"), Vec::new()] {
        let why = elsewhere(&Release::within("nope"), &shards).map(|it| it.why).unwrap_or_default();
        assert!(
            why.contains("in nope: if the chart is installed elsewhere, use --release-namespace"),
            "{why}"
        );
    }
}

#[test]
fn the_report_shows_tables_and_troubles() {
    assert_snapshot!(written(&whole(), Format::Table, false).expect("written"), @r"
    Not well
      cloud-adapter ca-1: the breaker of loadbalancer is open
      cloud-adapter ca-1: routes cannot be listed: VENDOR_UNAVAILABLE
      service-controller sc-1: 12 of 20 load balancers would go at once
      shard 1 of service-controller: no replica holds it, so its objects are not reconciled

    Load balancers
      3 under way: of the oldest 2, 2 wait for the call budget of bucket loadbalancer

    Adapters
      REPLICA  ADAPTER      VERSION  ROLE    CLUSTER  CLOUD SCOPE  TROUBLE
      ca-1     adapter-sim  0.1.0    leader  c1       sim          -

    Budgets
      BUCKET        RATE   CEILING  TOKENS  QUEUED  CALLS  THROTTLED  PAUSED
      loadbalancer  2.5/s  5/s      0.25    3       17     1          for 15s

    Queues
      BUCKET        CLASS        CONTROLLER          QUEUED  OLDEST
      loadbalancer  INTERACTIVE  service-controller  3       1m 1s

    Breakers
      FAMILY        STATE   NEXT TRY
      loadbalancer  open    in 5s
      compute       closed  -

    Listings
      COLLECTION      ITEMS  AGE  TARGET  ERROR
      load-balancers  4      12s  1m      -
      routes          0      -    2m      VENDOR_UNAVAILABLE

    Controllers
      CONTROLLER          REPLICA  VERSION  SHARDS   WAITING  RUNNING  LATER  OLDEST  UNSETTLED  ADAPTER
      service-controller  sc-1     0.1.0    #0 of 2  1        2        3      0.5s    4          ca-1

    Shards
      CONTROLLER          SHARD  HOLDER  SINCE  RENEWED
      service-controller  0      sc-1    1h 4m  2s
      service-controller  1      none    -      4m 2s

    Missing
      leases: why
      route-controller: no pod
    ");
    assert!(!whole().is_well());
}

#[test]
fn long_waits_are_troubles_and_the_oldest_are_named() {
    let wait = |n: u32, since: &str, why: Option<&str>| json!({ "kind": "Service", "key": format!("default/web-{n}"), "since": since, "waitsFor": why });
    let troubles = |waits: &[Value], dry_run| {
        let mut page_of = ControllerStatus { held_back: Vec::new(), dry_run, shards: 1, ..controller(&[0]) };
        page_of.waits = serde_json::from_value(waits.into()).expect("waits");
        let controllers = vec![page(Component::ServiceController, "sc-1", page_of)];
        report(&session(Vec::new()), Vec::new(), controllers, &[]).troubles
    };
    let mut waits = vec![
        wait(1, "2026-01-02T02:04:05Z", Some("no quota")),
        wait(2, "2026-01-02T02:54:05Z", None),
        wait(3, "2026-01-02T02:59:05Z", Some("no quota")),
        wait(4, "2026-01-02T02:59:06Z", Some("no quota")),
    ];
    let lines = [
        "service-controller sc-1: Service default/web-1 has not been in sync for 1h: no quota",
        "service-controller sc-1: Service default/web-2 has not been in sync for 10m: it is being reconciled",
        "service-controller sc-1: Service default/web-3 has not been in sync for 5m: no quota",
        "service-controller sc-1: 1 more for longer than 5m: 1 × in progress",
        "service-controller sc-1: at least 1 more for longer than 5m: 1 × in progress",
    ];
    assert_eq!(troubles(&waits, false), lines[..3], "the fourth object has not waited long");
    assert_eq!(troubles(&waits, true), [""; 0], "a dry run does not bring objects in sync");
    waits[3] = wait(4, "2026-01-02T02:59:05Z", None);
    assert_eq!(troubles(&waits, false), [&lines[..3], &lines[4..]].concat());
    waits.push(wait(5, "2026-01-02T03:04:05Z", None));
    assert_eq!(troubles(&waits, false), lines[..4]);
}

#[test]
fn json_and_yaml_reports_round_trip() {
    let text = written(&whole(), Format::Json, true).expect("written");
    assert_eq!(serde_json::from_str::<StatusReport>(&text).expect("read"), whole());
    let text = written(&whole(), Format::Yaml, true).expect("written");
    assert_eq!(serde_saphyr::from_str::<StatusReport>(&text).expect("read"), whole());
}

#[test]
fn without_leases_holders_come_from_the_pages() {
    let controllers = vec![
        page(Component::ServiceController, "sc-1", controller(&[1])),
        page(Component::ServiceController, "sc-2", controller(&[])),
    ];
    let shards = report(&session(Vec::new()), Vec::new(), controllers, &[]).shards;
    let shards: Vec<_> = shards.iter().map(|it| (it.shard, it.holder.as_deref())).collect();
    assert_eq!(shards, [(0, None), (1, Some("sc-1"))]);
}

#[test]
fn a_lone_standby_adapter_is_a_trouble() {
    let standby = AdapterStatus { leader: false, breakers: Vec::new(), snapshots: Vec::new(), ..adapter() };
    let report =
        report(&session(Vec::new()), vec![page(Component::CloudAdapter, "ca-2", standby)], Vec::new(), &[]);
    assert_eq!(report.troubles, ["cloud-adapter: no replica leads, so no vendor calls are made"]);
}

#[test]
fn unheld_shards_are_troubles() {
    let of = |shards, leases: &[Lease]| {
        let standby = ControllerStatus { shards, held_back: Vec::new(), ..controller(&[]) };
        let standby = page(Component::ServiceController, "sc-2", standby);
        report(&session(Vec::new()), Vec::new(), vec![standby], leases).troubles
    };
    let unheld = "shard 0 of service-controller: no replica holds it, so its objects are not reconciled";
    let others = lease("another-program", &json!({ "holderIdentity": "it" }));
    assert_eq!(of(1, &[others]), [unheld], "the shard has no Lease yet");
    assert_eq!(of(1, &[]), [unheld]);
    let idle = "service-controller sc-2: it holds no shard, and no holder of a shard is known";
    assert_eq!(of(0, &[]), [idle]);
    let held = json!({ "holderIdentity": "sc-1", "renewTime": "2026-01-02T03:04:03.000000Z" });
    let held = lease("cloud-service-controller", &held);
    assert_eq!(of(1, std::slice::from_ref(&held)), [""; 0], "another replica holds the shard");
    assert_eq!(of(0, &[held]), [""; 0]);
}

#[test]
fn a_refused_configuration_is_not_well() {
    let why = "limits.buckets.loadbalancr: unknown family, did you mean 'loadbalancer'?";
    let refusing =
        AdapterStatus { config_refused: Some(why.to_owned()), leader: true, ..AdapterStatus::default() };
    let found = of_adapters(&[ProcessReport { process: "ca-1".to_owned(), page: refusing }]);
    let line =
        format!("cloud-adapter ca-1: the adapter refuses its new configuration: {why}; a restart would fail");
    assert_eq!(found, [(line, Subject::Own)]);
}
