//! What is kept of both sides.

use controller_core::testing::{instance, node};
use k8s_openapi::{api::core::v1::NodeCondition, apimachinery::pkg::apis::meta::v1::Time};

use super::*;

#[test]
fn a_heartbeat_changes_nothing_that_is_kept() {
    let before = node("a").provider_id("sim://north/i-1").at("10.0.0.1").build();
    let mut after = before.clone();
    after.metadata.resource_version = Some("77".to_owned());
    let status = after.status.get_or_insert_default();
    status.conditions = Some(vec![NodeCondition {
        type_: "Ready".to_owned(),
        last_heartbeat_time: Some(Time(controller_core::testing::BEGIN)),
        ..NodeCondition::default()
    }]);
    assert_eq!(trim_node(&before), trim_node(&after));
}

#[test]
fn of_an_initialised_node_only_our_labels_are_kept() {
    let labelled = node("a").label("topology.kubernetes.io/zone", "z").label("team", "blue");
    let keys = |node: Node| node.labels.into_keys().collect::<Vec<_>>();
    assert_eq!(keys(trim_node(&labelled.clone().build())), ["topology.kubernetes.io/zone"]);
    assert_eq!(keys(trim_node(&labelled.uninitialised().build())), ["team", "topology.kubernetes.io/zone"]);
}

#[test]
fn a_taint_is_written_as_the_api_server_writes_it() {
    let taint = core::Taint {
        key: "k".to_owned(),
        value: None,
        effect: "NoExecute".to_owned(),
        time_added: Some(Time("2026-01-01T00:00:00Z".parse().expect("a time"))),
    };
    let kept = serde_json::to_value(trim_taint(&taint)).expect("plain data");
    assert_eq!(kept, serde_json::to_value(&taint).expect("plain data"));
    assert_eq!(kept["timeAdded"], "2026-01-01T00:00:00Z");
}

#[test]
fn addresses_keep_the_clouds_order_and_kubernetes_names() {
    use wire::instance_address::Type;
    let instance = instance("sim://north/i-1")
        .address(Type::ExternalDns, "a.example.com")
        .at("10.0.0.1")
        .external("192.0.2.1")
        .address(Type::Hostname, "a")
        .address(Type::Unspecified, "unknown")
        .build();
    let kept = trim_instance(instance).addresses;
    let words: Vec<String> =
        kept.iter().map(|address| format!("{}={}", address.type_, address.address)).collect();
    assert_eq!(
        words,
        ["ExternalDNS=a.example.com", "InternalIP=10.0.0.1", "ExternalIP=192.0.2.1", "Hostname=a"]
    );
}
