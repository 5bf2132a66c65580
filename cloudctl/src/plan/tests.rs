//! Tests of reports that are built from pages.

use insta::assert_snapshot;
use serde_json::json;
use telemetry::report::VendorStep;

use super::*;
use crate::{
    output::{Format, Report as _, written},
    session::Process,
};

pub(crate) fn planned(controller: &str, kind: &str, key: &str, steps: &[(&str, &str, &str)]) -> Planned {
    let step = |&(description, operation, family): &(&str, &str, &str)| VendorStep {
        description: description.to_owned(),
        operation: operation.to_owned(),
        family: family.to_owned(),
    };
    let vendor = steps.iter().map(step).collect();
    let what = Priced { kind: kind.to_owned(), key: key.to_owned(), vendor, ..Priced::default() };
    Planned { controller: controller.to_owned(), what }
}

pub(crate) fn planner(looked_at: u64, of: u64) -> Planner {
    let (controller, process) = ("service-controller".to_owned(), "sc-1".to_owned());
    Planner { controller, process, dry_run: true, looked_at, of, objects: 1 }
}

pub(crate) fn gathered(planners: Vec<Planner>, objects: Vec<Planned>) -> Gathered {
    Gathered { planners, objects, gaps: Vec::new() }
}

fn adapter(paused: bool) -> Vec<Page<AdapterStatus>> {
    let until = paused.then_some("2026-01-02T03:05:05Z");
    let content = serde_json::from_value(json!({
        "at": "2026-01-02T03:04:05Z", "leader": true,
        "budgets": [
            { "bucket": "account", "rate": 1.0, "tokens": 1.0 },
            { "bucket": "loadbalancer", "rate": 5.0, "tokens": 1.0, "queued": 9, "pausedUntil": until },
            { "bucket": "network", "rate": 0.0, "tokens": 10.0 },
        ],
    }));
    vec![Page { process: Process::fake(Component::CloudAdapter, "ca"), content: content.expect("a page") }]
}

fn some() -> Vec<Planned> {
    let mut web = planned(
        "service-controller",
        "Service",
        "default/web",
        &[
            ("create load balancer web", "CreateLoadBalancer", "loadbalancer"),
            ("create listener tcp/80 with 2 members", "CreateListener", "loadbalancer"),
        ],
    );
    web.what.cluster = vec!["add finalizer".to_owned()];
    let mut full = planned("service-controller", "Service", "default/zzz", &[]);
    full.what.trouble = Some("The quota is reached".to_owned());
    full.what.reason = Some("VENDOR_QUOTA".to_owned());
    let mut node = planned("node-controller", "Node", "a", &[]);
    node.what.cluster = vec!["initialise provider ID sim://a".to_owned()];
    let route =
        planned("route-controller", "Node", "a", &[("remove 0 and add 1 routes", "BatchRoutes", "network")]);
    vec![node, route, web, full]
}

fn of(objects: Vec<Planned>, adapters: Vec<Page<AdapterStatus>>) -> PlanReport {
    report(Timestamp::UNIX_EPOCH, gathered(vec![planner(3, 4)], objects), adapters)
}

#[test]
fn the_table_shows_blocks_and_the_price() {
    let report = of(some(), adapter(false));
    assert_snapshot!(written(&report, Format::Table, false).expect("written"), @r"
    Node a
      node-controller   cluster  initialise provider ID sim://a
      route-controller  cloud    remove 0 and add 1 routes (BatchRoutes, network)

    Service default/web
      service-controller  cluster  add finalizer
      service-controller  cloud    create load balancer web (CreateLoadBalancer, loadbalancer)
      service-controller  cloud    create listener tcp/80 with 2 members (CreateListener, loadbalancer)

    Service default/zzz
      service-controller  because  The quota is reached (VENDOR_QUOTA)

    Price
      FAMILY        CALLS  RATE  AT LEAST
      loadbalancer  2      5/s   2s
      network       1      0/s   <1s
      3 calls change the cloud, which takes at least 2s at the current rates; reads are not included.

    Not complete yet
      service-controller sc-1: has reconciled 3 of 4 objects so far
    ");
    assert!(!report.is_well(), "an object waits, and the plan is not complete");
    let text = written(&report, Format::Json, false).expect("written");
    assert_eq!(serde_json::from_str::<PlanReport>(&text).expect("read"), report);
}

#[test]
fn the_slowest_bucket_determines_the_time() {
    let seconds = |objects, adapters| of(objects, adapters).at_least_seconds;
    let two = || vec![some().remove(2)];
    // The family's bucket: 2 calls and 9 queued calls, less 1 token, at 5 calls per second. The account's bucket: 2 calls, less 1 token, at
    // 1 call per second.
    assert_eq!(seconds(two(), adapter(false)), Some(2.0));
    assert_eq!(seconds(two(), adapter(true)), Some(62.0), "the pause counts first");
    assert_eq!(seconds(Vec::new(), Vec::new()), Some(0.0));
    assert_eq!(seconds(two(), Vec::new()), None, "the adapter was not read");
    let many = (0..12).map(|_| some().remove(1)).collect();
    assert_eq!(seconds(many, adapter(false)), None, "no calls are granted");
}

#[test]
fn an_empty_plan_is_reported() {
    let report = report(Timestamp::UNIX_EPOCH, gathered(vec![planner(4, 4)], Vec::new()), Vec::new());
    assert_eq!(written(&report, Format::Table, false).expect("written"), "No changes are planned.\n");
    assert!(report.is_well());
}

/// If no replica holds a shard, the plans of its objects are missing, and the report says so.
#[test]
fn a_plan_with_an_unheld_shard_is_not_complete() {
    let gaps = vec!["no replica that was read holds shard 0 of service-controller".to_owned()];
    let gathered = Gathered { gaps, ..gathered(vec![planner(0, 0)], Vec::new()) };
    let report = report(Timestamp::UNIX_EPOCH, gathered, Vec::new());
    assert_snapshot!(written(&report, Format::Table, false).expect("written"), @r"
    Not complete yet
      no replica that was read holds shard 0 of service-controller
    ");
    assert!(!report.is_well());
}
