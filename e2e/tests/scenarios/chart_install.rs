//! Tests of the objects that the chart creates from its values, on a real API server. No controller runs here.

use std::collections::BTreeSet;

use e2e::{ControlPlane, Pods, Release, Values, merge, rights};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, ServiceAccount};
use k8s_openapi::api::networking::v1::{NetworkPolicy, NetworkPolicyPeer};
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams};
use serde_json::{Value, from_value, json};

#[tokio::test]
async fn the_chart_installs_and_uninstalls() {
    let control_plane = control_plane().await;
    let values = Values::new().unwrap();
    let release = Release::install(&control_plane, &values.render()).await.unwrap();

    let mut pods = Pods::from_release(&control_plane, &release).await.unwrap();
    let names = ["cloud-adapter", "node-controller", "route-controller", "service-controller"];
    assert_eq!(pods.names(), names);
    for controller in &names[1..] {
        let pod = pods.get(controller).unwrap();
        let args = pod.args();
        assert!(!args.iter().any(|arg| arg.starts_with("--cluster-id")), "it reads the UID: {args:?}");
        let endpoint = "--adapter-endpoint=kubernetes:///kube-system/cloud-adapter:grpc";
        assert!(args.iter().any(|arg| arg == endpoint), "{args:?}");
        let mounted = |flag: &str| {
            let path = args.iter().find_map(|arg| arg.strip_prefix(flag)).unwrap();
            std::fs::read_to_string(path).unwrap()
        };
        assert!(mounted("--adapter-ca-file=").starts_with("-----BEGIN CERTIFICATE"));
        assert!(!mounted("--adapter-token-file=").is_empty());
        assert!(pod.env().contains_key("KUBECONFIG"), "{controller} has no identity");
        assert!(
            pod.env().contains_key("MALLOC_ARENA_MAX"),
            "{controller}: the same settings as in the memory benchmark"
        );
    }
    let adapter = pods.get("cloud-adapter").unwrap();
    let config = adapter.args().iter().find_map(|arg| arg.strip_prefix("--config=")).unwrap();
    assert!(std::fs::read_to_string(config).unwrap().contains("buckets:"), "{config}");
    let threshold = adapter.env().get("MALLOC_TRIM_THRESHOLD_");
    assert_eq!(threshold.map(String::as_str), Some("131072"), "the same settings as in the memory benchmark");

    release.uninstall(&control_plane).await.unwrap();
    assert_eq!(left_over(&control_plane).await, "");
}

/// Rights of service-controller in its namespace.
const RELEASES: [&str; 2] =
    ["list configmaps named cloud-controllers-orphans", "watch configmaps named cloud-controllers-orphans"];
/// Rights of route-controller in its namespace.
const RECORD: [&str; 3] = [
    "create configmaps",
    "get configmaps named route-controller-routes",
    "patch configmaps named route-controller-routes",
];

/// Each ServiceAccount has exactly these rights, in addition to those of any ServiceAccount.
// Behaviour: P13
#[tokio::test]
async fn each_controller_has_exactly_the_listed_rights() {
    let control_plane = control_plane().await;
    let values = Values::new().unwrap().render();
    let release = Release::install(&control_plane, &values).await.unwrap();
    let mut pods = Pods::from_release(&control_plane, &release).await.unwrap();
    let node =
        ["get nodes", "list nodes", "watch nodes", "patch nodes", "delete nodes", "patch nodes/status"];
    let service = [
        "get services",
        "list services",
        "watch services",
        "patch services/status",
        "list nodes",
        "watch nodes",
    ];
    let route = ["list nodes", "watch nodes", "patch nodes/status"];
    let cases: [(&str, &[&str], &[&str]); 3] = [
        ("node-controller", &node, &[]),
        ("service-controller", &service, &RELEASES),
        ("route-controller", &route, &RECORD),
    ];

    for (pod, own, near) in cases {
        let user = pods.get(pod).unwrap().user().to_owned();
        let everywhere: BTreeSet<_> =
            own.iter().chain(&EVENTS).chain(&CLUSTER).map(|&right| right.to_owned()).collect();
        // Replicas with another number of shards watch each other's Leases.
        let further = (1..64).map(|shard| format!("-{shard}"));
        let names = std::iter::once(String::new()).chain(further).map(|shard| format!("cloud-{pod}{shard}"));
        let lease = names.flat_map(|name| lease_rights(&name));
        let own = AT_HOME.iter().chain(near).map(|&right| right.to_owned()).chain(lease);
        let at_home = everywhere.iter().cloned().chain(own).collect::<BTreeSet<_>>();
        assert_eq!(granted(&control_plane, &user, "kube-system").await, at_home, "{pod} in its namespace");
        assert_eq!(granted(&control_plane, &user, "default").await, everywhere, "{pod} elsewhere");
    }
}

// Behaviour: P13
#[tokio::test]
async fn adapter_has_exactly_the_listed_rights() {
    let control_plane = control_plane().await;
    let values = Values::new().unwrap().render();
    let release = Release::install(&control_plane, &values).await.unwrap();
    let mut pods = Pods::from_release(&control_plane, &release).await.unwrap();
    let adapter = pods.get("cloud-adapter").unwrap().user().to_owned();
    let everywhere = BTreeSet::from(CLUSTER.map(str::to_owned));
    let ca: BTreeSet<_> = everywhere.iter().cloned().chain(CA.map(str::to_owned)).collect();
    assert_eq!(granted(&control_plane, &adapter, "kube-system").await, ca, "the adapter, in its namespace");
    assert_eq!(granted(&control_plane, &adapter, "default").await, everywhere, "the adapter, elsewhere");

    let mut two = values;
    merge(&mut two, &json!({ "adapter": { "replicas": "active-standby" } }));
    let refused =
        release.upgrade(&control_plane, &two).await.expect_err("two replicas would run without a Lease");
    assert!(
        format!("{refused:#}").contains("adapter.replicas: the running adapter does not use a Lease"),
        "{refused:#}"
    );
    let delete = ["delete", "deployment", "cloud-adapter", "--namespace", "kube-system"];
    control_plane.kubectl(&delete).await.unwrap();
    release.upgrade(&control_plane, &two).await.unwrap();
    let lease = ca.into_iter().chain(lease_rights("cloud-adapter")).collect();
    assert_eq!(
        granted(&control_plane, &adapter, "kube-system").await,
        lease,
        "one of two adapters, in its namespace"
    );
    assert_eq!(
        granted(&control_plane, &adapter, "default").await,
        everywhere,
        "one of two adapters, elsewhere"
    );

    // If the values set the ID of the cluster and the certificate, the adapter needs the API server only for its Lease.
    let given = json!({ "clusterId": "6e0ecd3b-34ac-4a0f-9f1c-6f0a1c5c2b7d",
        "adapter": { "tls": { "mode": "secret", "secretName": "a" } } });
    merge(&mut two, &given);
    release.upgrade(&control_plane, &two).await.unwrap();
    let rights = granted(&control_plane, &adapter, "kube-system").await;
    assert_eq!(rights, lease_rights("cloud-adapter").into());
}

/// On a pod network only the controllers can reach the adapter, and each pod can only reach what it needs.
#[tokio::test]
async fn network_policies_fit_the_pod_network() {
    let control_plane = control_plane().await;
    let mut values = Values::new().unwrap().render();
    let policies: Api<NetworkPolicy> = Api::namespaced(control_plane.client(), "kube-system");
    let release = Release::install(&control_plane, &values).await.unwrap();
    assert_eq!(policies.list(&ListParams::default()).await.unwrap().items.len(), 0, "on the host network");

    merge(&mut values, &json!({ "hostNetwork": false }));
    release.upgrade(&control_plane, &values).await.unwrap();
    let policies = policies.list(&ListParams::default()).await.unwrap().items;
    assert_eq!(policies.len(), 4);
    let adapter = policies.iter().find(|it| it.metadata.name.as_deref() == Some("cloud-adapter")).unwrap();
    let ingress = adapter.spec.as_ref().unwrap().ingress.as_ref().unwrap();
    let from = ingress.first().unwrap().from.as_ref().unwrap().iter();
    let component = |peer: &NetworkPolicyPeer| {
        let labels = peer.pod_selector.as_ref()?.match_labels.as_ref()?;
        labels.get("app.kubernetes.io/component").cloned()
    };
    let who: BTreeSet<_> = from.map(|peer| component(peer).unwrap()).collect();
    let wanted = ["cloud-adapter", "node-controller", "route-controller", "service-controller"];
    assert_eq!(who, wanted.map(str::to_owned).into(), "callers that can reach the port of the contract");

    let n_rules = |policy: &NetworkPolicy| policy.spec.as_ref().unwrap().ingress.iter().flatten().count();
    assert_eq!(
        policies.iter().map(n_rules).sum::<usize>(),
        1,
        "no caller can read the status pages: {policies:?}"
    );

    let egress = |policy: &NetworkPolicy| json!(policy.spec.as_ref().unwrap().egress);
    let selected = json!({ "podSelector": adapter.spec.as_ref().unwrap().pod_selector });
    for policy in &policies {
        let rules = egress(policy);
        let to_adapter = |rule: &Value| rule["to"].as_array().is_some_and(|to| to.contains(&selected));
        assert!(
            rules.as_array().unwrap().iter().any(to_adapter),
            "no rule allows egress to the adapter: {rules}"
        );
    }
    let rules = egress(adapter);
    let n_rules = rules.as_array().unwrap().len();
    assert_eq!(n_rules, 4, "DNS, its other replica, the cloud, the API server: {rules}");
}

/// The record of routes is also removed if the route-controller is disabled; the record of another release stays.
#[tokio::test]
async fn uninstall_removes_the_record_of_routes() {
    let control_plane = control_plane().await;
    let mut values = Values::new().unwrap().render();
    let records: Api<ConfigMap> = Api::namespaced(control_plane.client(), "kube-system");
    let make_record = async || {
        let record = from_value(json!({ "metadata": { "name": "route-controller-routes" } })).unwrap();
        records.create(&PostParams::default(), &record).await.unwrap();
    };
    let release = Release::install(&control_plane, &values).await.unwrap();
    make_record().await;
    merge(&mut values, &json!({ "routeController": { "enabled": false } }));
    release.upgrade(&control_plane, &values).await.unwrap();
    release.uninstall(&control_plane).await.unwrap();
    assert!(records.get_opt("route-controller-routes").await.unwrap().is_none());

    make_record().await;
    let deployments: Api<Deployment> = Api::namespaced(control_plane.client(), "kube-system");
    let labels = json!({ "app.kubernetes.io/instance": "other" });
    let pod = json!({ "metadata": { "labels": labels }, "spec": { "containers": [{ "name": "x", "image": "x" }] } });
    let other = json!({
        "metadata": { "name": "route-controller", "labels": labels },
        "spec": { "selector": { "matchLabels": labels }, "template": pod },
    });
    deployments.create(&PostParams::default(), &from_value(other).unwrap()).await.unwrap();
    let release = Release::install(&control_plane, &values).await.unwrap();
    release.uninstall(&control_plane).await.unwrap();
    assert!(records.get_opt("route-controller-routes").await.unwrap().is_some());
}

/// The Leases of disabled controllers and of removed shards are removed, too; those of other releases stay.
#[tokio::test]
async fn uninstall_removes_all_leases() {
    let control_plane = control_plane().await;
    let base = Values::new().unwrap().render();
    let with = |change: Value| {
        let mut values = base.clone();
        merge(&mut values, &change);
        values
    };
    let two = json!({ "adapter": { "replicas": "active-standby" }, "nodeController": { "shards": 3 },
        "serviceController": { "shards": 4 }, "routeController": { "shards": 2 } });
    let release = Release::install(&control_plane, &with(two)).await.unwrap();
    let leases: Api<Lease> = Api::namespaced(control_plane.client(), "kube-system");
    let names = async || -> BTreeSet<String> {
        let listed = leases.list(&ListParams::default()).await.unwrap().items;
        listed.into_iter().filter_map(|it| it.metadata.name).filter(|it| it.starts_with("cloud-")).collect()
    };
    assert_eq!(names().await.len(), 1 + 3 + 4 + 2);

    let fewer = json!({ "adapter": { "replicas": "single" }, "nodeController": { "enabled": false },
        "serviceController": { "shards": 2 }, "routeController": { "enabled": false } });
    release.upgrade(&control_plane, &with(fewer.clone())).await.unwrap();
    // Leases as a process creates them that still runs, and Leases of other releases.
    let with_scope = json!({ "cloudadapter.dev/scope": "x" });
    let other =
        json!({ "app.kubernetes.io/name": "cloud-controllers", "app.kubernetes.io/instance": "other" });
    for (name, labels, annotations) in [
        ("cloud-node-controller", json!({}), &with_scope),
        ("cloud-route-controller-1", other, &with_scope),
        ("cloud-route-controller-x", json!({}), &with_scope),
        ("cloud-adapter", json!({}), &json!({})),
    ] {
        leases.delete(name, &DeleteParams::default()).await.ok();
        let metadata = json!({ "name": name, "labels": labels, "annotations": annotations });
        let lease = from_value(json!({ "metadata": metadata })).unwrap();
        leases.create(&PostParams::default(), &lease).await.unwrap();
    }
    release.upgrade(&control_plane, &with(fewer)).await.unwrap();
    release.uninstall(&control_plane).await.unwrap();
    let others = ["cloud-adapter", "cloud-route-controller-1", "cloud-route-controller-x"];
    assert_eq!(names().await, BTreeSet::from(others.map(str::to_owned)));
}

/// The right to read the ID of the cluster.
const CLUSTER: [&str; 1] = ["get namespaces named kube-system"];

const CA: [&str; 2] = ["get secrets named cloud-adapter-ca", "patch secrets named cloud-adapter-ca"];

const EVENTS: [&str; 2] = ["create events", "patch events"];

/// Rights in the namespace of the release.
const AT_HOME: [&str; 3] = [
    "get endpointslices.discovery.k8s.io",
    "list endpointslices.discovery.k8s.io",
    "watch endpointslices.discovery.k8s.io",
];

pub(super) async fn control_plane() -> ControlPlane {
    ControlPlane::shared(&e2e::tools().unwrap()).await.unwrap()
}

/// The rights of a user beyond those of a ServiceAccount without any binding.
async fn granted(control_plane: &ControlPlane, user: &str, namespace: &str) -> BTreeSet<String> {
    let accounts: Api<ServiceAccount> = Api::namespaced(control_plane.client(), "kube-system");
    let unprivileged = from_value(json!({ "metadata": { "name": "unprivileged" } })).unwrap();
    if accounts.get_opt("unprivileged").await.unwrap().is_none() {
        accounts.create(&PostParams::default(), &unprivileged).await.unwrap();
    }
    let all = rights(control_plane, user, namespace).await.unwrap();
    let basic =
        rights(control_plane, "system:serviceaccount:kube-system:unprivileged", namespace).await.unwrap();
    assert!(!basic.is_empty() && basic.is_subset(&all), "{basic:?} is not a subset of {all:?}");
    all.difference(&basic).cloned().collect()
}

/// Rights to hold one Lease, and to create it again if it is deleted. RBAC cannot restrict a creation to a name.
fn lease_rights(name: &str) -> [String; 4] {
    let named = |verb| format!("{verb} leases.coordination.k8s.io named {name}");
    [named("get"), named("watch"), named("patch"), "create leases.coordination.k8s.io".to_owned()]
}

pub(super) async fn left_over(control_plane: &ControlPlane) -> String {
    let kinds = "deployments,services,configmaps,secrets,serviceaccounts,roles,rolebindings,clusterroles,clusterrolebindings";
    let of_chart = "app.kubernetes.io/name=cloud-controllers";
    let args = ["get", kinds, "--all-namespaces", "--selector", of_chart, "--output", "name"];
    let objects = control_plane.kubectl(&args).await.unwrap();
    let args = ["get", "secrets", "--all-namespaces", "--selector", "owner=helm", "--output", "name"];
    objects + &control_plane.kubectl(&args).await.unwrap()
}
