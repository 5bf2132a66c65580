//! Tests that the chart refuses invalid values, and names the key in the message. No controller runs here.

use e2e::{Release, Values, merge};
use serde_json::{Value, json};

use super::chart_install::{control_plane, left_over};

/// Each invalid value is refused before anything is created, with a message that names the key.
#[tokio::test]
async fn invalid_values_are_refused_with_their_key() {
    let control_plane = control_plane().await;
    let good = Values::new().unwrap().render();
    for (name, change, key) in wrong_values() {
        let mut values = good.clone();
        merge(&mut values, &change);
        let refused = Release::install(&control_plane, &values).await;
        let message = format!("{:#}", refused.expect_err(name));
        assert!(message.contains(key), "{name}: {message}");
    }
    assert_eq!(left_over(&control_plane).await, "");
}

fn wrong_values() -> Vec<Wrong> {
    [
        wrong_shapes(),
        wrong_keys(),
        wrong_senses(),
        wrong_senses_of_policies(),
        wrong_senses_of_controllers(),
        wrong_senses_of_openstack(),
    ]
    .concat()
}

/// A name, values, and a part of the message.
type Wrong = (&'static str, Value, &'static str);

/// Values of the wrong type or format.
fn wrong_shapes() -> Vec<Wrong> {
    vec![
        (
            "a word for a number",
            json!({ "adapter": { "grpcPort": "many" } }),
            "adapter.grpcPort: invalid value",
        ),
        ("a port out of range", json!({ "nodeController": { "httpPort": 70000 } }), "httpPort"),
        (
            "an unknown inner key",
            json!({ "serviceController": { "replica": 2 } }),
            "serviceController.replica: unknown key, did you mean 'replicas'?",
        ),
        ("an unknown log format", json!({ "logFormat": "xml" }), "logFormat"),
        ("another domain's annotations", json!({ "serviceController": { "compat": "aws" } }), "compat"),
        (
            "an invalid interface",
            json!({ "adapter": { "openstack": { "interface": "outer" } } }),
            "interface",
        ),
        (
            "an invalid clouds.yaml",
            json!({ "adapter": { "openstack": { "cloudsYaml": "auth:" } } }),
            "cloudsYaml",
        ),
        ("an invalid ID", json!({ "adapter": { "openstack": { "routerId": "my router" } } }), "routerId"),
        ("an unknown mode", json!({ "adapter": { "replicas": "two" } }), "replicas"),
        ("a share above 1", json!({ "adapter": { "limits": { "share": 1.5 } } }), "share"),
        ("an invalid duration", json!({ "adapter": { "limits": { "deadline": { "max": "soon" } } } }), "max"),
        (
            "an incomplete network",
            json!({ "routeController": { "clusterCidr": "10.244.0.0" } }),
            "clusterCidr",
        ),
    ]
}

/// Keys at the top level that are refused with the most similar key.
fn wrong_keys() -> Vec<Wrong> {
    vec![
        ("a misspelt key", json!({ "adaptor": {} }), "adaptor: unknown key, did you mean 'adapter'?"),
        (
            "a key in another case",
            json!({ "node-controller": {} }),
            "unknown key, did you mean 'nodeController'?",
        ),
        ("an unknown key", json!({ "flavour": "x" }), "flavour: unknown key: use one of: adapter, "),
    ]
}

/// Values of the right type that make no sense.
fn wrong_senses() -> Vec<Wrong> {
    vec![
        (
            "routes without a pod network",
            json!({ "routeController": { "enabled": true, "clusterCidr": "" } }),
            "routeController.clusterCidr",
        ),
        ("an adapter without an image", json!({ "adapter": { "kind": "custom" } }), "adapter.image"),
        ("an adapter without an endpoint", json!({ "adapter": { "kind": "external" } }), "adapter.endpoint"),
        ("an unknown log level", json!({ "logLevel": "inf" }), "logLevel: unknown log level 'inf'"),
        (
            "a log target without a level",
            json!({ "logLevel": "info,service_controller" }),
            "logLevel: unknown log level 'service_controller'",
        ),
        (
            "a prefix that is too long",
            json!({ "routeController": { "clusterCidr": "10.244.0.0/33" } }),
            "routeController.clusterCidr: the prefix length of 10.244.0.0/33",
        ),
        (
            "two networks of one IP family",
            json!({ "routeController": { "clusterCidr": "10.244.0.0/16,10.245.0.0/16" } }),
            "routeController.clusterCidr: 10.245.0.0/16 is a second network of IPv4",
        ),
        (
            "an invalid CIDR",
            json!({ "routeController": { "clusterCidr": "fd00:10:244/48" } }),
            "routeController.clusterCidr: fd00:10:244/48 is not a CIDR",
        ),
        (
            "an endpoint without TLS",
            json!({ "adapter": { "endpoint": "http://192.0.2.10:8443" } }),
            "adapter.endpoint: http://192.0.2.10:8443 does not use TLS",
        ),
        (
            "tokens without TLS",
            json!({ "adapter": { "tls": { "mode": "off" } } }),
            "adapter.authentication: sends tokens",
        ),
        (
            "a Secret without a name",
            json!({ "adapter": { "tls": { "mode": "secret" } } }),
            "adapter.tls.secretName: is required",
        ),
        (
            "a generated CA for an adapter elsewhere",
            json!({ "adapter": { "kind": "external", "endpoint": "https://192.0.2.10:8443" } }),
            "adapter.tls.mode: generated creates",
        ),
        (
            "an invalid listen address",
            json!({ "bindAddress": "999.1.1.1" }),
            "bindAddress: 999.1.1.1 is not an IP address",
        ),
        (
            "a port that is used twice",
            json!({ "nodeController": { "httpPort": 10999 }, "serviceController": { "httpPort": 10999 } }),
            "serviceController.httpPort",
        ),
    ]
}

fn wrong_senses_of_policies() -> Vec<Wrong> {
    vec![(
        "no policy lets Prometheus in",
        json!({ "hostNetwork": false, "monitoring": { "serviceMonitor": true } }),
        "networkPolicy.metricsFrom: is empty and blocks Prometheus",
    )]
}

/// Values that a controller would refuse.
fn wrong_senses_of_controllers() -> Vec<Wrong> {
    vec![
        (
            "a period of 0",
            json!({ "nodeController": { "deletion": { "monitorPeriod": "0s" } } }),
            "nodeController.deletion.monitorPeriod: 0s is too short",
        ),
        (
            "a confirmation that is too early",
            json!({ "nodeController": { "deletion": { "confirmAfter": "500ms" } } }),
            "nodeController.deletion.confirmAfter: 500ms is too short",
        ),
        (
            "no Services selected",
            json!({ "serviceController": { "defaultLoadBalancer": false } }),
            "serviceController.defaultLoadBalancer: false without a class selects no Service",
        ),
        (
            "an invalid class",
            json!({ "serviceController": { "loadBalancerClass": "a b" } }),
            "serviceController.loadBalancerClass: invalid value \"a b\"; set it to a class",
        ),
        (
            "the same name for all",
            json!({ "serviceController": { "loadBalancerNameTemplate": "{cluster}" } }),
            "serviceController.loadBalancerNameTemplate: {cluster} gives two Services the same name",
        ),
        (
            "an age above the maximum",
            json!({ "serviceController": { "orphanMinimumAge": "48h" } }),
            "serviceController.orphanMinimumAge: 48h is not from 1s to 24h",
        ),
        (
            "a default of an unknown annotation",
            json!({ "serviceController": { "serviceDefaults": { "foo": "true" } } }),
            "serviceController.serviceDefaults.foo: unknown key: use one of those in docs/reference/annotations.md",
        ),
        (
            "a default of the wrong type",
            json!({ "serviceController": { "serviceDefaults": { "idle-timeout": "5" } } }),
            "serviceController.serviceDefaults.idle-timeout: invalid value \"5\"; set it to a duration such as 90s, 5m or 1h",
        ),
        (
            "a default that is not a boolean",
            json!({ "serviceController": { "serviceDefaults": { "internal": "yes" } } }),
            "serviceController.serviceDefaults.internal: invalid value \"yes\"; set it to true or false",
        ),
        (
            "a default port that health checks may not use",
            json!({ "serviceController": { "serviceDefaults": { "health-check.port": "9000" } } }),
            "serviceController.serviceDefaults.health-check.port: 9000 is not in serviceController.healthCheckPorts (10256)",
        ),
        (
            "a default for a setting of a single Service",
            json!({ "serviceController": { "serviceDefaults": { "hostname": "a.example.com" } } }),
            "serviceController.serviceDefaults.hostname: applies to one Service or port and cannot have a default",
        ),
    ]
}

fn wrong_senses_of_openstack() -> Vec<Wrong> {
    vec![
        (
            "no router",
            json!({ "adapter": { "kind": "openstack", "credentialsSecret": "a" } }),
            "adapter.openstack.routerId: is required for the route-controller",
        ),
        (
            "credentials in two places",
            json!({ "adapter": { "kind": "openstack", "credentialsSecret": "a", "openstack": { "cloudsYaml": "clouds:" } } }),
            "adapter.openstack.cloudsYaml: cannot be set together with adapter.credentialsSecret",
        ),
        (
            "credentials without an adapter that uses them",
            json!({ "adapter": { "openstack": { "cloudsYaml": "clouds:" } } }),
            "adapter.openstack.cloudsYaml: is only for adapter.kind openstack",
        ),
    ]
}
