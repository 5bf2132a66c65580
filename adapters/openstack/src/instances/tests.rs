//! Tests of instances that are built from answers of Nova and Neutron.

mod addresses;
mod sweep;

use cloud_api_proto::v1alpha1::{Instance, InstanceState, instance_address::Value as Text};
use serde_json::{Value, json};

use super::*;
use crate::provider_id::Form;

const ID: &str = "7e0c9a52-4f0b-4a3e-9f6e-0c1f5b6f7a11";

/// Returns a server in the format of Nova 34 at version 2.47. The server is in two networks and has a floating IP.
fn server() -> Value {
    json!({
        "id": ID,
        "name": "worker-1",
        "status": "ACTIVE",
        "tenant_id": "0f3a6b1c5d7e4f209a8b7c6d5e4f3a2b",
        "user_id": "1d2c",
        "metadata": { "hostname": "worker-1.example" },
        "hostId": "9f8e",
        "image": { "id": "b1", "links": [] },
        "flavor": { "vcpus": 2, "ram": 4096, "disk": 20, "ephemeral": 0, "swap": 0, "original_name": "m1 small (old)", "extra_specs": {} },
        "created": "2026-11-21T08:00:00Z",
        "updated": "2026-11-21T08:00:20Z",
        "addresses": {
            "storage": [
                { "version": 4, "addr": "10.9.0.7", "OS-EXT-IPS:type": "fixed", "OS-EXT-IPS-MAC:mac_addr": "fa:16:3e:00:00:02" },
            ],
            "nodes": [
                { "version": 4, "addr": "10.0.0.5", "OS-EXT-IPS:type": "fixed", "OS-EXT-IPS-MAC:mac_addr": "fa:16:3e:00:00:01" },
                { "version": 6, "addr": "fd00:0::0005", "OS-EXT-IPS:type": "fixed", "OS-EXT-IPS-MAC:mac_addr": "fa:16:3e:00:00:01" },
                { "version": 4, "addr": "203.0.113.9", "OS-EXT-IPS:type": "floating", "OS-EXT-IPS-MAC:mac_addr": "fa:16:3e:00:00:01" },
            ],
        },
        "accessIPv4": "",
        "accessIPv6": "",
        "links": [],
        "OS-DCF:diskConfig": "MANUAL",
        "progress": 0,
        "OS-EXT-AZ:availability_zone": "zone a",
        "config_drive": "",
        "key_name": null,
        "OS-SRV-USG:launched_at": "2026-11-21T08:00:20.000000",
        "OS-SRV-USG:terminated_at": null,
        "security_groups": [{ "name": "default" }],
        "OS-EXT-STS:task_state": null,
        "OS-EXT-STS:vm_state": "active",
        "OS-EXT-STS:power_state": 1,
        "os-extended-volumes:volumes_attached": [],
    })
}

fn port(device: &str, status: &str, ips: &[&str]) -> Value {
    let fixed: Vec<Value> = ips.iter().map(|ip| json!({ "subnet_id": "s1", "ip_address": ip })).collect();
    json!({
        "id": format!("port-of-{device}-{}", ips.join("+")),
        "project_id": crate::testing::PROJECT,
        "device_id": device,
        "status": status,
        "fixed_ips": fixed,
    })
}

fn with(changes: Value) -> Value {
    let mut server = server();
    let Value::Object(changes) = changes else { panic!("no section") };
    for (key, value) in changes {
        server[key] = value;
    }
    server
}

fn read(server: Value, ports: &[Value], networking: &Networking, form: Form) -> Instance {
    let server: Server = serde_json::from_value(server).expect("a server");
    let ports: Vec<Port> =
        ports.iter().map(|port| serde_json::from_value(port.clone()).expect("a port")).collect();
    let place = Shared { region: "RegionOne", networking, form };
    server::instance(&server, &ports.iter().collect::<Vec<_>>(), &place)
}

fn plain(server: Value) -> Instance {
    read(server, &[], &Networking::default(), Form::Plain)
}

#[test]
fn server_becomes_an_instance() {
    let machine = plain(server());
    assert_eq!(machine.provider_id, format!("openstack:///{ID}"));
    assert_eq!((machine.name.as_str(), machine.state()), ("worker-1", InstanceState::Running));
    assert_eq!(
        (machine.instance_type.as_str(), machine.zone.as_str()),
        ("m1-small-old", "zone-a"),
        "valid label values"
    );
    assert_eq!((machine.region.as_str(), machine.vendor_state.as_str()), ("RegionOne", "ACTIVE"));
    assert_eq!(machine.created_at.expect("a time").to_string(), "2026-11-21T08:00:00Z");
    let regional = read(server(), &[], &Networking::default(), Form::Regional);
    assert_eq!(regional.provider_id, format!("openstack://RegionOne/{ID}"));
}

#[test]
fn each_status_has_its_state() {
    for (status, task, power, wanted) in [
        ("ACTIVE", Value::Null, 1, InstanceState::Running),
        ("ACTIVE", Value::Null, 4, InstanceState::Stopped),
        ("ACTIVE", json!("deleting"), 1, InstanceState::Terminating),
        ("SHUTOFF", Value::Null, 4, InstanceState::Stopped),
        ("BUILD", json!("spawning"), 0, InstanceState::Starting),
        ("REBOOT", json!("rebooting"), 1, InstanceState::Running),
        ("VERIFY_RESIZE", Value::Null, 1, InstanceState::Running),
        ("PAUSED", Value::Null, 3, InstanceState::Stopping),
        ("SHELVED_OFFLOADED", Value::Null, 4, InstanceState::Stopping),
        ("ERROR", Value::Null, 0, InstanceState::Error),
        ("DELETED", Value::Null, 0, InstanceState::Terminated),
        ("SOFT_DELETED", Value::Null, 0, InstanceState::Terminated),
        ("UNKNOWN", Value::Null, 0, InstanceState::Unknown),
        ("NEWFANGLED", Value::Null, 1, InstanceState::Unknown),
    ] {
        let power =
            json!({ "status": status, "OS-EXT-STS:task_state": task, "OS-EXT-STS:power_state": power });
        assert_eq!(plain(with(power)).state(), wanted, "{status}");
    }
}

#[test]
fn missing_fields_of_an_old_nova_are_tolerated() {
    let machine = plain(
        json!({ "id": ID, "status": "BUILD", "name": "n", "accessIPv4": null, "OS-EXT-AZ:availability_zone": null }),
    );
    assert_eq!((machine.name.as_str(), machine.zone.as_str(), machine.addresses.len()), ("n", "", 0));
}

#[test]
fn fingerprint_covers_only_fields_of_a_node() {
    let before = plain(server()).fingerprint;
    for harmless in [
        json!({ "updated": "2026-11-22T08:00:00Z" }),
        json!({ "status": "REBOOT" }),
        json!({ "metadata": { "hostname": "worker-1.example", "note": "x" } }),
    ] {
        assert_eq!(plain(with(harmless.clone())).fingerprint, before, "{harmless}");
    }
    for change in [
        json!({ "name": "worker-2" }),
        json!({ "status": "SHUTOFF" }),
        json!({ "accessIPv4": "198.51.100.1" }),
        json!({ "flavor": { "original_name": "m1.large" } }),
        json!({ "OS-EXT-AZ:availability_zone": "zone b" }),
    ] {
        assert_ne!(plain(with(change.clone())).fingerprint, before, "{change}");
    }
}

/// Formats an address, such as `InternalIP 10.0.0.5`.
fn shown(machine: &Instance) -> Vec<String> {
    let line = |address: &cloud_api_proto::v1alpha1::InstanceAddress| {
        let text = match address.value.as_ref().expect("a value") {
            Text::Ip(text) | Text::Name(text) => text,
        };
        let kind = address.r#type().as_str_name().trim_start_matches("TYPE_");
        format!("{kind} {text}")
    };
    machine.addresses.iter().map(line).collect()
}
