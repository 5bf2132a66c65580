//! What the chart makes of its values, as `helm template` renders them: no API server runs here.

#![expect(clippy::unwrap_used, reason = "clippy knows tests, and not their helpers")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use e2e::merge;
use serde_json::{Value, json};

const CONTROLLERS: [(&str, &str); 3] = [
    ("nodeController", "node-controller"),
    ("serviceController", "service-controller"),
    ("routeController", "route-controller"),
];

/// Each controller alone, beside a Go controller manager that keeps the rest: its own objects, those of the adapter, and nothing of others.
#[test]
fn each_controller_is_installed_alone() {
    for (key, name) in CONTROLLERS {
        let mut values = base();
        for (other, _) in CONTROLLERS {
            merge(&mut values, &json!({ other: { "enabled": other == key } }));
        }
        merge(&mut values, &json!({ "hostNetwork": false, "monitoring": { "alerts": true } }));
        let objects = rendered(&values);
        assert_eq!(names(&objects, "Deployment"), ["cloud-adapter", name].map(str::to_owned).into());
        assert_eq!(names(&objects, "NetworkPolicy"), ["cloud-adapter", name].map(str::to_owned).into());
        let account = format!("cloud-{name}");
        assert_eq!(names(&objects, "Lease"), BTreeSet::from([account.clone()]));
        assert_eq!(names(&objects, "ClusterRole"), BTreeSet::from([format!("cloud-controllers:{name}")]));
        let tests = if key == "serviceController" { &["cloud-self-test".to_owned()][..] } else { &[] };
        let mut accounts = BTreeSet::from(["cloud-adapter".to_owned(), account]);
        accounts.extend(tests.iter().cloned());
        assert_eq!(names(&objects, "ServiceAccount"), accounts);
        assert_eq!(groups(&objects), ["cloud-adapter", name].map(str::to_owned).into());
    }
}

/// An adapter that runs elsewhere: any image, any endpoint, and none of the chart's own.
#[test]
fn an_adapter_that_runs_elsewhere_is_only_called() {
    let mut values = base();
    let endpoint = "https://192.0.2.10:8443";
    merge(
        &mut values,
        &json!({ "hostNetwork": false, "monitoring": { "alerts": true },
        "adapter": { "kind": "external", "endpoint": endpoint } }),
    );
    let objects = rendered(&values);
    let controllers: BTreeSet<_> = CONTROLLERS.iter().map(|(_, name)| (*name).to_owned()).collect();
    assert_eq!(names(&objects, "Deployment"), controllers);
    assert_eq!(names(&objects, "Service"), BTreeSet::new());
    assert_eq!(groups(&objects), controllers);
    for deployment in of_kind(&objects, "Deployment") {
        let text = deployment.to_string();
        assert!(text.contains(&format!("--adapter-endpoint={endpoint}")), "{text}");
    }
    // With the address given nobody needs to look for it.
    assert!(!of_kind(&objects, "Role").any(|role| role.to_string().contains("endpointslices")));
}

/// Every value that goes into a pod as it is gets there, in each of the four.
#[test]
fn what_is_given_for_pods_is_in_them() {
    let mut values = base();
    let pod = json!({
        "nodeSelector": { "a-node": "x" },
        "tolerations": [{ "key": "a-taint", "operator": "Exists" }],
        "affinity": { "nodeAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": [] } },
        "priorityClassName": "a-class",
        "resources": { "limits": { "memory": "77Mi" } },
        "extraArgs": ["--an-argument"],
        "extraEnv": [{ "name": "A_VARIABLE", "value": "1" }],
        "extraVolumes": [{ "name": "a-volume", "emptyDir": {} }],
        "extraVolumeMounts": [{ "name": "a-volume", "mountPath": "/a-mount" }],
    });
    for key in ["adapter", "nodeController", "serviceController", "routeController"] {
        merge(&mut values, &json!({ key: pod }));
    }
    let objects = rendered(&values);
    let deployments: Vec<_> = of_kind(&objects, "Deployment").collect();
    assert_eq!(deployments.len(), 4);
    for deployment in deployments {
        let spec = &deployment["spec"]["template"]["spec"];
        let container = &spec["containers"][0];
        let there = |list: &Value, wanted: &Value| list.as_array().unwrap().contains(wanted);
        let name = &deployment["metadata"]["name"];
        assert_eq!(spec["nodeSelector"], pod["nodeSelector"], "{name}");
        assert!(there(&spec["tolerations"], &pod["tolerations"][0]), "{name}");
        assert_eq!(spec["affinity"], pod["affinity"], "{name}");
        assert_eq!(spec["priorityClassName"], "a-class", "{name}");
        assert_eq!(container["resources"]["limits"]["memory"], "77Mi", "{name}");
        assert!(there(&container["args"], &json!("--an-argument")), "{name}");
        assert!(there(&container["env"], &pod["extraEnv"][0]), "{name}");
        assert!(there(&spec["volumes"], &pod["extraVolumes"][0]), "{name}");
        assert!(there(&container["volumeMounts"], &pod["extraVolumeMounts"][0]), "{name}");
    }
}

/// What lets the pods start on nodes that wait for these very pods, and where several of them go.
#[test]
fn pods_start_where_nothing_is_initialised_and_are_spread() {
    let mut values = base();
    let two = json!({ "replicas": 2 });
    merge(
        &mut values,
        &json!({ "nodeController": two, "serviceController": two, "routeController": two,
        "adapter": { "replicas": "active-standby" } }),
    );
    let objects = rendered(&values);
    let deployments: Vec<_> = of_kind(&objects, "Deployment").collect();
    assert_eq!(deployments.len(), 4);
    for deployment in deployments {
        let spec = &deployment["spec"]["template"]["spec"];
        assert_eq!(spec["hostNetwork"], true);
        let tolerated: BTreeSet<_> =
            spec["tolerations"].as_array().unwrap().iter().filter_map(|it| it["key"].as_str()).collect();
        for key in ["node.cloudprovider.kubernetes.io/uninitialized", "node.kubernetes.io/not-ready"] {
            assert!(tolerated.contains(key), "{key}");
        }
        let spread = spec["topologySpreadConstraints"].as_array().unwrap();
        let over: Vec<_> = spread.iter().map(|it| it["topologyKey"].as_str().unwrap()).collect();
        assert_eq!(over, ["kubernetes.io/hostname", "topology.kubernetes.io/zone"]);
        let selected = &spread[0]["labelSelector"]["matchLabels"];
        let labels = &deployment["spec"]["template"]["metadata"]["labels"];
        assert_eq!(selected, labels);
        assert!(spec["containers"][0]["resources"]["limits"]["cpu"].is_null(), "a Lease would be lost");
        let container = &spec["containers"][0];
        assert_eq!(container["livenessProbe"]["httpGet"]["path"], "/healthz");
        assert_eq!(container["readinessProbe"]["httpGet"]["path"], "/readyz");
    }
    assert_eq!(names(&objects, "PodDisruptionBudget").len(), 4);
    assert_eq!(names(&rendered(&base()), "PodDisruptionBudget").len(), 0, "a single one may always be moved");
}

/// The objects for Prometheus and Grafana come when they are asked for, and Prometheus finds every pod by them.
#[test]
fn what_watches_from_outside_is_an_option() {
    assert_eq!(groups(&rendered(&base())), BTreeSet::new());
    let mut values = base();
    let monitoring = json!({ "serviceMonitor": true, "interval": "30s", "alerts": true, "dashboard": true,
        "labels": { "release": "prometheus" } });
    merge(&mut values, &json!({ "monitoring": monitoring }));
    let objects = rendered(&values);
    assert_eq!(groups(&objects).len(), 4);
    let one = |kind| of_kind(&objects, kind).next().unwrap();
    for kind in ["ServiceMonitor", "PrometheusRule"] {
        assert_eq!(one(kind)["metadata"]["labels"]["release"], "prometheus", "{kind}");
    }
    let service = of_kind(&objects, "Service").find(|it| it["spec"]["clusterIP"] == "None").unwrap();
    let within = |some: &Value, all: &Value| {
        some.as_object().unwrap().iter().all(|(key, value)| all.get(key) == Some(value))
    };
    let monitor = &one("ServiceMonitor")["spec"];
    assert!(within(&monitor["selector"]["matchLabels"], &service["metadata"]["labels"]));
    assert_eq!(monitor["endpoints"][0]["port"], service["spec"]["ports"][0]["name"]);
    assert_eq!(monitor["endpoints"][0]["interval"], "30s");
    for deployment in of_kind(&objects, "Deployment") {
        let template = &deployment["spec"]["template"];
        assert!(within(&service["spec"]["selector"], &template["metadata"]["labels"]));
        let mut ports = template["spec"]["containers"][0]["ports"].as_array().unwrap().iter();
        assert!(ports.any(|port| port["name"] == service["spec"]["ports"][0]["targetPort"]));
    }
    let pod = one("Pod");
    assert!(!within(&service["spec"]["selector"], &pod["metadata"]["labels"]), "the test has no metrics");
    let boards =
        of_kind(&objects, "ConfigMap").filter(|it| it["metadata"]["labels"]["grafana_dashboard"] == "1");
    for board in boards {
        let board: Value =
            serde_json::from_str(board["data"]["cloud-controllers.json"].as_str().unwrap()).unwrap();
        assert!(board["panels"].as_array().unwrap().len() > 8);
        return;
    }
    panic!("there is no dashboard");
}

/// What is wrong is refused with its key.
#[test]
fn wrong_values_of_pods_are_refused_by_the_name_of_their_key() {
    let cases = [
        (json!({ "monitoring": { "interval": "often" } }), "/monitoring/interval"),
        (json!({ "monitoring": { "alert": true } }), "alert"),
        (json!({ "nodeController": { "resources": { "limit": {} } } }), "limit"),
        (
            json!({ "adapter": { "resources": { "limits": { "memory": "lots" } } } }),
            "/adapter/resources/limits/memory",
        ),
        (
            json!({ "routeController": { "tolerations": [{ "effect": "Never" }] } }),
            "/routeController/tolerations/0/effect",
        ),
        (json!({ "serviceController": { "affinity": { "node": {} } } }), "node"),
        (json!({ "adapter": { "extraVolumes": [{ "emptyDir": {} }] } }), "name"),
        (json!({ "adapter": { "extraVolumeMounts": [{ "name": "a" }] } }), "mountPath"),
        (json!({ "adapter": { "cache": { "instances": { "maxage": "1m" } } } }), "maxage"),
    ];
    for (change, named) in cases {
        let mut values = base();
        merge(&mut values, &change);
        let refused = helm(&values).expect_err(named);
        assert!(refused.contains(named), "{named}: {refused}");
    }
}

/// What must be said of every cluster when there is none to ask.
fn base() -> Value {
    json!({
        "clusterId": "6e0ecd3b-34ac-4a0f-9f1c-6f0a1c5c2b7d",
        "adapter": { "tls": { "mode": "secret", "secretName": "cloud-adapter-tls" } },
        "routeController": { "clusterCidr": "10.244.0.0/16" },
    })
}

fn rendered(values: &Value) -> Vec<Value> {
    let text = helm(values).unwrap();
    let documents = text.split("\n---\n").filter(|it| it.lines().any(|line| line.starts_with("kind:")));
    documents.map(|it| serde_saphyr::from_str(it.trim_start_matches("---")).unwrap()).collect()
}

/// What `helm template` writes, or what it says of values that it refuses.
fn helm(values: &Value) -> Result<String, String> {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("values.json");
    std::fs::write(&file, values.to_string()).unwrap();
    let mut helm = Command::new(e2e::tools().unwrap().helm.path);
    helm.args(["template", "cloud-controllers", "--namespace", "kube-system", "--values"]).arg(file);
    let output = helm.arg(chart()).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
}

fn chart() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("helm/cloud-controllers")
}

fn of_kind<'a>(objects: &'a [Value], kind: &'a str) -> impl Iterator<Item = &'a Value> {
    objects.iter().filter(move |it| it["kind"] == kind)
}

fn names(objects: &[Value], kind: &str) -> BTreeSet<String> {
    of_kind(objects, kind).map(|it| it["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

/// The groups of alerts.
fn groups(objects: &[Value]) -> BTreeSet<String> {
    let rules = of_kind(objects, "PrometheusRule").flat_map(|it| it["spec"]["groups"].as_array().unwrap());
    let counted: BTreeMap<_, _> = rules
        .map(|it| (it["name"].as_str().unwrap().to_owned(), it["rules"].as_array().unwrap().len()))
        .collect();
    assert!(counted.values().all(|rules| *rules > 0), "{counted:?}");
    counted.into_keys().collect()
}
