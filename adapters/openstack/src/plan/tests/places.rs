//! Tests of subnets, addresses and zones of a load balancer and its members.

use super::*;

#[test]
fn service_settings_take_precedence_over_flags() {
    let mut bench = Bench::new();
    bench.options.network_id = Some("net".to_owned());
    let desired = with(web([tcp(80)]), |spec| {
        spec.ip_families = [contract::IpFamily::Ipv6, contract::IpFamily::Ipv4].map(i32::from).into();
        spec.subnets = vec!["subnet-6".into(), "subnet-44".into()];
        (spec.size, spec.zone) = ("big".into(), "north".into());
    });
    let (record, _) = bench.settled(&desired);
    let balancer = record.detail.balancer.expect("there");
    assert_eq!(balancer.vip_subnet_id.as_deref(), Some("subnet-6"));
    assert_eq!(balancer.additional_vips[0].subnet_id.as_deref(), Some("subnet-44"));
    assert_eq!(
        (balancer.flavor_id.as_deref(), balancer.availability_zone.as_deref()),
        (Some("big"), Some("north"))
    );
    assert_eq!(bench.plan(&desired), Ok(vec![]));
}

/// A Service needs the operator's permission (a grant) to get an object, but not to keep it.
#[test]
fn objects_in_use_are_reported() {
    let mut bench = Bench::new();
    let desired = with(public([tcp(443)]), |spec| {
        spec.subnets = vec!["subnet-44".into()];
        spec.listeners[0].tls_refs = vec!["cert-1".into()];
        spec.address_pool = "dmz".into();
    });
    bench.settled(&desired);
    let hers = json!({ "name": "hers", "protocol": "TERMINATED_HTTPS", "protocol_port": 9443, "default_tls_container_ref": "cert-2" });
    bench.create_listener("lb-1", None, &hers);
    let uses = crate::load_balancers::uses(&desired.adopter(), &bench.seen(&desired).expect("there"));
    for name in ["subnet-44", "cert-1", "dmz"] {
        assert!(uses.contains(name), "{name}: {uses:?}");
    }
    assert!(!uses.contains("cert-2"), "a user's listener: {uses:?}");
}

#[test]
fn dual_stack_has_an_address_for_each_family() {
    let both = |listener| {
        with(web([listener]), |spec| {
            spec.ip_families = [contract::IpFamily::Ipv6, contract::IpFamily::Ipv4].map(i32::from).into();
        })
    };
    let (record, _) = Bench::new().settled(&both(tcp(80)));
    assert_eq!(addresses(&record), ["fd00::9", "10.0.0.9"]);
    assert_eq!(members(&record).len(), 2, "a proxy needs one member for each node");
    let (record, _) = Bench::new().settled(&both(udp(53)));
    assert_eq!(members(&record).len(), 4);
}

#[test]
fn replacement_requests_the_former_addresses() {
    let both = |spec: &mut LoadBalancerSpec| {
        spec.ip_families = [contract::IpFamily::Ipv4, contract::IpFamily::Ipv6].map(i32::from).into();
    };
    let dual = with(web([tcp(80)]), both);
    let elsewhere = with(dual.clone(), |spec| spec.subnets = vec!["other".into()]);
    let given = with(dual.clone(), |spec| spec.requested_addresses = vec!["10.0.0.77".into()]);
    let network = with(web([tcp(80)]), parameter("network-id", "net"));
    for (what, first, second, wanted) in [
        ("in the same subnets", &dual, &dual, &["10.0.0.9", "fd00::9"][..]),
        ("in another subnet", &dual, &elsewhere, &["10.0.0.10", "fd00::9"]),
        ("requested", &dual, &given, &["10.0.0.77", "fd00::9"]),
        ("in a network", &network, &network, &["10.0.0.9"]),
    ] {
        let mut bench = Bench::new();
        let (former, _) = bench.settled(first);
        bench.deleted();
        bench.next_address = 10;
        assert_eq!(addresses(&bench.again(second, &former)), wanted, "{what}");
    }
    let mut bench = Bench::new();
    let (mut former, _) = bench.settled(&dual);
    bench.deleted();
    bench.next_address = 10;
    let balancer = former.detail.balancer.as_mut().expect("there");
    (balancer.vip_address, balancer.additional_vips) = (None, Vec::new());
    assert_eq!(addresses(&bench.again(&dual, &former)), ["10.0.0.10", "fd00::10"], "it never had an address");
    bench.deleted();
    let balancer = former.detail.balancer.as_mut().expect("there");
    let six = json!([{ "ip_address": "fd00::f816:3eff:fefa:5aec", "subnet_id": "subnet-6" }]);
    balancer.additional_vips = serde_json::from_value(six).expect("an address");
    assert_eq!(
        addresses(&bench.again(&dual, &former)),
        ["10.0.0.10", "fd00::10"],
        "the address is derived from a MAC address"
    );
}
