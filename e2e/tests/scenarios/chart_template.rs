//! Tests of the objects that the chart renders with `helm template`. No API server runs here.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "clippy recognises tests, but not their helpers"
)]

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

/// Each controller can be installed alone, beside a former cloud controller manager with the other controllers. The chart then renders only
/// the objects of this controller and of the adapter.
// Behaviour: P14
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
        let roles = [name, "check"].map(|it| format!("cloud-controllers:kube-system:{it}"));
        assert_eq!(names(&objects, "ClusterRole"), roles.into());
        let tests = if key == "serviceController" {
            &["cloud-check", "cloud-self-test"][..]
        } else {
            &["cloud-check"]
        };
        let mut accounts = BTreeSet::from(["cloud-adapter".to_owned(), account]);
        accounts.extend(tests.iter().map(|&it| it.to_owned()));
        assert_eq!(names(&objects, "ServiceAccount"), accounts);
        assert_eq!(groups(&objects), ["cloud-adapter", name].map(str::to_owned).into());
    }
}

/// With an adapter that runs elsewhere, the controllers call its endpoint, and the chart renders no adapter.
#[test]
fn an_external_adapter_is_only_called() {
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
    // With a fixed address no controller has to discover it.
    assert!(!of_kind(&objects, "Role").any(|role| role.to_string().contains("endpointslices")));
}

/// A third-party adapter in the chart's pod gets its image and the flags of the contract's server, but no flags of this project's adapters.
#[test]
fn a_custom_adapter_image_is_started_unchanged() {
    let mut values = base();
    let own =
        json!({ "kind": "custom", "image": "registry.example/adapter-acme:1.2", "extraArgs": ["--zone=a"] });
    merge(&mut values, &json!({ "adapter": own }));
    let objects = rendered(&values);
    let adapter =
        of_kind(&objects, "Deployment").find(|it| it["metadata"]["name"] == "cloud-adapter").unwrap();
    let container = &adapter["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["image"], "registry.example/adapter-acme:1.2");
    assert_eq!(container["command"], Value::Null);
    let args: Vec<_> = container["args"].as_array().unwrap().iter().map(|it| it.as_str().unwrap()).collect();
    let has = |begin: &str| args.iter().any(|arg| arg.starts_with(begin));
    assert!(
        has("--cluster-id=") && has("--grpc-address=") && has("--tls-cert") && args.contains(&"--zone=a"),
        "{args:?}"
    );
    assert!(
        !has("--config") && !has("--endpoint") && !has("--token-file") && !has("--clouds-file"),
        "{args:?}"
    );
}

#[test]
fn pod_values_are_in_each_pod() {
    let mut values = base();
    let pod = json!({
        "nodeSelector": { "a-node": "x" },
        "tolerations": [{ "key": "a-taint", "operator": "Exists" }],
        "affinity": { "nodeAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": [] } },
        "topologySpreadConstraints": [{ "maxSkew": 2, "topologyKey": "a-key", "whenUnsatisfiable": "DoNotSchedule" }],
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
        assert_eq!(spec["nodeSelector"]["a-node"], "x", "{name}");
        assert!(there(&spec["tolerations"], &pod["tolerations"][0]), "{name}");
        assert_eq!(spec["affinity"], pod["affinity"], "{name}");
        assert_eq!(spec["topologySpreadConstraints"], pod["topologySpreadConstraints"], "{name}");
        assert_eq!(spec["priorityClassName"], "a-class", "{name}");
        assert_eq!(container["resources"]["limits"]["memory"], "77Mi", "{name}");
        assert!(there(&container["args"], &json!("--an-argument")), "{name}");
        assert!(there(&container["env"], &pod["extraEnv"][0]), "{name}");
        assert!(there(&spec["volumes"], &pod["extraVolumes"][0]), "{name}");
        assert!(there(&container["volumeMounts"], &pod["extraVolumeMounts"][0]), "{name}");
        let policy = &container["terminationMessagePolicy"];
        assert_eq!(policy, "FallbackToLogsOnError", "{name}: cloudctl check shows why a program ended");
    }
}

#[test]
fn pods_tolerate_uninitialised_nodes_and_are_spread() {
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
        let selected = spread[0]["labelSelector"]["matchLabels"].as_object().unwrap();
        let labels = &deployment["spec"]["template"]["metadata"]["labels"];
        assert_eq!(selected.len(), 3, "name, instance and component: {selected:?}");
        for (name, value) in selected {
            assert_eq!(&labels[name], value, "{name}");
        }
        assert!(
            spec["containers"][0]["resources"]["limits"]["cpu"].is_null(),
            "throttling the CPU \
             would lose the Lease"
        );
        let container = &spec["containers"][0];
        assert_eq!(container["livenessProbe"]["httpGet"]["path"], "/healthz");
        assert_eq!(container["readinessProbe"]["httpGet"]["path"], "/readyz");
    }
    assert_eq!(names(&objects, "PodDisruptionBudget").len(), 4);
    for budget in of_kind(&objects, "PodDisruptionBudget") {
        assert_eq!(budget["spec"]["maxUnavailable"], 1, "a drain must be possible: {budget}");
    }
    assert_eq!(
        names(&rendered(&base()), "PodDisruptionBudget").len(),
        0,
        "a single replica can always be evicted"
    );
}

/// With these objects, Prometheus finds every pod.
#[test]
fn monitoring_objects_are_optional() {
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
    assert!(!within(&service["spec"]["selector"], &pod["metadata"]["labels"]), "the test pod has no metrics");
    let mut boards =
        of_kind(&objects, "ConfigMap").filter(|it| it["metadata"]["labels"]["grafana_dashboard"] == "1");
    let board = boards.next().expect("a dashboard");
    let board: Value =
        serde_json::from_str(board["data"]["cloud-controllers.json"].as_str().unwrap()).unwrap();
    assert!(board["panels"].as_array().unwrap().len() > 8);
}

/// An alert fires at the first occurrence and as long as the condition lasts.
#[test]
fn alerts_fire_at_the_first_occurrence() {
    let mut values = base();
    merge(&mut values, &json!({ "monitoring": { "alerts": true } }));
    let objects = rendered(&values);
    let rules: Vec<_> = of_kind(&objects, "PrometheusRule")
        .flat_map(|it| it["spec"]["groups"].as_array().unwrap())
        .flat_map(|group| group["rules"].as_array().unwrap())
        .collect();
    let asks = |alert: &str| {
        let rule = rules.iter().find(|rule| rule["alert"] == alert).unwrap_or_else(|| panic!("no {alert}"));
        rule["expr"].as_str().unwrap()
    };
    // The counter first appears with the value 1, which is not an increase.
    assert_eq!(asks("CloudAdapterConfigRefused"), "max by (kind) (cloud_adapter_config_refused) > 0");
    for alert in ["CloudNodeMirrorCut", "CloudServiceMirrorCut", "CloudRouteMirrorCut"] {
        let expr = asks(alert);
        // The alert is only about processes that hold a Lease, because a standby observes nothing. A healthy process must not hide another
        // one.
        let (cut, holds) = expr.split_once(" == 0 and on (job, instance) ").unwrap();
        assert!(cut.starts_with("cloud_controller_mirror_connected{"), "{expr}");
        assert_eq!(holds, "running_managed_controllers == 1");
    }
    for rule in &rules {
        let expr = rule["expr"].as_str().unwrap();
        assert!(
            !(expr.contains("increase(") && expr.ends_with("> 0")),
            "the first occurrence is not an increase: {expr}"
        );
    }
}

/// A policy that allows all egress would be useless. Where the address is unknown, the policy names the port.
#[test]
fn policies_allow_only_named_egress() {
    let ports = |rule: &Value| -> Vec<u64> {
        rule["ports"].as_array().unwrap().iter().map(|it| it["port"].as_u64().unwrap()).collect()
    };
    let metadata = ["169.254.169.254/32", "fd00:ec2::254/128"];
    let cases = [
        ("https://192.0.2.10:8443", vec![8443]),
        ("https://adapter.example", vec![443]),
        ("https://[fd00::1]", vec![443]),
        ("dns:///adapter.other.svc:9000", vec![9000]),
        ("static:///192.0.2.10:8443,[fd00::1]:8444,a.example:8443", vec![8443, 8444]),
        ("", vec![8443]),
    ];
    for (endpoint, wanted) in cases {
        let kind = if endpoint.is_empty() { "sim" } else { "external" };
        let mut values = base();
        let adapter = json!({ "kind": kind, "endpoint": endpoint });
        merge(&mut values, &json!({ "hostNetwork": false, "adapter": adapter }));
        let objects = rendered(&values);
        for policy in of_kind(&objects, "NetworkPolicy") {
            let rules = policy["spec"]["egress"].as_array().unwrap();
            let (dns, rules) = rules.split_first().unwrap();
            assert_eq!(ports(dns), [53, 53]);
            let of_adapter = policy["metadata"]["name"] == "cloud-adapter";
            for rule in rules {
                // The cloud's API may use any port.
                assert!(of_adapter || !ports(rule).is_empty(), "{endpoint}: {rule}");
                let to = rule["to"].as_array().unwrap();
                assert!(!to.is_empty(), "{endpoint}: {rule}");
                for block in to.iter().filter_map(|it| it.get("ipBlock")) {
                    assert!(metadata.contains(&block["except"][0].as_str().unwrap()), "{endpoint}: {block}");
                }
            }
            assert!(of_adapter || ports(rules.last().unwrap()) == wanted, "{endpoint}: {rules:?}");
        }
    }

    let mut values = base();
    let named = json!({ "to": [{ "ipBlock": { "cidr": "192.0.2.10/32" } }], "ports": [{ "port": 8443 }] });
    let policy =
        json!({ "adapterEgress": [named], "apiServer": ["192.0.2.1/32"], "apiServerPorts": [16443] });
    let adapter = json!({ "kind": "external", "endpoint": "https://192.0.2.10:8443" });
    merge(&mut values, &json!({ "hostNetwork": false, "adapter": adapter, "networkPolicy": policy }));
    let objects = rendered(&values);
    assert_eq!(names(&objects, "NetworkPolicy").len(), 3);
    for policy in of_kind(&objects, "NetworkPolicy") {
        let rules = policy["spec"]["egress"].as_array().unwrap();
        let api = json!({ "to": [{ "ipBlock": { "cidr": "192.0.2.1/32" } }], "ports": [{ "port": 16443 }] });
        assert_eq!(rules[1..], [api, named.clone()]);
    }
}

/// On a pod network only the kubelet can reach the status pages, unless the values allow a reader.
#[test]
fn only_named_readers_can_read_metrics() {
    let from = json!([{ "namespaceSelector": { "matchLabels": { "team": "monitoring" } } }]);
    for named in [json!([]), from] {
        let mut values = base();
        merge(&mut values, &json!({ "hostNetwork": false, "networkPolicy": { "metricsFrom": named } }));
        let objects = rendered(&values);
        assert_eq!(names(&objects, "NetworkPolicy").len(), 4);
        for policy in of_kind(&objects, "NetworkPolicy") {
            assert_eq!(policy["spec"]["policyTypes"], json!(["Ingress", "Egress"]));
            let is_adapter = policy["metadata"]["name"] == "cloud-adapter";
            let rules = policy["spec"]["ingress"].as_array().unwrap();
            let metrics = &rules[usize::from(is_adapter)..];
            let wanted: Vec<&Value> = Some(&named).filter(|from| **from != json!([])).into_iter().collect();
            assert_eq!(metrics.iter().map(|rule| &rule["from"]).collect::<Vec<_>>(), wanted, "{policy}");
        }
    }
}

/// Two processes cannot use the same port where they share an address. A process that is not deployed uses no port.
#[test]
fn port_conflicts_on_a_shared_address_are_refused() {
    let ours = json!({ "adapter": { "httpPort": 8443 } });
    let two = json!({ "nodeController": { "httpPort": 10271 } });
    let without =
        json!({ "nodeController": { "httpPort": 10271 }, "serviceController": { "enabled": false } });
    let off = json!({ "nodeController": { "httpPort": 10271, "enabled": false } });
    let external = json!({ "adapter": { "kind": "external", "endpoint": "https://192.0.2.10:8443" },
        "nodeController": { "httpPort": 10273 }, "serviceController": { "httpPort": 8443 } });
    let cases = [
        (true, &ours, Some("adapter.httpPort: 8443 is taken by adapter.grpcPort")),
        (false, &ours, Some("adapter.httpPort: 8443 is taken by adapter.grpcPort")),
        (true, &two, Some("serviceController.httpPort: 10271 is taken by nodeController.httpPort")),
        (false, &two, None),
        (true, &without, None),
        (true, &off, None),
        (true, &external, None),
    ];
    for (host, change, refused) in cases {
        let mut values = base();
        merge(&mut values, change);
        merge(&mut values, &json!({ "hostNetwork": host }));
        match (helm(&values), refused) {
            (Ok(_), None) => (),
            (Err(said), Some(why)) => assert!(said.contains(why), "{said}"),
            (got, _) => panic!("host network {host}, {change}: {got:?}"),
        }
    }
}

/// The kubelet probes the pod's address, so a process that listens on loopback only would be restarted again and again.
#[test]
fn a_bind_address_that_probes_cannot_reach_is_refused() {
    let within = ["127.0.0.1", "127.8.9.1", "::1", "0:0:0:0:0:0:0:1", "::ffff:127.0.0.1", "::ffff:7f00:1"];
    for address in within {
        let mut values = base();
        merge(&mut values, &json!({ "bindAddress": address }));
        let said = helm(&values).expect_err(address);
        assert!(said.contains(&format!("bindAddress: {address} is a loopback address")), "{said}");
        assert!(said.contains("0.0.0.0") && said.contains("::"), "{said}");
    }
    for address in ["0.0.0.0", "::", "10.127.0.1", "::11", "::1:1", "fd00::1"] {
        let mut values = base();
        merge(&mut values, &json!({ "bindAddress": address }));
        helm(&values).expect(address);
    }
}

/// YAML reads some names as numbers or booleans.
#[test]
fn names_that_look_like_numbers_stay_strings() {
    let mut values = base();
    let adapter = json!({ "credentialsSecret": "123", "tls": { "secretName": "1e5" }, "priorityClassName": "0",
        "replicas": "active-standby" });
    merge(&mut values, &json!({ "adapter": adapter, "imagePullSecrets": [{ "name": "456" }] }));
    let objects = rendered_as("789", "1234", &values);
    for object in &objects {
        assert!(object["metadata"]["name"].is_string(), "{object}");
        let namespace = &object["metadata"]["namespace"];
        assert!(namespace.is_null() || namespace == "1234", "{object}");
        let instance = &object["metadata"]["labels"]["app.kubernetes.io/instance"];
        assert!(instance.is_null() || instance == "789", "{object}");
        for subject in object["subjects"].as_array().into_iter().flatten() {
            assert_eq!(subject["namespace"], "1234", "{object}");
        }
    }
    let adapter =
        of_kind(&objects, "Deployment").find(|it| it["metadata"]["name"] == "cloud-adapter").unwrap();
    let spec = &adapter["spec"]["template"]["spec"];
    assert_eq!(spec["priorityClassName"], "0");
    assert_eq!(spec["imagePullSecrets"][0]["name"], "456");
    let volume = |name: &str| {
        let mut volumes = spec["volumes"].as_array().unwrap().iter();
        volumes.find(|it| it["name"] == name).unwrap()
    };
    assert_eq!(volume("credentials")["secret"]["secretName"], "123");
    assert_eq!(volume("tls")["secret"]["secretName"], "1e5");
    assert_eq!(volume("adapter-client")["projected"]["sources"][0]["secret"]["name"], "1e5");
}

#[test]
fn invalid_pod_values_are_refused_with_their_key() {
    let cases = [
        (json!({ "monitoring": { "interval": "often" } }), "monitoring.interval: invalid value"),
        (json!({ "monitoring": { "alert": true } }), "alert"),
        (json!({ "nodeController": { "resources": { "limit": {} } } }), "limit"),
        (
            json!({ "adapter": { "resources": { "limits": { "memory": "lots" } } } }),
            "adapter.resources.limits.memory: invalid value",
        ),
        (
            json!({ "routeController": { "tolerations": [{ "effect": "Never" }] } }),
            "routeController.tolerations.0.effect: invalid value \"Never\"",
        ),
        (json!({ "serviceController": { "affinity": { "node": {} } } }), "node"),
        (json!({ "adapter": { "topologySpreadConstraints": [{ "maxSkew": 1 }] } }), "topologyKey"),
        (json!({ "adapter": { "extraVolumes": [{ "emptyDir": {} }] } }), "name"),
        (json!({ "adapter": { "extraVolumeMounts": [{ "name": "a" }] } }), "mountPath"),
        (json!({ "networkPolicy": { "apiServerPorts": [] } }), "/networkPolicy/apiServerPorts"),
        (
            json!({ "networkPolicy": { "apiServerPorts": ["https"] } }),
            "networkPolicy.apiServerPorts.0: invalid value \"https\"",
        ),
        (json!({ "adapter": { "cache": { "instances": { "maxage": "1m" } } } }), "maxage"),
    ];
    for (change, named) in cases {
        let mut values = base();
        merge(&mut values, &change);
        let refused = helm(&values).expect_err(named);
        assert!(refused.contains(named), "{named}: {refused}");
    }
}

/// `helm upgrade --reuse-values` passes the values of an older chart, which lack new keys. Values that the user removed or disabled stay
/// removed or disabled.
#[test]
fn absent_values_have_their_defaults() {
    let text = std::fs::read_to_string(chart().join("values.yaml")).unwrap();
    let mut none: Value = serde_saphyr::from_str(&text).unwrap();
    let expected = helm(&base()).unwrap();
    for (key, given) in none.as_object_mut().unwrap() {
        if base().get(key).is_none() {
            let mut values = base();
            merge(&mut values, &json!({ key: null }));
            assert_eq!(helm(&values).unwrap(), expected, "{key}");
        }
        take_out(given);
    }
    merge(&mut none, &base());
    assert_eq!(helm(&none).unwrap(), expected);

    let mut less = base();
    let own =
        json!({ "hostNetwork": false, "selfTest": null, "adapter": { "resources": { "limits": null } } });
    merge(&mut less, &own);
    let objects = rendered(&less);
    let adapter =
        of_kind(&objects, "Deployment").find(|it| it["metadata"]["name"] == "cloud-adapter").unwrap();
    let spec = &adapter["spec"]["template"]["spec"];
    assert_eq!(spec["hostNetwork"], false);
    assert!(spec["containers"][0]["resources"]["limits"].is_null(), "{spec}");
}

/// Sets all values to null, except container settings, for which null is a valid choice.
fn take_out(values: &mut Value) {
    if let Value::Object(below) = values {
        below.iter_mut().filter(|(key, _)| *key != "resources").for_each(|(_, it)| take_out(it));
    } else {
        *values = Value::Null;
    }
}

/// All components, with a certificate of the user's own.
pub(super) fn base() -> Value {
    json!({
        "clusterId": "6e0ecd3b-34ac-4a0f-9f1c-6f0a1c5c2b7d",
        "adapter": { "kind": "sim", "sim": { "notForProduction": true },
            "tls": { "mode": "secret", "secretName": "cloud-adapter-tls" } },
        "routeController": { "clusterCidr": "10.244.0.0/16" },
    })
}

pub(super) fn rendered(values: &Value) -> Vec<Value> {
    rendered_as("cloud-controllers", "kube-system", values)
}

fn rendered_as(release: &str, namespace: &str, values: &Value) -> Vec<Value> {
    let text = helm_with(&["template", release, "--namespace", namespace], values).unwrap();
    let documents = text.split("\n---\n").filter(|it| it.lines().any(|line| line.starts_with("kind:")));
    documents.map(|it| serde_saphyr::from_str(it.trim_start_matches("---")).unwrap()).collect()
}

fn helm(values: &Value) -> Result<String, String> {
    helm_with(&["template", "cloud-controllers", "--namespace", "kube-system"], values)
}

pub(super) fn helm_with(command: &[&str], values: &Value) -> Result<String, String> {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("values.json");
    std::fs::write(&file, values.to_string()).unwrap();
    let mut helm = Command::new(e2e::tools().unwrap().helm.path);
    helm.args(command).arg("--values").arg(file).env("KUBECONFIG", dir.path().join("none"));
    let output = helm.arg(chart()).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
}

fn chart() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("helm/cloud-controllers")
}

pub(super) fn of_kind<'a>(objects: &'a [Value], kind: &'a str) -> impl Iterator<Item = &'a Value> {
    objects.iter().filter(move |it| it["kind"] == kind)
}

fn names(objects: &[Value], kind: &str) -> BTreeSet<String> {
    of_kind(objects, kind).map(|it| it["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

fn groups(objects: &[Value]) -> BTreeSet<String> {
    let rules = of_kind(objects, "PrometheusRule").flat_map(|it| it["spec"]["groups"].as_array().unwrap());
    let counted: BTreeMap<_, _> = rules
        .map(|it| (it["name"].as_str().unwrap().to_owned(), it["rules"].as_array().unwrap().len()))
        .collect();
    assert!(counted.values().all(|rules| *rules > 0), "{counted:?}");
    counted.into_keys().collect()
}
