//! Tests of the checks, on objects and pages.

mod causes;

use std::collections::{BTreeMap, BTreeSet};

use insta::assert_snapshot;
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::{Event, Node};
use serde_json::{Value, json};

use super::{
    after::{
        controllers::{self, Controllers},
        deployments, events, objects as installed,
    },
    *,
};
use crate::{
    adopt::{FormerLease, former::Signs},
    cluster::{API_SERVER, Cluster},
    labels::{COMPONENT, INSTANCE},
    output::{Format, Report as _, written},
    release::Release,
    status::StatusReport,
};

fn now() -> Timestamp {
    "2026-01-02T03:04:05Z".parse().expect("a time")
}

fn of<T: serde::de::DeserializeOwned>(value: &Value) -> T {
    serde_json::from_value(value.clone()).expect("an object")
}

fn node(name: &str, taint: &str, provider: Option<&str>) -> Node {
    of(&json!({
        "metadata": { "name": name, "creationTimestamp": "2026-01-02T03:00:00Z" },
        "spec": { "providerID": provider, "taints": [{ "key": taint, "effect": "NoSchedule" }] },
    }))
}

const TAINT: &str = "node.cloudprovider.kubernetes.io/uninitialized";

#[test]
fn each_check_has_one_line_with_a_hint_and_a_page() {
    let checks = vec![
        before::version(Ok((1, 34))),
        before::of_nodes(&[node("a", TAINT, None), node("b", "x", Some("sim://b")), node("c", "x", None)]),
        installed::of_nodes(&[node("a", TAINT, None)], now() - SignedDuration::from_secs(205)),
        events::of(vec![warning("2026-01-02T03:01:00Z")], &events::starts(&[]), now()),
        before::VERSION.unknown(&Missing::new("nodes", "forbidden")),
        before::version(Err(Missing::new(API_SERVER, "no answer"))),
        before::VERSION.not_permitted(CheckResult::Skipped, "list Secrets"),
    ];
    let report = CheckReport {
        at: now(),
        release: Some("ccm".to_owned()),
        namespace: "a".to_owned(),
        checks,
        missing: Vec::new(),
    };
    let text = written(&report, Format::Table, false).expect("written");
    assert_snapshot!(text.replace(&page::url(""), "https://pages/"), @r"
    Checks of release ccm in a
    ok      the API server is Kubernetes 1.33 or later: 1.34
    FAILED  the kubelets run with --cloud-provider=external: of 3 nodes, these have neither the taint nor a provider ID: 1: c; set the flag, delete the Node objects and restart these kubelets (https://pages/docs/install.md#1-kubelets)
    waits   the nodes are initialised: 1 node waits to be initialised (for 40s); normal for up to 2 minutes; see the Events of the nodes, and `cloudctl explain node NAME` (https://pages/docs/troubleshoot.md#nodes)
    warning the controllers have emitted no recent Events of type Warning: 1 × SyncLoadBalancerFailed (3m 5s ago); see kubectl get events --all-namespaces --field-selector type=Warning (https://pages/docs/troubleshoot.md#events)
    unknown the API server is Kubernetes 1.33 or later: not known: forbidden; the check needs the right to read this (https://pages/docs/upgrade.md)
    unknown the API server is Kubernetes 1.33 or later: not known: no answer; let the API server answer first (https://pages/docs/upgrade.md)
    skipped the API server is Kubernetes 1.33 or later: not checked, because this user may not list Secrets; an administrator's `cloudctl check` checks it (https://pages/docs/upgrade.md)

    7 checks: 1 failed, 1 waiting, 1 warning
    ");
    assert!(!report.is_well());
    let text = written(&report, Format::Json, false).expect("written");
    assert_eq!(serde_json::from_str::<CheckReport>(&text).expect("read"), report);
}

/// Runs all checks in an environment where everything is wrong or cannot be read.
#[tokio::test]
async fn each_check_has_a_hint_and_a_link_to_a_heading_that_exists() {
    let no = json!({ "kind": "Status", "code": 403, "message": "no" });
    let cluster = Cluster::answering(403, &no);
    let mut all = before::checks(&cluster, "a", now()).await;
    let mut session = Session {
        cluster: Some(cluster),
        release: Release::within("a"),
        processes: Vec::new(),
        missing: Vec::new(),
        now: now(),
    };
    all.extend(after::checks(&mut session).await);
    all.extend(after::of_pages(&of(&json!({
        "namespace": "a", "at": now(), "troubles": [], "missing": [],
        "adapters": [{ "process": "ca", "page": { "adapter": "adapter-sim", "version": "0.1.0" } }],
        "controllers": [{ "process": "nc", "page": { "controller": "node-controller", "version": "0.2.0", "heldBack": ["x"] } }],
        "shards": [{ "controller": "node-controller", "shard": 0 }],
    }))));
    let names: BTreeSet<String> = all.iter().map(|it| it.name.clone()).collect();
    let wrong: BTreeMap<String, Check> =
        all.into_iter().filter(|it| it.result != CheckResult::Ok).map(|it| (it.name.clone(), it)).collect();
    assert_eq!(wrong.keys().cloned().collect::<BTreeSet<_>>(), names, "each check can fail");
    for (name, check) in wrong {
        assert!(check.hint.is_some_and(|it| !it.is_empty()), "{name}");
        let link = check.link.expect("a link");
        let link = link.strip_prefix(&page::url("")).expect("a page of the repository");
        let (page, heading) = link.split_once('#').unwrap_or((link, ""));
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let text = std::fs::read_to_string(root.join(page)).expect(page);
        let mut headings = text.lines().filter(|it| it.starts_with('#')).map(anchor);
        assert!(heading.is_empty() || headings.any(|it| it == heading), "{name}: {link}");
    }
}

/// The anchor of a heading, as GitHub makes it.
fn anchor(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = text.chars().filter(|it| it.is_alphanumeric() || matches!(it, ' ' | '-' | '_'));
    kept.map(|it| if it == ' ' { '-' } else { it }).collect()
}

#[test]
fn an_old_api_server_and_a_strict_namespace_are_refused() {
    assert_eq!(before::version(Ok((1, 32))).result, CheckResult::Failed);
    assert_eq!(before::version(Ok((1, 33))).result, CheckResult::Ok);
    let strict = json!({ "metadata": { "labels": { "pod-security.kubernetes.io/enforce": "baseline" } } });
    assert_eq!(before::of_namespace("a", Some(&of(&strict))).result, CheckResult::Failed);
    assert_eq!(before::of_namespace("a", Some(&of(&json!({ "metadata": {} })))).result, CheckResult::Ok);
    assert_eq!(before::of_namespace("a", None).result, CheckResult::Ok);
}

#[test]
fn another_cloud_controller_manager_is_found() {
    assert_eq!(before::others(&Signs::default()).result, CheckResult::Ok);
    let lease = FormerLease { holder: "ccm-x".to_owned(), renewed: None, running: true };
    let check = before::others(&Signs { lease: Some(lease), ..Signs::default() });
    assert!(check.result == CheckResult::Failed && check.found.contains("ccm-x renews"), "{check:?}");
    let unread = vec![("leases", Missing::new("leases", "forbidden"))];
    let check = before::others(&Signs { unread, ..Signs::default() });
    assert!(check.result == CheckResult::Unknown && check.found.contains("forbidden"), "{check:?}");
}

#[test]
fn unavailable_deployments_and_empty_secrets_fail() {
    let deployment = |available: u32| {
        let status = json!({ "availableReplicas": available });
        vec![of(
            &json!({ "metadata": { "name": "eu-node-controller" }, "spec": { "replicas": 2, "selector": {}, "template": {} }, "status": status }),
        )]
    };
    assert_eq!(deployments::of(&deployment(2), &[], &[]).result, CheckResult::Ok);
    let check = deployments::of(&deployment(1), &[], &[]);
    assert_eq!(
        (check.result, check.found.as_str()),
        (CheckResult::Failed, "eu-node-controller: 1 of 2 replicas available")
    );
    let secret =
        |data: Value| vec![of(&json!({ "metadata": { "name": "eu-cloud-adapter-ca" }, "data": data }))];
    let adapter = json!({ "args": ["--tls-ca-secret=a/eu-cloud-adapter-ca"], "name": "x" });
    let template = json!({ "spec": { "containers": [adapter] } });
    let adapter = of(&json!({ "metadata": {}, "spec": { "selector": {}, "template": template } }));
    let name = installed::filled_by_adapter(&[adapter]);
    assert_eq!(
        (name.as_deref(), installed::filled_by_adapter(&deployment(1))),
        (Some("eu-cloud-adapter-ca"), None)
    );
    let result = |secrets: &[_]| installed::of_secrets(secrets, name.as_deref()).result;
    assert_eq!(result(&secret(json!({ "ca.crt": "YQ==", "ca.key": "YQ==" }))), CheckResult::Ok);
    assert_eq!(result(&secret(json!({ "ca.crt": "YQ==" }))), CheckResult::Failed);
    assert_eq!(result(&[]), CheckResult::Failed, "it was deleted");
    assert_eq!(installed::of_secrets(&[], None).result, CheckResult::Ok, "without generated certificates");
}

fn warning(at: &str) -> Event {
    of(&json!({
        "metadata": {}, "involvedObject": {}, "reason": "SyncLoadBalancerFailed", "type": "Warning",
        "reportingComponent": "service-controller", "lastTimestamp": at,
    }))
}

#[test]
fn nodes_may_have_the_taint_only_for_a_short_time() {
    let nodes = [node("a", TAINT, None)];
    let check = installed::of_nodes(&nodes, now());
    assert!(check.result == CheckResult::Failed && check.found.ends_with("1: a"), "{check:?}");
    let at = |text: &str| text.parse::<Timestamp>().expect("a time");
    let check = installed::of_nodes(&nodes, at("2026-01-02T03:02:00Z"));
    assert_eq!(
        (check.result, check.found.as_str()),
        (CheckResult::Waiting, "1 node waits to be initialised (for 2m); normal for up to 2 minutes")
    );
    let report = CheckReport { checks: vec![check], ..CheckReport::default() };
    assert!(report.is_well() && !report.is_settled(), "no fault, but --wait waits for it");
    let two = [nodes[0].clone(), node("b", TAINT, None), node("c", "x", Some("sim://c"))];
    let check = installed::of_nodes(&two, at("2026-01-02T03:00:40Z"));
    assert_eq!(check.found, "2 nodes wait to be initialised (for 40s); normal for up to 2 minutes");
    assert_eq!(installed::of_nodes(&two, now()).result, CheckResult::Failed);
    assert_eq!(installed::of_nodes(&two[2..], now()).result, CheckResult::Ok);
}

/// Its kubelet lacks `--cloud-provider=external`, so the node is neither marked as uninitialised nor known to the cloud.
#[tokio::test]
async fn a_node_without_taint_and_provider_id_fails_after_the_installation() {
    let list = |items: &[Node]| {
        let items = serde_json::to_value(items).expect("JSON");
        Cluster::answering(
            200,
            &json!({ "kind": "List", "apiVersion": "v1", "metadata": {}, "items": items }),
        )
    };
    let own = |component| Controllers::of(&[controllers::tests::deployment(component, 1, &[])]);
    let cluster = list(&[node("a", "x", Some("sim://a")), node("b", "x", None)]);
    let found = after::of_nodes(&cluster, Ok(&own("node-controller")), now()).await;
    let results: Vec<_> = found.iter().map(|it| it.result).collect();
    // This cluster answers a request for Leases with nodes.
    assert_eq!(results, [CheckResult::Unknown, CheckResult::Failed, CheckResult::Ok], "{found:?}");
    assert_eq!(found[0].name, "no other cloud controller manager has the same tasks");
    assert!(found[1].found.ends_with("neither the taint nor a provider ID: 1: b"), "{found:?}");
    let found = after::of_nodes(&cluster, Ok(&own("service-controller")), now()).await;
    assert_eq!(found.len(), 1, "another controller initialises the nodes: {found:?}");
}

#[test]
fn pages_show_versions_leases_and_the_adapter() {
    let status: StatusReport = of(&json!({
        "namespace": "a", "at": now(), "troubles": [], "missing": [],
        "adapters": [{ "process": "ca", "page": { "adapter": "adapter-sim", "version": "0.1.0", "leader": true, "trouble": "401 from the cloud", "troubleReason": "VENDOR_AUTH" } }],
        "controllers": [{ "process": "nc", "page": { "controller": "node-controller", "version": "0.2.0", "adapter": { "trouble": "refused" } } }],
        "shards": [{ "controller": "node-controller", "shard": 0 }],
    }));
    let found: Vec<_> = after::of_pages(&status).into_iter().map(|it| (it.result, it.found)).collect();
    let failed = |text: &str| (CheckResult::Failed, text.to_owned());
    assert_eq!(
        found,
        [
            failed("cloud-adapter 0.1.0, node-controller 0.2.0"),
            failed("node-controller nc: refused"),
            (CheckResult::Ok, String::new()),
            failed("401 from the cloud"),
            failed("no holder: node-controller shard 0"),
            (CheckResult::Ok, String::new()),
            (CheckResult::Ok, String::new()),
        ]
    );
}

/// `cloudctl status` finds these troubles on pages; here they reach the check.
#[test]
fn what_status_reports_as_not_well_fails() {
    let of_troubles = |troubles: &[&str], controllers: Value| {
        let status: StatusReport = of(&json!({
            "namespace": "a", "at": now(), "troubles": troubles, "missing": [], "adapters": [],
            "controllers": controllers, "shards": [],
        }));
        let all = after::of_pages(&status);
        let check = all.iter().find(|it| it.name == "`cloudctl status` reports nothing as not well");
        let check = check.expect("the check");
        (check.result, check.found.clone())
    };
    let page = json!([{ "process": "nc", "page": { "controller": "node-controller" } }]);
    assert_eq!(of_troubles(&[], page.clone()), (CheckResult::Ok, String::new()));
    let (breaker, long) = (
        "cloud-adapter x: the breaker of compute is open",
        "node-controller nc: Node a has not been in sync for 6m",
    );
    assert_eq!(of_troubles(&[breaker], page.clone()), (CheckResult::Failed, breaker.to_owned()));
    let found = format!("{breaker} (and 2 more)");
    assert_eq!(of_troubles(&[breaker, long, long], page), (CheckResult::Failed, found));
    assert_eq!(
        of_troubles(&[], json!([])),
        (CheckResult::Unknown, "not known: no status page was read".to_owned())
    );
}

/// Credentials are not blamed before the cloud has answered.
#[test]
fn an_unreachable_cloud_is_not_reported_as_wrong_credentials() {
    let of_adapter = |page: Value| {
        let status: StatusReport = of(&json!({
            "namespace": "a", "at": now(), "troubles": [], "missing": [], "controllers": [], "shards": [],
            "adapters": [{ "process": "ca", "page": page }],
        }));
        let all = after::of_pages(&status);
        let find = |name: &str| all.iter().find(|it| it.name == name).cloned().expect(name);
        [find("the adapter reaches the cloud"), find("the cloud accepts the adapter's credentials")]
    };
    let refused = "List: 192.0.2.1:9000: connection refused";
    let trouble = json!({ "leader": true, "trouble": refused, "troubleReason": "VENDOR_UNAVAILABLE" });
    let [cloud, credentials] = of_adapter(trouble);
    assert_eq!((cloud.result, cloud.found.as_str()), (CheckResult::Failed, refused));
    assert!(cloud.hint.is_some_and(|it| it.contains("endpoint of the cloud")));
    assert_eq!(
        (credentials.result, credentials.found.as_str()),
        (CheckResult::Unknown, "not known: the cloud cannot be reached")
    );
    let listing = |error: Option<&str>| json!({ "collection": "x", "error": error, "ageSeconds": 1.0 });
    let page = |second: Option<&str>| json!({ "leader": true, "scope": "s", "snapshots": [listing(Some(refused)), listing(second), { "collection": "unlisted" }] });
    let [cloud, credentials] = of_adapter(page(Some("other")));
    assert_eq!((cloud.result, cloud.found.as_str()), (CheckResult::Failed, refused), "no listing succeeds");
    assert_eq!(credentials.result, CheckResult::Unknown, "they may have been replaced since");
    let [cloud, credentials] = of_adapter(json!({ "leader": false }));
    assert_eq!((cloud.result, credentials.result), (CheckResult::Failed, CheckResult::Unknown));
    assert_eq!(cloud.hint.as_deref(), Some("see the adapter's pods"));
    let [cloud, credentials] = of_adapter(page(None));
    assert_eq!((cloud.result, credentials.found.as_str()), (CheckResult::Ok, "s"), "one listing succeeds");
}

#[test]
fn a_missing_cluster_role_or_binding_is_named() {
    use crate::options::Component::{CloudAdapter, NodeController, RouteController};
    let found = |roles: &[_], bindings: &[_]| {
        let deployed = BTreeSet::from([CloudAdapter, NodeController, RouteController]);
        let set = |all: &[_]| all.iter().copied().collect();
        let check = installed::of_roles(&deployed, &set(roles), &set(bindings));
        (check.result, check.found)
    };
    let both = [NodeController, RouteController];
    assert_eq!(found(&both, &both), (CheckResult::Ok, "2 ClusterRoles".to_owned()));
    let failed = |text: &str| (CheckResult::Failed, text.to_owned());
    assert_eq!(found(&both, &both[1..]), failed("node-controller has no ClusterRoleBinding"));
    assert_eq!(found(&both[1..], &both), failed("node-controller has none"));
}

#[tokio::test]
async fn missing_cluster_roles_are_named_and_forbidden_secrets_are_skipped() {
    let labels = json!({ INSTANCE: "ccm", COMPONENT: "node-controller", "app.kubernetes.io/part-of": "cloud-controllers" });
    let items = json!([{ "metadata": { "name": "it", "labels": labels } }]);
    let cluster = Cluster::answering(
        200,
        &json!({ "kind": "List", "apiVersion": "v1", "metadata": {}, "items": items }),
    );
    let mut release = Release::within("a");
    release.name = Some("ccm".to_owned());
    assert_eq!(installed::cluster_roles(&cluster, &release).await.result, CheckResult::Ok);
    let no = json!({ "kind": "Status", "code": 403, "message": "no" });
    let forbidden = Cluster::answering(403, &no);
    assert_eq!(installed::cluster_roles(&forbidden, &release).await.result, CheckResult::Unknown);
    let skipped = installed::authority(&forbidden, &release).await;
    assert_eq!(
        (skipped.result, skipped.found.as_str(), skipped.hint.as_deref()),
        (
            CheckResult::Skipped,
            "not checked, because this user may not list Secrets",
            Some("an administrator's `cloudctl check` checks it")
        )
    );
}
