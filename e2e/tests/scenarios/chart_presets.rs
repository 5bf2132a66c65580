//! Tests of the chart's presets, package and metadata, and of its use on other kinds of clusters. No API server runs here.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use e2e::merge;
use serde_json::{Value, json};

use super::chart_images::images;
use super::chart_names::{all, chart, documents, helm, one, rendered, root};

const PRESETS: [&str; 5] = ["ha", "k3s", "kubeadm", "openstack", "rke2"];

/// Each preset renders once a cloud is chosen. Without that choice, the missing cloud is the only error (the preset `openstack` makes the
/// choice itself).
#[test]
fn presets_render() {
    let mut found: Vec<_> = fs::read_dir(chart().join("presets"))
        .unwrap()
        .map(|file| file.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned())
        .collect();
    found.sort();
    assert_eq!(found, PRESETS);
    for name in PRESETS {
        let mut values = preset(name);
        merge(&mut values, &json!({ "adapter": { "kind": "openstack" } }));
        let objects = rendered("a", &values);
        assert!(one(&objects, "Deployment", "cloud-adapter").is_object(), "{name}");
        let without = helm("a", &preset(name));
        let kinds = without.err().map(|said| said.matches("\n  - ").count());
        assert_eq!(kinds, if name == "openstack" { None } else { Some(1) }, "{name}");
    }
}

/// With the preset `ha`, no component stops when one node fails.
#[test]
fn preset_ha_runs_two_of_each() {
    let mut values = preset("ha");
    let own = json!({ "adapter": { "kind": "custom", "image": "a:1" }, "routeController": { "clusterCidr": "10.244.0.0/16" } });
    merge(&mut values, &own);
    let objects = rendered("a", &values);
    for kind in ["Deployment", "PodDisruptionBudget"] {
        assert_eq!(objects.iter().filter(|it| it["kind"] == kind).count(), 4, "{kind}");
    }
    let single = objects.iter().filter(|it| it["kind"] == "Deployment" && it["spec"]["replicas"] != 2);
    assert_eq!(single.count(), 0);
}

/// The package contains the presets, and nothing else that a user does not need.
#[test]
fn package_contains_the_presets() {
    let dir = tempfile::tempdir().unwrap();
    let run = |command: &mut Command| {
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let mut package = Command::new(e2e::tools().unwrap().helm.path);
    run(package.args(["package", "--destination"]).arg(dir.path()).arg(chart()));
    let archive = fs::read_dir(dir.path()).unwrap().next().unwrap().unwrap().path();
    let listed = run(Command::new("tar").arg("-tzf").arg(archive));
    let files: BTreeSet<_> = listed.lines().map(|it| it.trim_start_matches("cloud-controllers/")).collect();
    for name in PRESETS {
        assert!(files.contains(format!("presets/{name}.yaml").as_str()), "{files:?}");
    }
    assert!(files.contains("files/formats.yaml") && files.contains("values.schema.json"), "{files:?}");
}

/// `helm lint` reports nothing, whichever adapter and preset is chosen. Helm reports a `fail` of a template on its standard error.
#[test]
fn lint_is_silent() {
    let mut kinds: Vec<_> = PRESETS.map(|name| (name, preset(name))).into();
    for (_, values) in &mut kinds {
        merge(values, &json!({ "adapter": { "kind": "openstack" } }));
    }
    let kind = |adapter: Value| json!({ "adapter": adapter });
    let external = json!({ "kind": "external", "endpoint": "https://192.0.2.10:8443",
        "tls": { "mode": "secret", "secretName": "a" } });
    kinds.extend([
        ("kind openstack", kind(json!({ "kind": "openstack" }))),
        ("kind sim", kind(json!({ "kind": "sim", "sim": { "notForProduction": true } }))),
        ("kind external", kind(external)),
        ("kind custom", kind(json!({ "kind": "custom", "image": "a:1" }))),
        ("all objects", all()),
    ]);
    for (name, values) in &kinds {
        let (out, err) = lint(values);
        assert_eq!(err, "", "{name}");
        let words = ["INFO", "WARN", "ERROR"].into_iter().filter(|&it| out.contains(it));
        assert_eq!(words.collect::<Vec<_>>(), Vec::<&str>::new(), "{name}: {out}");
        assert!(out.contains("1 chart(s) linted, 0 chart(s) failed"), "{name}: {out}");
    }
    let (out, err) = lint(&json!({}));
    assert!(err.contains("adapter.kind: has no default"), "where Helm reports faults: {out}{err}");
}

/// The standard output and error of `helm lint`.
fn lint(values: &Value) -> (String, String) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("values.json");
    fs::write(&file, values.to_string()).unwrap();
    let mut helm = Command::new(e2e::tools().unwrap().helm.path);
    let output = helm.args(["lint", "--strict", "--values"]).arg(file).arg(chart()).output().unwrap();
    (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
}

/// The metadata for Artifact Hub lists what the chart uses.
#[test]
fn metadata_is_complete_and_true() {
    let text = fs::read_to_string(chart().join("Chart.yaml")).unwrap();
    let about: Value = serde_saphyr::from_str(&text).unwrap();
    for key in ["home", "sources", "maintainers", "icon"] {
        assert!(!about[key].is_null(), "{key}");
    }
    let notes = &about["annotations"];
    assert_eq!(notes["artifacthub.io/license"], "Apache-2.0");
    let stated: Value = serde_saphyr::from_str(notes["artifacthub.io/images"].as_str().unwrap()).unwrap();
    let listed: BTreeSet<String> =
        stated.as_array().unwrap().iter().map(|it| it["image"].as_str().unwrap().to_owned()).collect();
    assert_eq!(listed, images(&json!({})));
}

/// On an IPv6-only cluster no program listens on an address of IPv4, and policies let the same traffic pass in both families. Images exist for
/// both architectures, so nothing selects one, and pods run on Linux beside Windows nodes.
#[test]
fn ipv6_only_and_mixed_clusters() {
    let mut values = all();
    let ipv6 = json!({ "bindAddress": "::", "routeController": { "clusterCidr": "fd00:10:244::/56" } });
    merge(&mut values, &ipv6);
    let objects = rendered("a", &values);
    let deployments: Vec<_> = objects.iter().filter(|it| it["kind"] == "Deployment").collect();
    assert_eq!(deployments.len(), 4);
    for deployment in deployments {
        let pod = &deployment["spec"]["template"]["spec"];
        assert_eq!(pod["nodeSelector"], json!({ "kubernetes.io/os": "linux" }));
        let args = pod["containers"][0]["args"].to_string();
        assert!(args.contains("--http-address=[::]:"), "{args}");
        assert!(!args.contains("0.0.0.0") && !args.contains("127.0.0.1"), "{args}");
        // Without a host, the kubelet probes the address of the pod, in whichever family it is.
        for probe in ["livenessProbe", "readinessProbe"] {
            let get = &pod["containers"][0][probe]["httpGet"];
            assert!(get["port"] == "http" && get["host"].is_null(), "{get}");
        }
        assert!(!deployment.to_string().contains("kubernetes.io/arch"), "{deployment}");
    }
    let adapter = one(&objects, "Deployment", "cloud-adapter").to_string();
    assert!(adapter.contains("--advertise-address=[$(POD_IP)]:8443"), "{adapter}");
    let service = one(&objects, "Service", "cloud-adapter");
    assert!(service["spec"]["ipFamilies"].is_null(), "the cluster decides: {service}");

    let policies: Vec<_> = objects.iter().filter(|it| it["kind"] == "NetworkPolicy").collect();
    assert_eq!(policies.len(), 4);
    for policy in policies {
        let egress = policy["spec"]["egress"].as_array().unwrap();
        let named: Vec<_> = egress.iter().filter_map(|rule| rule["to"].as_array()).collect();
        let blocks: Vec<Vec<_>> = named
            .iter()
            .map(|to| to.iter().filter_map(|it| it["ipBlock"]["cidr"].as_str()).collect())
            .filter(|cidrs: &Vec<_>| !cidrs.is_empty())
            .collect();
        assert!(!blocks.is_empty(), "{policy}");
        assert!(blocks.iter().all(|cidrs| *cidrs == ["0.0.0.0/0", "::/0"]), "{blocks:?}");
    }
    merge(&mut values, &json!({ "networkPolicy": { "apiServer": ["fd00::1/128"] } }));
    let objects = rendered("a", &values);
    let controller = one(&objects, "NetworkPolicy", "node-controller");
    assert_eq!(controller["spec"]["egress"][1]["to"], json!([{ "ipBlock": { "cidr": "fd00::1/128" } }]));
}

/// An adapter at an address of IPv6, in a URL and in a list, keeps its brackets, and policies have its port.
#[test]
fn adapter_elsewhere_has_an_ipv6_address() {
    for endpoint in ["https://[fd00::10]:9443", "static:///[fd00::10]:9443,[fd00::11]:9443"] {
        let adapter = json!({ "kind": "external", "endpoint": endpoint,
            "tls": { "mode": "secret", "secretName": "a" } });
        let objects =
            rendered("a", &json!({ "bindAddress": "::", "hostNetwork": false, "adapter": adapter }));
        let args = one(&objects, "Deployment", "node-controller")["spec"]["template"]["spec"]["containers"]
            [0]["args"]
            .to_string();
        assert!(args.contains(&format!("\"--adapter-endpoint={endpoint}\"")), "{args}");
        let egress = &one(&objects, "NetworkPolicy", "node-controller")["spec"]["egress"];
        let rule = egress.as_array().unwrap().last().unwrap();
        assert_eq!(rule["ports"], json!([{ "port": 9443 }]));
        assert_eq!(rule["to"][2]["ipBlock"]["cidr"], "::/0", "{rule}");
    }
}

/// The plain manifests of the repository are what the chart renders, without hooks.
#[test]
fn bundles_need_no_preparation() {
    for file in fs::read_dir(root().join("helm/manifests")).unwrap() {
        let text = fs::read_to_string(file.unwrap().path()).unwrap();
        let values: Value = serde_saphyr::from_str(&text).unwrap();
        let objects = documents(&helm("cloud-controllers", &values).unwrap());
        let secrets = objects.iter().filter(|it| it["kind"] == "Secret");
        assert!(secrets.into_iter().all(|it| it["data"].is_null()), "{text}");
    }
}

fn preset(name: &str) -> Value {
    let text = fs::read_to_string(chart().join("presets").join(name).with_extension("yaml")).unwrap();
    serde_saphyr::from_str(&text).unwrap()
}
