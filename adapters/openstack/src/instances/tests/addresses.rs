//! These tests check the addresses and their sequence.

use super::*;

fn networking(change: impl FnOnce(&mut Networking)) -> Networking {
    let mut networking = Networking::default();
    change(&mut networking);
    networking
}

fn reported(ports: &[Value], networking: &Networking) -> Vec<String> {
    shown(&read(server(), ports, networking, Form::Plain))
}

/// Returns ports in the sequence that Neutron returns. This sequence differs from that of the networks' names.
fn ports() -> [Value; 3] {
    [
        port(ID, "ACTIVE", &["10.9.0.7"]),
        port(ID, "ACTIVE", &["10.0.0.5", "fd00::5"]),
        port(ID, "DOWN", &["10.8.0.1"]),
    ]
}

#[test]
fn active_ports_come_first_then_networks_by_name() {
    let none = networking(|_| ());
    assert_eq!(
        reported(&ports(), &none),
        [
            "INTERNAL_IP 10.9.0.7",
            "INTERNAL_IP 10.0.0.5",
            "INTERNAL_IP fd00::5",
            "HOSTNAME worker-1.example",
            "EXTERNAL_IP 203.0.113.9"
        ]
    );
    assert_eq!(
        reported(&[], &none),
        [
            "HOSTNAME worker-1.example",
            "INTERNAL_IP 10.0.0.5",
            "INTERNAL_IP fd00::5",
            "EXTERNAL_IP 203.0.113.9",
            "INTERNAL_IP 10.9.0.7"
        ],
        "all addresses without ports"
    );
}

#[test]
fn access_addresses_are_external() {
    let access = with(
        json!({ "accessIPv4": "198.51.100.1", "accessIPv6": "2001:DB8::1", "addresses": {}, "metadata": {} }),
    );
    let machine = read(access, &ports(), &networking(|_| ()), Form::Plain);
    assert_eq!(
        shown(&machine),
        [
            "INTERNAL_IP 10.9.0.7",
            "INTERNAL_IP 10.0.0.5",
            "INTERNAL_IP fd00::5",
            "EXTERNAL_IP 198.51.100.1",
            "EXTERNAL_IP 2001:db8::1"
        ]
    );
}

#[test]
fn addresses_in_a_public_network_are_only_external() {
    let public = networking(|it| it.public = vec!["storage".to_owned()]);
    assert_eq!(
        reported(&ports(), &public),
        [
            "INTERNAL_IP 10.0.0.5",
            "INTERNAL_IP fd00::5",
            "HOSTNAME worker-1.example",
            "EXTERNAL_IP 203.0.113.9",
            "EXTERNAL_IP 10.9.0.7"
        ]
    );
}

#[test]
fn other_networks_are_left_out_if_internal_ones_are_set() {
    let internal = networking(|it| it.internal = vec!["nodes".to_owned()]);
    assert_eq!(
        reported(&ports(), &internal),
        [
            "INTERNAL_IP 10.0.0.5",
            "INTERNAL_IP fd00::5",
            "HOSTNAME worker-1.example",
            "EXTERNAL_IP 203.0.113.9"
        ],
        "floating IPs are external in any network"
    );
}

/// If no networks are configured, the first address depends on which port is up. The former cloud controller manager behaves in the same
/// way.
#[test]
fn port_status_changes_no_order_if_networks_are_set() {
    let downs = |at: usize| {
        let mut ports = ports();
        ports[at]["status"] = "DOWN".into();
        ports
    };
    let (storage, nodes) = (downs(0), downs(1));
    let none = networking(|_| ());
    assert_ne!(
        reported(&storage, &none),
        reported(&ports(), &none),
        "the configuration does not name the first network"
    );
    let internal = networking(|it| it.internal = vec!["nodes".to_owned()]);
    assert_eq!(reported(&storage, &internal), reported(&ports(), &internal));
    let sorted = networking(|it| {
        it.sort_order =
            ["10.0.0.0/16", "fd00::/8", "10.9.0.0/16"].map(|net| net.parse().expect("a net")).into();
    });
    for down in [&storage, &nodes] {
        assert_eq!(reported(down, &sorted), reported(&ports(), &sorted));
    }
}

#[test]
fn addresses_in_the_sort_order_come_first() {
    let sorted = networking(|it| {
        it.sort_order = ["fd00::/8", "10.0.0.0/16"].map(|net| net.parse().expect("a net")).into();
    });
    assert_eq!(
        reported(&ports(), &sorted),
        [
            "INTERNAL_IP fd00::5",
            "INTERNAL_IP 10.0.0.5",
            "INTERNAL_IP 10.9.0.7",
            "HOSTNAME worker-1.example",
            "EXTERNAL_IP 203.0.113.9"
        ]
    );
}

#[test]
fn ipv6_can_be_disabled() {
    let old = networking(|it| it.ipv6 = Ipv6::LeftOut);
    assert!(
        reported(&ports(), &old).iter().all(|one| !one.contains("fd00")),
        "{:?}",
        reported(&ports(), &old)
    );
}

#[test]
fn each_address_has_family_network_and_rank() {
    let machine = read(server(), &ports(), &networking(|_| ()), Form::Plain);
    let reported: Vec<_> =
        machine.addresses.iter().map(|one| (one.family, one.network.as_str(), one.primary)).collect();
    assert_eq!(
        reported,
        [(4, "storage", true), (4, "nodes", false), (6, "nodes", true), (0, "", true), (4, "nodes", true)]
    );
}
