//! Tests which reports are safe, and which are not.

use insta::assert_snapshot;

use super::*;
use crate::{
    output::{Format, Report as _, written},
    plan::tests::{gathered, planned, planner},
};

fn now() -> Timestamp {
    "2026-01-02T03:04:05Z".parse().expect("a time")
}

fn adopted() -> Planned {
    planned(
        "service-controller",
        "Service",
        "default/web",
        &[
            ("tag load balancer lb-1 as owned by this cluster", "UpdateLoadBalancer", "loadbalancer"),
            ("describe floating IP 192.0.2.1 as owned by this cluster", "UpdateFloatingIp", "network"),
        ],
    )
}

fn former() -> Former {
    let renewed = Some("2026-01-02T03:04:03Z".parse().expect("a time"));
    Former {
        lease: Some(FormerLease { holder: "ccm-x".to_owned(), renewed, running: true }),
        pods: vec!["openstack-ccm-1".to_owned()],
        services: (0..7).map(|it| format!("default/web-{it}")).collect(),
        ..Former::default()
    }
}

fn of(objects: Vec<Planned>) -> AdoptReport {
    report(now(), gathered(vec![planner(4, 4)], objects), former(), Vec::new())
}

#[test]
fn marks_alone_are_safe() {
    let report = of(vec![adopted()]);
    assert_snapshot!(written(&report, Format::Table, false).expect("written"), @r"
    Another cloud controller manager
      Lease                          runs: held by ccm-x, renewed 2s ago
      pods                           1: openstack-ccm-1
      Services with a load balancer  7: default/web-0, default/web-1, default/web-2, default/web-3, default/web-4, ...
      uninitialised nodes            none

    Safe: taking over sets 2 marks in the cloud and changes nothing else there.
    Stop the other cloud controller manager, then `helm upgrade` with --set dryRun=false.
    ");
    assert!(report.is_well() && report.marks == 2, "{report:#?}");
    let text = written(&report, Format::Json, false).expect("written");
    assert_eq!(serde_json::from_str::<AdoptReport>(&text).expect("read"), report);
}

#[test]
fn on_a_running_system_there_is_nothing_to_adopt() {
    let at_work = || gathered(vec![Planner { dry_run: false, ..planner(4, 4) }], vec![adopted()]);
    let report_of = |former| report(now(), at_work(), former, Vec::new());
    let running = report_of(Former { services: vec!["default/web".to_owned()], ..Former::default() });
    let text = written(&running, Format::Table, false).expect("written");
    assert!(text.starts_with("There is nothing to adopt: these controllers already run."), "{text}");
    assert!(running.is_well() && running.nothing_to_adopt && !running.safe, "{running:#?}");
    let both = report_of(former());
    assert!(!both.is_well() && !both.nothing_to_adopt, "another cloud controller manager runs beside them");
}

#[test]
fn what_would_change_is_listed() {
    let listener = ("create listener tcp/80", "CreateListener", "loadbalancer");
    let attach = ("attach floating IP 192.0.2.1", "UpdateFloatingIp", "network");
    let untag = "remove the owner's tags from load balancer lb-1, which others use";
    let take_off = (untag, "UpdateLoadBalancer", "loadbalancer");
    let mut node = planned("node-controller", "Node", "a", &[]);
    node.what.cluster = vec!["delete the node".to_owned(), "initialise provider ID sim://a".to_owned()];
    let report = of(vec![
        adopted(),
        node,
        planned("service-controller", "Service", "default/new", &[listener, attach, take_off]),
    ]);
    assert_snapshot!(written(&report, Format::Table, false).expect("written"), @r"
    Another cloud controller manager
      Lease                          runs: held by ccm-x, renewed 2s ago
      pods                           1: openstack-ccm-1
      Services with a load balancer  7: default/web-0, default/web-1, default/web-2, default/web-3, default/web-4, ...
      uninitialised nodes            none

    What would change
      OBJECT               CONTROLLER          CHANGE                                                             OPERATION
      Node a               node-controller     delete the node                                                    -
      Service default/new  service-controller  create listener tcp/80                                             CreateListener
      Service default/new  service-controller  attach floating IP 192.0.2.1                                       UpdateFloatingIp
      Service default/new  service-controller  remove the owner's tags from load balancer lb-1, which others use  UpdateLoadBalancer

    What would be added in the cluster
      OBJECT  CONTROLLER       CHANGE                          OPERATION
      Node a  node-controller  initialise provider ID sim://a  -

    Not known to be safe:
      4 things would change
    ");
    assert!(!report.is_well());
    assert_eq!(written(&report, Format::Name, false).expect("written"), "node/a\nservice/default/new\n");
}

#[test]
fn every_doubt_is_listed() {
    let mut refused = adopted();
    refused.what.trouble = Some("The quota is reached".to_owned());
    refused.what.reason = Some("VENDOR_QUOTA".to_owned());
    let at_work = Planner { dry_run: false, ..planner(3, 4) };
    let missing = vec![Missing::new("route-controller", "no pod")];
    let doubts = report(now(), gathered(vec![at_work], vec![refused]), former(), missing).doubts;
    assert_snapshot!(doubts.join("\n"), @r"
    service-controller sc-1: already runs without --dry-run, so its plan shows only the remaining changes; `adopt` is for a dry run (--set dryRun=true) before that
    service-controller sc-1: has reconciled 3 of 4 objects so far: try again later
    Service default/web: The quota is reached
    some pages or objects could not be read
    ");
    assert_eq!(
        report(now(), gathered(Vec::new(), Vec::new()), former(), Vec::new()).doubts,
        ["no plan was read"]
    );
}

#[test]
fn a_replica_without_shards_proves_nothing() {
    let gaps = vec!["no replica that was read holds shard 0 of service-controller".to_owned()];
    let gathered = Gathered { gaps: gaps.clone(), ..gathered(vec![planner(0, 0)], Vec::new()) };
    let report = report(now(), gathered, former(), Vec::new());
    assert!(!report.safe && report.doubts == gaps, "{:?}", report.doubts);
}

#[test]
fn unread_resources_are_not_reported_as_absent() {
    let away = "not connected to the API server";
    let missing = vec![Missing::new("API server", away)];
    let report = report(now(), gathered(vec![planner(4, 4)], Vec::new()), Former::unread(away), missing);
    let text = written(&report, Format::Table, false).expect("written");
    assert_eq!(text.matches(&format!("not read: {away}")).count(), 4, "{text}");
    assert!(!text.contains("none") && !text.contains("no Lease") && !report.safe, "{text}");
}
