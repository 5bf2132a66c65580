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

/// `helm lint` reports nothing, and the metadata for Artifact Hub lists what the chart uses.
#[test]
fn metadata_is_complete_and_true() {
    let mut lint = Command::new(e2e::tools().unwrap().helm.path);
    let output = lint.args(["lint", "--strict", "--set", "adapter.kind=openstack"]).arg(chart()).output();
    let said = String::from_utf8(output.unwrap().stdout).unwrap();
    assert!(!said.contains("[INFO]") && !said.contains("[WARN") && !said.contains("[ERR"), "{said}");

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

/// On an IPv6-only cluster no address of IPv4 is used. Images exist for both architectures, so nothing selects one, and pods run on Linux
/// beside Windows nodes.
#[test]
fn ipv6_only_and_mixed_clusters() {
    let mut values = all();
    merge(
        &mut values,
        &json!({ "bindAddress": "::", "routeController": { "clusterCidr": "fd00:10:244::/56" },
            "networkPolicy": { "enabled": false } }),
    );
    let objects = rendered("a", &values);
    let deployments: Vec<_> = objects.iter().filter(|it| it["kind"] == "Deployment").collect();
    assert_eq!(deployments.len(), 4);
    for deployment in deployments {
        let pod = &deployment["spec"]["template"]["spec"];
        assert_eq!(pod["nodeSelector"], json!({ "kubernetes.io/os": "linux" }));
        let args = pod["containers"][0]["args"].to_string();
        assert!(args.contains("--http-address=[::]:"), "{args}");
        assert!(!args.contains("0.0.0.0") && !args.contains("127.0.0.1"), "{args}");
        assert!(!deployment.to_string().contains("kubernetes.io/arch"), "{deployment}");
    }
    let adapter = one(&objects, "Deployment", "cloud-adapter").to_string();
    assert!(adapter.contains("--advertise-address=[$(POD_IP)]:8443"), "{adapter}");
    let service = one(&objects, "Service", "cloud-adapter");
    assert!(service["spec"]["ipFamilies"].is_null(), "the cluster decides: {service}");
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
