//! Tests that one cause is one failed check, on objects and pages.

use super::*;
use crate::check::{after, causes::marked};

fn deployment(component: &str, available: i32) -> k8s_openapi::api::apps::v1::Deployment {
    of(&json!({
        "metadata": { "name": component, "labels": { COMPONENT: component } },
        "spec": { "replicas": 1, "selector": {}, "template": {} }, "status": { "availableReplicas": available },
    }))
}

/// The pages and Leases while the adapter does not run.
fn without_adapter(held_back: &[&str]) -> StatusReport {
    let away = "the cloud adapter has been unreachable since 2026-01-02T03:00:00Z";
    let waits = json!([{ "kind": "Node", "key": "a", "since": "2026-01-02T02:00:00Z", "waitsFor": away }]);
    let page = json!({
        "controller": "node-controller", "adapter": { "trouble": away }, "waits": waits, "held": [0],
        "heldBack": held_back,
    });
    let mut status: StatusReport = of(&json!({
        "namespace": "a", "at": now(), "troubles": [], "missing": [], "adapters": [],
        "controllers": [{ "process": "nc", "page": page }],
        "shards": [
            { "controller": "node-controller", "shard": 0, "holder": "nc" },
            { "controller": "cloud-adapter", "shard": 0 },
        ],
    }));
    status.troubles = crate::status::troubles(&status).into_iter().map(|(line, _)| line).collect();
    status
}

fn report(deployments: Check, status: &StatusReport) -> CheckReport {
    let mut checks = vec![deployments];
    checks.extend(after::of_pages(status));
    checks.push(installed::of_nodes(&[node("a", TAINT, None)], now()));
    CheckReport { at: now(), namespace: "a".to_owned(), checks: marked(checks), ..CheckReport::default() }
}

fn failed(report: &CheckReport) -> Vec<&str> {
    let failed = report.checks.iter().filter(|it| it.result == CheckResult::Failed);
    failed.map(|it| it.name.as_str()).collect()
}

#[test]
fn an_adapter_that_does_not_run_is_the_only_failure() {
    let all = [deployment("cloud-adapter", 0), deployment("node-controller", 0)];
    let report = report(deployments::of(&all, &[], &[]), &without_adapter(&[]));
    assert_eq!(failed(&report), ["the Deployments are available"]);
    assert!(!report.is_well());
    let waiting = report.checks.iter().filter(|it| it.result == CheckResult::Waiting);
    let waiting: Vec<_> = waiting.map(|it| (it.name.as_str(), it.because.join(", "))).collect();
    let cause = || "the Deployments are available".to_owned();
    assert_eq!(
        waiting,
        [
            ("the controllers reach the adapter", cause()),
            ("the adapter reaches the cloud", cause()),
            ("each shard has a holder that renews its Lease", cause()),
            ("`cloudctl status` reports nothing as not well", cause()),
            ("the nodes are initialised", cause()),
        ]
    );
    let text = written(&report, Format::Table, false).expect("written");
    let (_, summary) = text.split_once("\n\n").expect("a summary");
    assert_snapshot!(summary, @r"
    1 cause:
      FAILED  the Deployments are available: cloud-adapter: 0 of 1 replicas available; node-controller: 0 of 1 replicas available (5 other checks fail because of it)
    9 checks: 1 failed, 5 waiting, 0 warnings
    ");
    let line = text.lines().find(|it| it.contains("each shard has")).expect("its line");
    let wanted = "waits   each shard has a holder that renews its Lease: no holder: cloud-adapter shard 0; first fix: the Deployments are available (https://";
    assert!(line.starts_with(wanted), "{line}");
}

#[test]
fn a_fault_beside_the_adapter_is_not_hidden() {
    let adapter = deployment("cloud-adapter", 0);
    let status = without_adapter(&["the deletion brake stops 3 deletions"]);
    let report = report(deployments::of(std::slice::from_ref(&adapter), &[], &[]), &status);
    assert_eq!(failed(&report), ["the Deployments are available", "no changes are held back"]);
    let text = written(&report, Format::Table, false).expect("written");
    let cause = "\n2 causes:\n  FAILED  the Deployments are available: ";
    assert!(text.contains(cause), "{text}");
    // The process runs, but is not ready: its controller does not reach the adapter, which is available.
    let unready = [deployment("cloud-adapter", 1), deployment("node-controller", 0)];
    let status = without_adapter(&[]);
    let checks = vec![deployments::of(&unready, &[], &[]), after::of_pages(&status).swap_remove(1)];
    let results: Vec<_> = marked(checks).iter().map(|it| it.result).collect();
    assert_eq!(results, [CheckResult::Waiting, CheckResult::Failed]);
    // A controller that runs, and that has its own reason.
    let unready = [deployment("service-controller", 0)];
    let checks = vec![deployments::of(&unready, &[], &[]), after::of_pages(&status).swap_remove(1)];
    let results: Vec<_> = marked(checks).iter().map(|it| it.result).collect();
    assert_eq!(results, [CheckResult::Failed, CheckResult::Failed], "another controller reaches no adapter");
}
