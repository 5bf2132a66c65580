//! Which values the chart refuses, and in which words. No controller runs here.

use e2e::{Release, Values, merge};
use serde_json::{Value, json};

use super::chart_install::{control_plane, left_over};

/// Each of these fails before anything is made, with a message that names the key.
#[tokio::test]
async fn wrong_values_are_refused_by_the_name_of_their_key() {
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
        wrong_senses(),
        wrong_senses_of_policies(),
        wrong_senses_of_controllers(),
        wrong_senses_of_openstack(),
    ]
    .concat()
}

/// A name, values, and what must be said of them.
type Wrong = (&'static str, Value, &'static str);

/// What the schema refuses.
fn wrong_shapes() -> Vec<Wrong> {
    vec![
        ("a word for a number", json!({ "adapter": { "grpcPort": "many" } }), "grpcPort"),
        ("a port out of range", json!({ "nodeController": { "httpPort": 70000 } }), "httpPort"),
        ("an unknown key", json!({ "adaptor": {} }), "adaptor"),
        ("an unknown inner key", json!({ "serviceController": { "replica": 2 } }), "replica"),
        ("an unknown log format", json!({ "logFormat": "xml" }), "logFormat"),
        ("nobody's annotations", json!({ "serviceController": { "compat": "aws" } }), "compat"),
        ("no interface", json!({ "adapter": { "openstack": { "interface": "outer" } } }), "interface"),
        ("no clouds.yaml", json!({ "adapter": { "openstack": { "cloudsYaml": "auth:" } } }), "cloudsYaml"),
        ("no ID", json!({ "adapter": { "openstack": { "routerId": "my router" } } }), "routerId"),
        ("an unknown mode", json!({ "adapter": { "replicas": "two" } }), "replicas"),
        ("a part above 1", json!({ "adapter": { "limits": { "share": 1.5 } } }), "share"),
        ("no duration", json!({ "adapter": { "limits": { "deadline": { "max": "soon" } } } }), "max"),
        ("half a network", json!({ "routeController": { "clusterCidr": "10.244.0.0" } }), "clusterCidr"),
    ]
}

/// What has the right shape and makes no sense.
fn wrong_senses() -> Vec<Wrong> {
    vec![
        (
            "no pod network",
            json!({ "routeController": { "clusterCidr": "" } }),
            "routeController.clusterCidr",
        ),
        ("no image", json!({ "adapter": { "kind": "custom" } }), "adapter.image"),
        ("no endpoint", json!({ "adapter": { "kind": "external" } }), "adapter.endpoint"),
        ("no level", json!({ "logLevel": "inf" }), r#"logLevel: "inf" is no level"#),
        (
            "a target without a level",
            json!({ "logLevel": "info,service_controller" }),
            r#"logLevel: "service_controller" is no level"#,
        ),
        (
            "a prefix that is too long",
            json!({ "routeController": { "clusterCidr": "10.244.0.0/33" } }),
            "routeController.clusterCidr: the prefix length of 10.244.0.0/33",
        ),
        (
            "two networks of one family",
            json!({ "routeController": { "clusterCidr": "10.244.0.0/16,10.245.0.0/16" } }),
            "routeController.clusterCidr: 10.245.0.0/16 is a second network of IPv4",
        ),
        (
            "a network of no address",
            json!({ "routeController": { "clusterCidr": "fd00:10:244/48" } }),
            "routeController.clusterCidr: fd00:10:244/48 is no network",
        ),
        (
            "an endpoint without TLS",
            json!({ "adapter": { "endpoint": "http://192.0.2.10:8443" } }),
            "adapter.endpoint: http://192.0.2.10:8443 is without TLS",
        ),
        (
            "tokens without TLS",
            json!({ "adapter": { "tls": { "mode": "off" } } }),
            "adapter.authentication: shows tokens",
        ),
        (
            "a Secret without a name",
            json!({ "adapter": { "tls": { "mode": "secret" } } }),
            "adapter.tls.secretName: is needed",
        ),
        (
            "an authority for an adapter elsewhere",
            json!({ "adapter": { "kind": "external", "endpoint": "https://192.0.2.10:8443" } }),
            "adapter.tls.mode: generated makes",
        ),
        ("no address to listen on", json!({ "bindAddress": "999.1.1.1" }), "bindAddress: 999.1.1.1 is no"),
        (
            "one port twice",
            json!({ "nodeController": { "httpPort": 10999 }, "serviceController": { "httpPort": 10999 } }),
            "serviceController.httpPort",
        ),
    ]
}

/// The same of who may reach the pages.
fn wrong_senses_of_policies() -> Vec<Wrong> {
    vec![(
        "a Prometheus that no policy lets in",
        json!({ "hostNetwork": false, "monitoring": { "serviceMonitor": true } }),
        "networkPolicy.metricsFrom: is empty and lets no Prometheus in",
    )]
}

/// The same of values that a controller would refuse.
fn wrong_senses_of_controllers() -> Vec<Wrong> {
    vec![
        (
            "a period that never passes",
            json!({ "nodeController": { "deletion": { "monitorPeriod": "0s" } } }),
            "nodeController.deletion.monitorPeriod: 0s never passes",
        ),
        (
            "two words at once",
            json!({ "nodeController": { "deletion": { "confirmAfter": "500ms" } } }),
            "nodeController.deletion.confirmAfter: 500ms is too short",
        ),
        (
            "nobody's Services",
            json!({ "serviceController": { "defaultLoadBalancer": false } }),
            "serviceController.defaultLoadBalancer: false leaves nothing to do",
        ),
        (
            "no class",
            json!({ "serviceController": { "loadBalancerClass": "a b" } }),
            "serviceController.loadBalancerClass: \"a b\" is no class",
        ),
        (
            "one name for all",
            json!({ "serviceController": { "loadBalancerNameTemplate": "{cluster}" } }),
            "serviceController.loadBalancerNameTemplate: {cluster} gives two Services one name",
        ),
        (
            "an age above a day",
            json!({ "serviceController": { "orphanMinimumAge": "48h" } }),
            "serviceController.orphanMinimumAge: 48h is not from 1s to 24h",
        ),
        (
            "a default of nothing",
            json!({ "serviceController": { "serviceDefaults": { "intrenal": "true" } } }),
            "serviceController.serviceDefaults.intrenal: is no annotation's key",
        ),
        (
            "a default of a wrong type",
            json!({ "serviceController": { "serviceDefaults": { "idle-timeout": "5" } } }),
            "serviceController.serviceDefaults.idle-timeout: \"5\" is wrong; write a duration such as 90s, 5m or 1h",
        ),
        (
            "a default that is no switch",
            json!({ "serviceController": { "serviceDefaults": { "internal": "yes" } } }),
            "serviceController.serviceDefaults.internal: \"yes\" is wrong; write true or false",
        ),
        (
            "a default of a port that no Service may have probed",
            json!({ "serviceController": { "serviceDefaults": { "health-check.port": "9000" } } }),
            "serviceController.serviceDefaults.health-check.port: 9000 is not in serviceController.healthCheckPorts (10256)",
        ),
        (
            "a default of what only one can have",
            json!({ "serviceController": { "serviceDefaults": { "hostname": "a.example.com" } } }),
            "serviceController.serviceDefaults.hostname: is about one Service or port, and has no default",
        ),
    ]
}

/// The same of values for OpenStack.
fn wrong_senses_of_openstack() -> Vec<Wrong> {
    vec![
        (
            "no credentials for OpenStack",
            json!({ "adapter": { "kind": "openstack" } }),
            "adapter.credentialsSecret: is needed when adapter.kind is openstack",
        ),
        (
            "no router",
            json!({ "adapter": { "kind": "openstack", "credentialsSecret": "a" } }),
            "adapter.openstack.routerId: is needed when routeController.enabled",
        ),
        (
            "credentials twice",
            json!({ "adapter": { "kind": "openstack", "credentialsSecret": "a", "openstack": { "cloudsYaml": "clouds:" } } }),
            "adapter.openstack.cloudsYaml: is given, and so is adapter.credentialsSecret",
        ),
        (
            "credentials for nobody",
            json!({ "adapter": { "openstack": { "cloudsYaml": "clouds:" } } }),
            "adapter.openstack.cloudsYaml: is for adapter.kind openstack alone",
        ),
    ]
}
