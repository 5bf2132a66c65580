//! Tests which fields the caches keep.

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
        status: "False".to_owned(),
        last_heartbeat_time: Some(Time(controller_core::testing::BEGIN)),
        ..NodeCondition::default()
    }]);
    assert_eq!(trim_node(&before), trim_node(&after));
}

#[test]
fn initialised_node_keeps_only_labels_that_may_be_from_the_cloud() {
    let zone = "topology.kubernetes.io/zone";
    let labelled = node("a").label(zone, "z").label("kubernetes.io/os", "linux").label("team", "blue");
    let keys = |node: Node| node.labels.iter().map(|(key, _)| key.to_owned()).collect::<Vec<_>>();
    assert_eq!(keys(trim_node(&labelled.clone().build())), ["team", zone]);
    assert_eq!(keys(trim_node(&labelled.uninitialised().build())), ["kubernetes.io/os", "team", zone]);
}

#[test]
fn what_the_end_of_a_node_depends_on_is_kept() {
    let life = |builder: controller_core::testing::NodeBuilder| trim_node(&builder.build()).life;
    assert_eq!(life(node("a")), Life::default());
    assert_eq!(life(node("a").ready("Unknown")), Life::default());
    assert_eq!(life(node("a").ready("False")), Life::default());
    assert_eq!(life(node("a").ready("True")).ready, Ready::True);
    assert!(life(node("a").tainted(node::SHUTDOWN, None, "NoSchedule")).shutdown);
    assert!(
        !life(node("a").tainted(node::SHUTDOWN, None, "NoExecute")).shutdown,
        "another effect is another taint"
    );
    assert!(life(node("a").deleted()).deleting);
    assert!(life(node("a").annotation(node::DELETE_DESPITE_BRAKE, "uid-a")).let_go);
    for value in ["", "true", "uid-b"] {
        assert!(!life(node("a").annotation(node::DELETE_DESPITE_BRAKE, value)).let_go, "{value:?}");
    }
    assert!(life(node("a").tainted(node::TO_BE_DELETED, Some("1767225600"), "NoSchedule")).let_go);
    let candidate = "DeletionCandidateOfClusterAutoscaler";
    assert!(
        !life(node("a").tainted(candidate, None, "PreferNoSchedule")).let_go,
        "the operator may revoke it"
    );
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
    let words: Vec<String> = kept.iter().map(|(type_, address)| format!("{type_}={address}")).collect();
    assert_eq!(
        words,
        ["ExternalDNS=a.example.com", "InternalIP=10.0.0.1", "ExternalIP=192.0.2.1", "Hostname=a"]
    );
}
