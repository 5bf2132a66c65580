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

fn scaled(component: &str) -> k8s_openapi::api::apps::v1::Deployment {
    let mut it = deployment(component, 0);
    it.metadata.namespace = Some("a".to_owned());
    it.spec.as_mut().expect("a spec").replicas = Some(0);
    it
}

#[test]
fn an_adapter_that_is_scaled_to_0_is_the_only_failure() {
    let all = [scaled("cloud-adapter"), deployment("node-controller", 0)];
    let report = report(deployments::of(&all, &[], &[]), &without_adapter(&[]));
    assert_eq!(failed(&report), ["the Deployments are available"]);
    let check = &report.checks[0];
    assert!(check.found.starts_with("cloud-adapter is scaled to 0; node-controller: 0 of 1"), "{check:?}");
    let run = "run kubectl --namespace a scale deployment/cloud-adapter --replicas=1, or helm upgrade";
    assert_eq!(check.hint.as_deref(), Some(run));
}

/// The pages while the adapter works, with this page of a controller in addition to its name.
fn with_page(page: &Value, adapter: &Value) -> StatusReport {
    let mut page = page.clone();
    page["controller"] = json!("node-controller");
    page["held"] = json!([0]);
    let mut status: StatusReport = of(&json!({
        "namespace": "a", "at": now(), "troubles": [], "missing": [],
        "adapters": [{ "process": "ca", "page": adapter }],
        "controllers": [{ "process": "nc", "page": page }, { "process": "nd", "page": page }],
        "shards": [{ "controller": "node-controller", "shard": 0, "holder": "nc" }],
    }));
    status.troubles = crate::status::troubles(&status).into_iter().map(|(line, _)| line).collect();
    status
}

#[test]
fn a_dead_endpoint_of_the_cloud_is_one_cause() {
    let adapter = json!({ "leader": true, "trouble": "192.0.2.1:9000: connection refused", "troubleReason": "VENDOR_UNAVAILABLE" });
    let away = "the cloud adapter has been unavailable since 2026-01-02T03:00:00Z: STARTING: the adapter cannot \
                reach the cloud: 192.0.2.1:9000: connection refused";
    let page = json!({ "adapter": { "trouble": away } });
    let unready = [deployment("cloud-adapter", 0), deployment("node-controller", 0)];
    let report = report(deployments::of(&unready, &[], &[]), &with_page(&page, &adapter));
    assert_eq!(failed(&report), ["the adapter reaches the cloud"]);
}

#[test]
fn a_cloud_that_moved_is_one_cause_and_its_text_is_in_one_line() {
    let moved =
        "The cloud adapter now uses project b, but this controller has worked in project a. Restore it";
    let page = json!({ "heldBack": [moved] });
    let unready = [deployment("node-controller", 0)];
    let report = report(deployments::of(&unready, &[], &[]), &with_page(&page, &json!({ "leader": true })));
    assert_eq!(failed(&report), ["no changes are held back"]);
    let text = written(&report, Format::Table, false).expect("written");
    let lines = text.split_once("cause:").expect("causes").0;
    assert_eq!(lines.matches("project b").count(), 1, "{text}");
    let brake = json!({ "heldBack": ["the deletion brake stops 3 deletions"] });
    let status = with_page(&brake, &json!({ "leader": true }));
    let checks = vec![deployments::of(&unready, &[], &[]), after::of_pages(&status).swap_remove(5)];
    let results: Vec<_> = marked(checks).iter().map(|it| it.result).collect();
    assert_eq!(results, [CheckResult::Failed, CheckResult::Failed], "the brake leaves the process ready");
}

#[test]
fn a_watch_that_is_refused_waits_for_the_cluster_role() {
    let refused = "watch of nodes: the API server refuses it: forbidden; see `cloudctl check`";
    let status = with_page(&json!({ "failingWatches": [refused] }), &json!({ "leader": true }));
    let deployed = BTreeSet::from([Component::NodeController]);
    let roles = installed::of_roles(&deployed, &deployed, &BTreeSet::new());
    let unready = [deployment("node-controller", 0)];
    let mut checks = vec![deployments::of(&unready, &[], &[]), roles];
    checks.extend(after::of_pages(&status));
    let report = CheckReport { checks: marked(checks), ..CheckReport::default() };
    assert_eq!(failed(&report), ["each controller has its ClusterRole"]);
    assert!(report.checks.iter().all(|it| !it.found.contains("cloudctl check")), "{report:?}");
}

#[test]
fn pods_wait_for_the_secret_of_the_certificate_authority() {
    let mut adapter = deployment("cloud-adapter", 1);
    let container = json!({ "name": "x", "args": ["--tls-ca-secret=a/cloud-adapter-ca"] });
    adapter.spec.as_mut().expect("a spec").template = of(&json!({ "spec": { "containers": [container] } }));
    let waiting = json!({ "waiting": { "reason": "CreateContainerConfigError", "message": "secret \"cloud-adapter-ca\" not found" } });
    let status = json!([{ "name": "it", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": waiting }]);
    let pod = of(&json!({
        "metadata": { "name": "x", "labels": { COMPONENT: "node-controller" } }, "status": { "containerStatuses": status },
    }));
    let pods = deployments::of(&[adapter, deployment("node-controller", 0)], &[pod], &[]);
    assert_eq!(pods.hint.as_deref(), Some("helm upgrade creates it"));
    let report = CheckReport {
        checks: marked(vec![pods, installed::of_secrets(&[], Some("cloud-adapter-ca"))]),
        ..CheckReport::default()
    };
    assert_eq!(failed(&report), ["the Secret of the certificate authority is filled"]);
    assert_eq!(report.checks[1].hint.as_deref(), Some("helm upgrade creates it"));
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
