//! Tests of values, states and fingerprints.

use serde_json::{Value, json};

use super::*;

fn machine(change: &Value) -> Instance {
    let mut machine = json!({
        "id": "i-0007", "name": "node-7", "status": "running", "type": "s.medium", "zone": "sim-1a", "region": "sim-1",
        "addresses": [
            { "kind": "internal", "address": "10.0.0.7", "network": "default" },
            { "kind": "internal", "address": "10.1.0.7", "network": "storage" },
            { "kind": "external", "address": "2001:0db8:0::7", "network": "default" },
            { "kind": "hostname", "address": "node-7", "network": "default" },
        ],
        "tags": {}, "created_at": "2026-01-01T00:00:00Z",
    });
    let fields = machine.as_object_mut().expect("an object");
    fields.extend(change.as_object().expect("an object").clone());
    instance(&serde_json::from_value(machine).expect("readable"))
}

#[test]
fn instance_is_translated() {
    let instance = machine(&json!({}));
    assert_eq!(instance.provider_id, "sim://sim-1/i-0007");
    assert_eq!((instance.state(), instance.vendor_state.as_str()), (InstanceState::Running, "running"));
    let addresses: Vec<_> = instance
        .addresses
        .iter()
        .map(|address| (address.r#type(), address.value.clone(), address.family, address.primary))
        .collect();
    let ip = |text: &str| Some(instance_address::Value::Ip(text.to_owned()));
    assert_eq!(
        addresses,
        [
            (Type::InternalIp, ip("10.0.0.7"), 4, true),
            (Type::InternalIp, ip("10.1.0.7"), 4, false),
            (Type::ExternalIp, ip("2001:db8::7"), 6, true),
            (Type::Hostname, Some(instance_address::Value::Name("node-7".to_owned())), 0, true),
        ]
    );
}

#[test]
fn label_tags_become_node_labels() {
    let tags = json!({ "label/example.com/rack": "r7", "label/plain": "", "rack": "r8", "labels": "none" });
    let labels = machine(&json!({ "tags": tags })).extra_labels;
    let labels: Vec<_> = labels.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    assert_eq!(labels, [("example.com/rack", "r7"), ("plain", "")]);
}

#[test]
fn every_instance_state_is_translated() {
    for (word, wanted) in [
        ("building", InstanceState::Starting),
        ("running", InstanceState::Running),
        ("stopping", InstanceState::Stopping),
        ("stopped", InstanceState::Stopped),
        ("shutting-down", InstanceState::Terminating),
        ("terminated", InstanceState::Terminated),
        ("error", InstanceState::Error),
        ("hibernating", InstanceState::Unknown),
    ] {
        let instance = machine(&json!({ "status": word }));
        assert_eq!((instance.state(), instance.vendor_state.as_str()), (wanted, word));
    }
}

#[test]
fn fingerprint_depends_only_on_node_properties() {
    let before = machine(&json!({})).fingerprint;
    for (change, differs) in [
        (json!({ "created_at": "2026-02-02T00:00:00Z" }), false),
        (json!({ "tags": { "team": "a" } }), false),
        (json!({ "tags": { "label/team": "a" } }), true),
        (json!({ "id": "i-0008" }), true),
        (json!({ "name": "other" }), true),
        (json!({ "status": "stopped" }), true),
        (json!({ "type": "s.large" }), true),
        (json!({ "zone": "sim-1b" }), true),
        (json!({ "region": "sim-2" }), true),
        (json!({ "addresses": [] }), true),
        (json!({ "addresses": [{ "kind": "carrier_pigeon", "address": "coo" }] }), true),
    ] {
        assert_eq!(machine(&change).fingerprint != before, differs, "{change}");
    }
    let unknown = |word| machine(&json!({ "status": word })).fingerprint;
    assert_eq!(unknown("hibernating"), unknown("dreaming"), "not part of a Node");
}

#[test]
fn invalid_addresses_are_omitted() {
    let addresses =
        json!([{ "kind": "internal", "address": "nowhere" }, { "kind": "carrier_pigeon", "address": "coo" }]);
    assert_eq!(machine(&json!({ "addresses": addresses })).addresses, []);
}

fn tree(change: &Value) -> LoadBalancer {
    let listener = |id: &str, status: &str| {
        json!({ "id": id, "name": "", "protocol": "TCP", "port": 80, "idle_timeout": 60, "allowed_cidrs": [], "traffic": {},
                "pool_id": "pool-1", "status": status })
    };
    let mut tree = json!({
        "id": "lb-1", "name": "web", "scheme": "internet", "families": ["ipv6", "ipv4"], "status": "ACTIVE",
        "vips": ["198.18.0.1", "2001:db8::1"], "placement": {}, "tags": {}, "listeners": [listener("ls-1", "ACTIVE")], "pools": [],
        "created_at": "2026-01-01T00:00:00Z",
    });
    if let Some(status) = change.get("listener") {
        tree["listeners"][0]["status"] = status.clone();
    } else {
        tree.as_object_mut().expect("an object").extend(change.as_object().expect("an object").clone());
    }
    load_balancer(serde_json::from_value(tree).expect("readable")).summary
}

#[test]
fn every_load_balancer_status_is_translated() {
    for (change, wanted) in [
        (json!({ "status": "PENDING_CREATE" }), LoadBalancerState::Pending),
        (json!({ "status": "PENDING_UPDATE" }), LoadBalancerState::Pending),
        (json!({ "status": "PENDING_DELETE" }), LoadBalancerState::Deleting),
        (json!({ "status": "ACTIVE" }), LoadBalancerState::Active),
        (json!({ "listener": "ERROR" }), LoadBalancerState::Degraded),
        (json!({ "status": "ERROR" }), LoadBalancerState::Error),
        (json!({ "status": "MOVING" }), LoadBalancerState::Unspecified),
    ] {
        assert_eq!(tree(&change).state(), wanted, "{change}");
    }
}

#[test]
fn addresses_have_the_order_of_requested_families() {
    let summary = tree(&json!({}));
    let addresses: Vec<_> = summary.addresses.iter().map(|address| address.value.clone()).collect();
    let ip = |text: &str| Some(load_balancer_address::Value::Ip(text.to_owned()));
    assert_eq!(addresses, [ip("2001:db8::1"), ip("198.18.0.1")]);
    assert_eq!(summary.addresses[0].ip_mode(), IpMode::Vip);
    assert_eq!((summary.key, summary.owner), (None, None), "no owner");
}

#[test]
fn proxy_protocol_sets_ip_mode_proxy() {
    let pool = json!({ "id": "pool-1", "name": "", "protocol": "PROXY", "algorithm": "round_robin", "persistence": null,
                       "health_monitor": null, "members": [], "status": "ACTIVE" });
    assert_eq!(tree(&json!({ "pools": [pool] })).addresses[0].ip_mode(), IpMode::Proxy);
}

#[test]
fn failed_port_has_an_error() {
    let ports = &tree(&json!({ "listener": "ERROR" })).addresses[0].ports;
    assert_eq!((ports[0].port, ports[0].error.as_deref()), (80, Some(PORT_FAILED)));
}

#[test]
fn parts_have_readable_names() {
    let ids = tree(&json!({})).vendor_ids.expect("set").ids;
    let ids: Vec<_> = ids.iter().map(|(kind, id)| format!("{kind}={id}")).collect();
    assert_eq!(ids, ["listener/tcp/80=ls-1", "loadbalancer=lb-1", "pool/tcp/80=pool-1"]);
}

#[test]
fn a_route_is_known_by_its_tags() {
    let entry = |tags: Value, status: &str| {
        let entry = json!({ "id": "rt-1", "table": "main", "destination": "10.0.1.0/24", "next_hop_instance": "i-1",
                            "next_hop_address": null, "tags": tags, "status": status });
        route(&serde_json::from_value(entry).expect("readable"), "sim-1")
    };
    let tags = json!({ "cloudadapter.dev/cluster-id": "c", "cloudadapter.dev/node-uid": "n" });
    let ours = entry(tags, "active");
    let key = ours.key.expect("ours");
    assert_eq!(
        (key.cluster_id.as_str(), key.node_uid.as_str(), key.destination.as_str()),
        ("c", "n", "10.0.1.0/24")
    );
    assert_eq!(ours.next_hop.expect("set").provider_id, "sim://sim-1/i-1");
    assert_eq!(entry(json!({}), "active").key, None);
    for (word, wanted) in [
        ("active", RouteState::Active),
        ("blackhole", RouteState::Blackhole),
        ("error", RouteState::Blackhole),
        ("dreaming", RouteState::Unspecified),
    ] {
        let entry = entry(json!({}), word);
        assert_eq!(entry.state(), wanted, "{word}");
        let machine = if word == "blackhole" { "" } else { "sim://sim-1/i-1" };
        assert_eq!(entry.next_hop.expect("set").provider_id, machine, "{word}");
    }
}
