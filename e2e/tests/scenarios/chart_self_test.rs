//! The pods of `helm test` as `helm template` prints them: their rights, and when they exist. `chart_options` runs them.

use e2e::merge;
use serde_json::{Value, json};

use super::chart_template::{base, of_kind, rendered};

/// `helm test` also runs in a namespace with the restricted profile.
#[test]
fn the_helm_test_pods_have_no_additional_rights() {
    let objects = rendered(&base());
    let rights =
        |pod: &Value| (pod["securityContext"].clone(), pod["containers"][0]["securityContext"].clone());
    let controller = of_kind(&objects, "Deployment").next().unwrap();
    let ours = rights(&controller["spec"]["template"]["spec"]);
    assert!(ours.1.is_object(), "{controller}");
    let tests: Vec<_> = of_kind(&objects, "Pod").collect();
    assert_eq!(tests.len(), 2);
    for test in tests {
        assert_eq!(rights(&test["spec"]), ours);
        assert!(test["spec"]["volumes"].is_null(), "no credentials: {test}");
    }
}

/// A policy of the cluster may require labels, annotations and a priority class of all pods, and nodes may need tolerations: the pods of
/// `helm test` have those of the component that they test, but no affinity to its pods.
#[test]
fn the_helm_test_pods_have_the_pod_values_of_their_component() {
    let mut values = base();
    let hook = json!({ "helm.sh/hook": "pre-install" });
    let term =
        json!({ "nodeSelectorTerms": [{ "matchExpressions": [{ "key": "a", "operator": "Exists" }] }] });
    let nodes = json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": term } });
    let mut affinity = nodes.clone();
    merge(&mut affinity, &json!({ "podAntiAffinity": {} }));
    for key in ["adapter", "serviceController"] {
        let own = json!({
            "podLabels": { "team": key }, "podAnnotations": { "owner": key }, "priorityClassName": "a-class",
            "nodeSelector": { "a-node": key }, "tolerations": [{ "key": "a-taint", "operator": "Exists" }],
            "affinity": affinity,
        });
        merge(&mut values, &json!({ key: own }));
        merge(&mut values, &json!({ key: { "podAnnotations": hook } }));
    }
    merge(&mut values, &json!({ "commonLabels": { "team": "common", "cost": "1" } }));
    let objects = rendered(&values);
    for (name, key) in
        [("cloud-controllers-check", "adapter"), ("cloud-controllers-self-test", "serviceController")]
    {
        let pod = of_kind(&objects, "Pod").find(|it| it["metadata"]["name"] == name).unwrap();
        let (metadata, spec) = (&pod["metadata"], &pod["spec"]);
        assert_eq!([&metadata["labels"]["team"], &metadata["labels"]["cost"]], [key, "1"]);
        assert_eq!(
            [&metadata["annotations"]["owner"], &metadata["annotations"]["helm.sh/hook"]],
            [key, "test"]
        );
        assert_eq!([&spec["priorityClassName"], &spec["nodeSelector"]["a-node"]], ["a-class", key]);
        assert_eq!(spec["affinity"], nodes);
        assert!(spec["tolerations"].to_string().contains("a-taint"), "{spec}");
    }
    let account = of_kind(&objects, "ServiceAccount").find(|it| it["metadata"]["name"] == "cloud-self-test");
    let labels = &account.unwrap()["metadata"]["labels"];
    assert_eq!(labels["team"], "common", "podLabels are of pods: {labels}");
}

/// Exactly these rights exist while the check runs; they include no Secret. Without a status page to read, there is no check.
#[test]
fn the_check_of_helm_test_only_reads() {
    let objects = rendered(&base());
    let rules = |kind: &str, name: &str| {
        let role = of_kind(&objects, kind).find(|it| it["metadata"]["name"] == name).unwrap();
        assert_eq!(role["metadata"]["annotations"]["helm.sh/hook"], "test");
        let rule = |it: &Value| format!("{} {}", it["verbs"], it["resources"]).replace('"', "");
        role["rules"].as_array().unwrap().iter().map(rule).collect::<Vec<_>>()
    };
    assert_eq!(
        rules("ClusterRole", "cloud-controllers:kube-system:check"),
        [
            "[list] [nodes,services,events]",
            "[list] [endpointslices]",
            "[list] [deployments]",
            "[list] [clusterroles,clusterrolebindings]"
        ]
    );
    assert_eq!(
        rules("Role", "cloud-check"),
        ["[list] [pods]", "[get,create] [pods/portforward]", "[list] [leases]"]
    );
    for change in [
        json!({ "selfTest": { "check": false } }),
        json!({ "adapter": { "kind": "custom", "image": "registry.example/adapter-acme:1.2" } }),
        json!({ "adapter": { "kind": "external", "endpoint": "https://192.0.2.10:8443" } }),
    ] {
        let mut values = base();
        merge(&mut values, &change);
        let objects = rendered(&values);
        assert!(!objects.iter().any(|it| it.to_string().contains("check\"")), "{change}");
    }
}
