//! Tests of the notes that Helm prints after an installation. No API server runs here.

#![expect(clippy::unwrap_used, reason = "clippy recognises tests, but not their helpers")]

use e2e::merge;
use serde_json::{Value, json};

use super::chart_template::{base, helm_with};

/// The notes warn about an adapter without authentication at each installation, and say how to read the result of `helm test`.
#[test]
fn the_notes_warn_of_an_unauthenticated_adapter() {
    let external =
        json!({ "kind": "external", "endpoint": "https://192.0.2.10:8443", "authentication": "none" });
    let cases = [
        (json!({}), None),
        (json!({ "authentication": "token-review" }), None),
        (json!({ "authentication": "none" }), Some("the adapter does not authenticate its callers")),
        (json!({ "authentication": "none", "tls": { "mode": "off" } }), Some("is not encrypted")),
        (external, Some("do not authenticate to the adapter")),
    ];
    for (adapter, warning) in cases {
        let mut values = base();
        merge(&mut values, &json!({ "adapter": adapter }));
        let notes = notes(&values);
        match warning {
            Some(warning) => {
                let found = notes.lines().find(|line| line.starts_with("WARNING: "));
                assert!(found.is_some_and(|found| found.contains(warning)), "{adapter}: {notes}");
            }
            None => assert!(!notes.contains("WARNING"), "{adapter}: {notes}"),
        }
        assert!(notes.contains("  helm test a --namespace b --logs\n"), "{notes}");
        assert!(notes.contains("\nimage.registry is empty: each node must have the images"), "{notes}");
        assert!(notes.contains("  cloudctl check --release a --release-namespace b --wait 2m\n"), "{notes}");
        let page = notes.contains("  kubectl --namespace b port-forward deployment/cloud-adapter 10273\n");
        assert_eq!(page, adapter["kind"] != "external", "{notes}");
    }
}

/// A second adapter needs a deletion first, which the notes name beside the advice. An adapter that has a standby gets no such advice.
#[test]
fn the_notes_name_the_deletion_before_a_standby_adapter() {
    let delete =
        "  kubectl --namespace b delete deployment second-cloud-adapter --cascade=foreground --wait\n";
    for (replicas, advised) in [("single", true), ("active-standby", false)] {
        let mut values = base();
        merge(&mut values, &json!({ "fullnameOverride": "second", "adapter": { "replicas": replicas } }));
        let notes = notes(&values);
        assert_eq!(notes.contains("adapter.replicas=active-standby"), advised, "{notes}");
        assert_eq!(notes.contains(delete), advised, "{notes}");
        assert!(notes.contains("nodeController.replicas=2"), "{notes}");
    }
}

/// The notes promise no initialised nodes if the simulated cloud has no instances.
#[test]
fn the_notes_say_whether_a_simulated_cloud_initialises_nodes() {
    for (endpoint, initialises) in [("", false), ("http://192.0.2.10:9797", true)] {
        let mut values = base();
        let sim = json!({ "notForProduction": true, "endpoint": endpoint });
        merge(&mut values, &json!({ "adapter": { "kind": "sim", "sim": sim } }));
        let notes = notes(&values);
        assert_eq!(notes.contains("\nNodes lose the taint"), initialises, "{notes}");
        assert_eq!(notes.contains("\nNodes keep the taint"), !initialises, "{notes}");
    }
}

/// The notes of the release `a` in the namespace `b`.
fn notes(values: &Value) -> String {
    let said = helm_with(&["install", "a", "--dry-run=client", "--namespace", "b"], values).unwrap();
    said.split_once("\nNOTES:\n").unwrap().1.to_owned()
}
