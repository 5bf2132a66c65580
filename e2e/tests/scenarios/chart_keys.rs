//! Tests that `helm template` refuses misspelt keys at all levels and wrong names of registries, with everything else that is wrong.

use e2e::merge;
use serde_json::{Value, json};

use super::chart_names::{all, helm};

/// A misspelt key is named with its full path and a similar key, and does not hide other faults.
#[test]
fn misspelt_keys_are_refused_with_all_other_faults() {
    let mut values = all();
    let change = json!({
        "adaptor": {},
        "adapter": { "sim": { "enpoint": "x" }, "limits": { "buckets": { "a": { "rat": 1 } } } },
        "image": { "flavour": "x" },
        "serviceController": { "serviceDefaults": { "intrenal": "true" } },
        "nodeController": { "tolerations": [{ "kee": "a" }], "resources": { "limit": {} } },
        "logLevel": "inf",
        "routeController": { "clusterCidr": "10.244.0.0/33" },
    });
    merge(&mut values, &change);
    let said = helm("a", &values).expect_err("misspelt keys");
    for fault in [
        "adaptor: unknown key, did you mean 'adapter'?",
        "adapter.sim.enpoint: unknown key, did you mean 'endpoint'?",
        "adapter.limits.buckets.a.rat: unknown key, did you mean 'rate'?",
        "image.flavour: unknown key: use one of: digests, pullPolicy, registry, tag",
        "nodeController.tolerations.0.kee: unknown key, did you mean 'key'?",
        "nodeController.resources.limit: unknown key, did you mean 'limits'?",
        "serviceController.serviceDefaults.intrenal: unknown key, did you mean 'internal'?",
        "logLevel: unknown log level 'inf'",
        "routeController.clusterCidr: the prefix length of 10.244.0.0/33",
    ] {
        assert!(said.contains(&format!("\n  - {fault}")), "{fault}: {said}");
    }
    let mut values = json!({ "adapter": { "sim": { "enpoint": "x" } }, "clusterId": "kubernetes" });
    let said = helm("a", &values).expect_err("no cloud is chosen");
    for fault in
        ["adapter.sim.enpoint: unknown key", "adapter.kind: has no default", "clusterId: invalid value"]
    {
        assert!(said.contains(fault), "{fault}: {said}");
    }

    values = all();
    let open = json!({ "commonLabels": { "a": "b" }, "global": { "a": 1 }, "nodeController": {
        "nodeSelector": { "a": "b" }, "resources": { "limits": { "example.com/device": 1 } },
        "extraVolumes": [{ "name": "a", "emptyDir": { "medium": "Memory" } }],
        "affinity": { "nodeAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": [] } } } });
    merge(&mut values, &open);
    helm("a", &values).expect("keys that the user chooses");
}

/// An adapter that runs would refuse the whole file, and would fail at its next start.
#[test]
fn misspelt_families_are_refused() {
    let said = |kind: &str, limits: Value| {
        let mut values = all();
        let image = if kind == "custom" { "registry.example/adapter-acme:1" } else { "" };
        merge(&mut values, &json!({ "adapter": { "kind": kind, "image": image, "limits": limits } }));
        helm("a", &values).err()
    };
    let bucket = |name: &str| json!({ "buckets": { name: { "rate": 1, "burst": 1 } } });
    for (kind, limits, fault) in [
        ("sim", bucket("loadbalancr"), "buckets.loadbalancr: unknown family, did you mean 'loadbalancer'?"),
        ("custom", bucket("netwrok"), "buckets.netwrok: unknown family, did you mean 'network'?"),
        ("sim", bucket("gpu:List"), "buckets.gpu:List: unknown family: use one of: account, compute, "),
        (
            "sim",
            json!({ "concurrency": { "compte": 1 } }),
            "concurrency.compte: unknown family, did you mean 'compute'?",
        ),
    ] {
        let said = said(kind, limits).expect(fault);
        assert!(said.contains(&format!("\n  - adapter.limits.{fault}")), "{fault}: {said}");
    }
    for (kind, name) in [("sim", "account"), ("sim", "compute:ListInstances"), ("custom", "gpu")] {
        assert_eq!(said(kind, bucket(name)), None, "{name}");
    }
}

#[test]
fn registry_is_a_host_and_a_path() {
    let says = "; set it to a host and a path in lower case, without https://, without the image name and without a slash at \
                the end, such as ghcr.io/acme";
    for (registry, image) in [
        ("https://ghcr.io/acme", None),
        ("http://registry.example", None),
        ("oci://ghcr.io/acme", None),
        ("ghcr.io/acme/", None),
        ("ghcr.io/Acme", None),
        ("ghcr.io acme", None),
        ("ghcr.io/acme", Some("ghcr.io/acme/adapter-sim:")),
        ("registry.example:5000/team_a/b", Some("registry.example:5000/team_a/b/adapter-sim:")),
        ("[fd00::1]:5000", Some("[fd00::1]:5000/adapter-sim:")),
        ("localhost", Some("localhost/adapter-sim:")),
        ("", Some("adapter-sim:")),
    ] {
        let mut values = all();
        merge(&mut values, &json!({ "image": { "registry": registry } }));
        match (helm("a", &values), image) {
            (Ok(text), Some(image)) => assert!(text.contains(&format!("image: \"{image}")), "{registry}"),
            (Err(said), None) => {
                let fault = format!("image.registry: invalid value \"{registry}\"{says}");
                assert!(said.contains(&fault), "{registry}: {said}");
            }
            (got, _) => panic!("{registry}: {got:?}"),
        }
    }
    for (image, valid) in [
        ("https://registry.example/adapter-acme:1.2", false),
        ("registry.example/adapter-acme:", false),
        ("adapter-acme", true),
        ("registry.example:5000/a/adapter-acme:1.2", true),
        (&format!("registry.example/adapter-acme@sha256:{}", "0a".repeat(32)), true),
    ] {
        let values = json!({ "adapter": { "kind": "custom", "image": image } });
        assert_eq!(helm("a", &values).is_ok(), valid, "{image}");
    }
}
