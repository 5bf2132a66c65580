//! Tests of the names, labels and defaults in the output of `helm template`. No API server runs here.

#![expect(clippy::indexing_slicing, clippy::panic, reason = "clippy recognises tests, but not their helpers")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use e2e::merge;
use serde_json::{Value, json};

const COMPONENTS: [(&str, &str); 4] = [
    ("adapter", "cloud-adapter"),
    ("nodeController", "node-controller"),
    ("serviceController", "service-controller"),
    ("routeController", "route-controller"),
];

/// The names of the second release have its prefix, except `cloud-controllers-orphans` and `route-controller-routes`, because the programs
/// expect these two names.
#[test]
fn two_releases_fit_into_one_namespace() {
    let mut values = all();
    let first = rendered("first", &values);
    merge(&mut values, &json!({ "fullnameOverride": "second" }));
    let second = rendered("other", &values);
    let both: Vec<_> = ids(&first).intersection(&ids(&second)).cloned().collect();
    assert_eq!(both, Vec::<String>::new());

    // An object refers only to objects of its own release.
    let text = serde_json::to_string(&second).unwrap();
    for name in names(&first) {
        let quoted =
            [format!("\"{name}\""), format!("/{name}:grpc"), format!("={name}\""), format!("/{name}\"")];
        let found: Vec<_> = quoted.iter().filter(|it| text.contains(*it)).collect();
        // Only the names of the programs may occur in both releases, because containers, components and certificates are named after the
        // program.
        let program = name == "cloud-controllers" || COMPONENTS.iter().any(|(_, program)| name == *program);
        assert!(program || found.is_empty(), "{name}: {found:?}");
    }
    for wanted in [
        "kubernetes:///kube-system/second-cloud-adapter:grpc",
        "--lease-name=second-cloud-adapter",
        "--leader-elect-resource-name=second-cloud-node-controller",
        "--token-audience=second-cloud-adapter.kube-system.svc",
        "--tls-ca-secret=kube-system/second-cloud-adapter-ca",
        "--identity=node-controller=kube-system/second-cloud-node-controller",
        r#"leader_election_master_status{name=\"second-cloud-node-controller\"}"#,
        "the Deployment second-node-controller",
    ] {
        assert!(text.contains(wanted), "{wanted}");
    }
}

#[test]
fn cluster_wide_names_contain_release_and_namespace() {
    for object in rendered("a-release", &all()) {
        if object["metadata"]["namespace"].is_null() {
            let name = object["metadata"]["name"].as_str().unwrap();
            assert!(name.contains("a-release") && name.contains("kube-system"), "{name}");
        }
    }
}

#[test]
fn pod_metadata_and_accounts_are_set_in_each_component() {
    let mut values = all();
    merge(&mut values, &json!({ "nameOverride": "mine", "commonLabels": { "team": "platform" } }));
    for (key, component) in COMPONENTS {
        let account = json!({ "name": format!("own-{component}"), "annotations": { "an-account": "x" } });
        let own = json!({ "podAnnotations": { "a-pod": "y" }, "podLabels": { "a-label": "z" },
            "serviceAccount": account });
        merge(&mut values, &json!({ key: own }));
    }
    let objects = rendered("a", &values);
    for object in &objects {
        assert_eq!(object["metadata"]["labels"]["team"], "platform", "{object}");
    }
    for (key, component) in COMPONENTS {
        let of = |kind, name: &str| one(&objects, kind, name);
        let pod = &of("Deployment", component)["spec"]["template"];
        assert_eq!(pod["metadata"]["annotations"]["a-pod"], "y");
        let labels = &pod["metadata"]["labels"];
        assert_eq!(
            [&labels["a-label"], &labels["team"], &labels["app.kubernetes.io/name"]],
            ["z", "platform", "mine"]
        );
        let selector = &of("Deployment", component)["spec"]["selector"]["matchLabels"];
        assert_eq!(selector.as_object().unwrap().len(), 3, "selectors cannot change: {selector}");
        let account = format!("own-{component}");
        assert_eq!(pod["spec"]["serviceAccountName"], account.as_str());
        assert_eq!(of("ServiceAccount", &account)["metadata"]["annotations"]["an-account"], "x");
        let bound = objects.iter().filter(|it| it["subjects"][0]["name"] == account.as_str()).count();
        assert_eq!(bound, 2, "{component}");

        let mut own = values.clone();
        merge(&mut own, &json!({ key: { "serviceAccount": { "create": false } } }));
        let accounts = rendered("a", &own).into_iter().filter(|it| it["kind"] == "ServiceAccount");
        assert!(accounts.into_iter().all(|it| it["metadata"]["name"] != account.as_str()), "{component}");
    }
    let identity = "--identity=service-controller=kube-system/own-service-controller";
    assert!(one(&objects, "Deployment", "cloud-adapter").to_string().contains(identity));
}

/// Nothing is installed before a cloud is chosen, and before the choice of the simulated cloud is confirmed.
#[test]
fn cloud_must_be_chosen() {
    let external = json!({ "kind": "external", "endpoint": "https://192.0.2.10:8443",
        "tls": { "mode": "secret", "secretName": "a" } });
    let cases = [
        (json!({}), Some("adapter.kind: has no default; set it to your cloud: openstack, external (")),
        (
            json!({ "kind": "gcp" }),
            Some("adapter.kind: unknown adapter 'gcp': use one of: openstack, external ("),
        ),
        (
            json!({ "kind": "sim" }),
            Some("adapter.sim.notForProduction: must be true when adapter.kind is sim"),
        ),
        (json!({ "kind": "sim", "sim": { "notForProduction": true } }), None),
        (json!({ "kind": "custom", "image": "a:1" }), None),
        (external, None),
        (json!({ "kind": "openstack" }), None),
    ];
    for (adapter, refused) in cases {
        match (helm("a", &json!({ "adapter": adapter })), refused) {
            (Ok(text), None) => {
                // Without a pod network, the CNI plugin routes by itself.
                assert!(!text.contains("route-controller-routes"), "{adapter}: {text}");
                assert!(!text.contains("--cluster-id="), "{adapter}: the programs read it");
            }
            (Err(said), Some(why)) => assert!(said.contains(why), "{adapter}: {said}"),
            (got, _) => panic!("{adapter}: {got:?}"),
        }
    }
}

/// The route-controller is installed if the pod network is known, unless the user decides.
#[test]
fn route_controller_needs_a_pod_network() {
    let cases = [
        (json!({}), Ok(false)),
        (json!({ "clusterCidr": "10.244.0.0/16" }), Ok(true)),
        (json!({ "clusterCidr": "10.244.0.0/16", "enabled": false }), Ok(false)),
        (json!({ "enabled": true }), Err("routeController.clusterCidr: is required")),
        (
            json!({ "enabled": "yes" }),
            Err("routeController.enabled: invalid value \"yes\"; set it to auto, true or false"),
        ),
        // As `--set-string` and some tools write it.
        (json!({ "clusterCidr": "10.244.0.0/16", "enabled": "true" }), Ok(true)),
        (json!({ "clusterCidr": "10.244.0.0/16", "enabled": "false" }), Ok(false)),
    ];
    for (route, wanted) in cases {
        let values = json!({ "adapter": sim(), "routeController": route });
        match (helm("a", &values), wanted) {
            (Ok(text), Ok(installed)) => {
                assert_eq!(text.contains("name: route-controller\n"), installed, "{route}");
            }
            (Err(said), Err(why)) => assert!(said.contains(why), "{route}: {said}"),
            (got, _) => panic!("{route}: {got:?}"),
        }
    }
}

/// The error for an invalid value names its key and says what to write. The error does not show credentials.
#[test]
fn messages_say_what_to_write() {
    let cases = [
        (
            json!({ "clusterId": "kubernetes" }),
            "clusterId: invalid value \"kubernetes\"; set it to the UID of",
        ),
        (json!({ "fullnameOverride": "1a" }), "fullnameOverride: invalid value \"1a\"; set it to at most 35"),
        (
            json!({ "selfTest": { "timeout": "" } }),
            "selfTest.timeout: invalid value \"\"; set it to a duration",
        ),
        (
            json!({ "adapter": { "grants": ["*:former=x", "adopt"] } }),
            "adapter.grants.1: invalid value \"adopt\"; set it to NAMESPACE:KIND=VALUE",
        ),
        (
            json!({ "adapter": { "openstack": { "cloudsYaml": "password: secret-word" } } }),
            "adapter.openstack.cloudsYaml: invalid value; set it to the content of a clouds.yaml",
        ),
        (
            json!({ "adapter": { "replicas": "two" } }),
            "adapter.replicas: invalid value \"two\"; set it to single or",
        ),
        (json!({ "hostNetwork": "no" }), "hostNetwork: invalid value \"no\"; set it to true or false"),
        (
            json!({ "commonLabels": { "app.kubernetes.io/name": "x" } }),
            "commonLabels: the chart sets the label",
        ),
        (
            json!({ "nodeController": { "serviceAccount": { "create": false } } }),
            "nodeController.serviceAccount.name: is required when",
        ),
        (
            json!({ "nodeController": { "serviceAccount": { "name": "cloud-adapter" } } }),
            "nodeController.serviceAccount.name: cloud-adapter is the ServiceAccount of adapter, too",
        ),
    ];
    for (change, wanted) in cases {
        let mut values = all();
        merge(&mut values, &change);
        let said = helm("a", &values).expect_err(wanted);
        assert!(said.contains(wanted) && !said.contains("secret-word"), "{wanted}: {said}");
    }
}

pub(super) fn sim() -> Value {
    json!({ "kind": "sim", "sim": { "notForProduction": true } })
}

/// Values with which the chart has all its objects.
pub(super) fn all() -> Value {
    let two = json!({ "replicas": 2, "shards": 2 });
    let mut values = json!({
        "hostNetwork": false,
        "admissionPolicy": { "enabled": true },
        "monitoring": { "serviceMonitor": true, "alerts": true, "dashboard": true },
        "networkPolicy": { "metricsFrom": [{ "namespaceSelector": {} }] },
        "adapter": sim(),
        "nodeController": two, "serviceController": two, "routeController": two,
    });
    let more = json!({ "adapter": { "replicas": "active-standby", "authentication": "token-review" },
        "routeController": { "clusterCidr": "10.244.0.0/16" } });
    merge(&mut values, &more);
    values
}

pub(super) fn rendered(release: &str, values: &Value) -> Vec<Value> {
    documents(&helm(release, values).unwrap())
}

pub(super) fn documents(text: &str) -> Vec<Value> {
    let documents = text.split("\n---\n").filter(|it| it.lines().any(|line| line.starts_with("kind:")));
    documents.map(|it| serde_saphyr::from_str(it.trim_start_matches("---")).unwrap()).collect()
}

/// Output of `helm template` without a cluster, or its error for refused values.
pub(super) fn helm(release: &str, values: &Value) -> Result<String, String> {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("values.json");
    std::fs::write(&file, values.to_string()).unwrap();
    let mut helm = Command::new(e2e::tools().unwrap().helm.path);
    helm.args(["template", release, "--namespace", "kube-system", "--values"]).arg(file).arg(chart());
    let output = helm.env("KUBECONFIG", dir.path().join("none")).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
}

pub(super) fn chart() -> PathBuf {
    root().join("helm/cloud-controllers")
}

pub(super) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_path_buf()
}

pub(super) fn one<'a>(objects: &'a [Value], kind: &str, name: &str) -> &'a Value {
    let mut found = objects.iter().filter(|it| it["kind"] == kind && it["metadata"]["name"] == name);
    found.next().unwrap_or_else(|| panic!("no {kind} {name}"))
}

fn names(objects: &[Value]) -> BTreeSet<&str> {
    objects.iter().map(|it| it["metadata"]["name"].as_str().unwrap()).collect()
}

fn ids(objects: &[Value]) -> BTreeSet<String> {
    objects.iter().map(|it| format!("{} {}", it["kind"], it["metadata"]["name"])).collect()
}
