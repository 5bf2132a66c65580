//! These tests cover each field that needs a capability, on clouds with no capability, with one capability, or with one value of a
//! capability.

use std::{collections::BTreeMap, time::Duration};

use cloud_api_proto::v1alpha1::{
    Capability, IpFamily, Listener, Protocol, health_check,
    listener::{Algorithm, Application, ProxyProtocol, TargetKind},
    load_balancer_spec::{AddressRetention, Scheme},
    session_affinity,
};

use super::*;
use crate::driver::{Driver as _, testing::WriteOnly};

type Change = fn(&mut LoadBalancerSpec);

/// Each row contains a capability, the field that is refused without it, and the request. `tls_refs` need an application protocol, which is
/// refused first.
const ROWS: [(&str, &str, Change); 24] = [
    ("lb.internal", "spec.scheme", |spec| spec.set_scheme(Scheme::Internal)),
    ("lb.source-ranges", "spec.source_ranges", |spec| spec.source_ranges.push("10.0.0.0/8".into())),
    ("lb.health-check.http", "spec.health_check", |spec| {
        spec.health_check.get_or_insert_default().set_kind(health_check::Kind::Http);
    }),
    ("lb.session-affinity", "spec.session_affinity", |spec| {
        spec.session_affinity.get_or_insert_default().set_kind(session_affinity::Kind::ClientIp);
    }),
    ("lb.dual-stack", "spec.ip_families", |spec| spec.ip_families.push(IpFamily::Ipv6.into())),
    ("lb.reserved-ip", "spec.requested_addresses", |spec| {
        spec.requested_addresses.push("192.0.2.1".into());
    }),
    ("lb.address-pool", "spec.address_pool", |spec| spec.address_pool = "public".into()),
    ("lb.subnets", "spec.subnets", |spec| spec.subnets.push("subnet-1".into())),
    ("lb.size", "spec.size", |spec| spec.size = "large".into()),
    ("lb.zone", "spec.zone", |spec| spec.zone = "z1".into()),
    ("lb.name", "spec.name", |spec| spec.name = "web".into()),
    ("lb.shared", "spec.load_balancer_id", |spec| spec.load_balancer_id = "lb-1".into()),
    ("lb.shared", "spec.shared_with", |spec| spec.shared_with.push("mail".into())),
    ("lb.keep-address", "spec.address_retention", |spec| spec.set_address_retention(AddressRetention::Keep)),
    ("lb.udp", "spec.listeners.protocol", |spec| spec.listeners[0].set_protocol(Protocol::Udp)),
    ("lb.sctp", "spec.listeners.protocol", |spec| spec.listeners[0].set_protocol(Protocol::Sctp)),
    ("lb.node-direct", "spec.listeners.target_kind", |spec| {
        spec.listeners[0].set_target_kind(TargetKind::NodeDirect);
    }),
    ("lb.tls", "spec.listeners.tls_refs", |spec| spec.listeners[0].tls_refs.push("cert".into())),
    ("lb.connect-timeout", "spec.listeners.connect_timeout", |spec| {
        spec.listeners[0].connect_timeout = Duration::from_secs(5).try_into().ok();
    }),
    ("lb.connection-limit", "spec.listeners.connection_limit", |spec| {
        spec.listeners[0].connection_limit = Some(9);
    }),
    ("lb.proxy-protocol", "spec.listeners.proxy_protocol", |spec| {
        spec.listeners[0].set_proxy_protocol(ProxyProtocol::V2);
    }),
    ("lb.algorithm", "spec.listeners.algorithm", |spec| {
        spec.listeners[0].set_algorithm(Algorithm::SourceIp);
    }),
    ("lb.listener-protocol", "spec.listeners.application", |spec| {
        spec.listeners[0].set_application(Application::Http);
    }),
    ("lb.mixed-protocols", "spec.listeners.protocol", |spec| {
        // Unknown protocols are refused earlier; here an unknown protocol only serves as a different value.
        spec.listeners.push(Listener::default());
    }),
];

fn spec() -> LoadBalancerSpec {
    let listener = Listener { protocol: Protocol::Tcp.into(), port: 80, ..Listener::default() };
    LoadBalancerSpec {
        ip_families: vec![IpFamily::Ipv4.into()],
        listeners: vec![listener],
        ..LoadBalancerSpec::default()
    }
}

fn changed(change: Change) -> LoadBalancerSpec {
    let mut spec = spec();
    change(&mut spec);
    spec
}

/// Returns a cloud with these capabilities and their values. A capability without values supports all values.
fn cloud(capabilities: &[(&str, &str)]) -> Description {
    let capability = |&(name, values): &(&str, &str)| Capability {
        name: name.to_owned(),
        attributes: [("values".to_owned(), values.to_owned())]
            .into_iter()
            .filter(|(_, values)| !values.is_empty())
            .collect::<BTreeMap<_, _>>(),
        ..Capability::default()
    };
    Description { capabilities: capabilities.iter().map(capability).collect(), ..WriteOnly.describe() }
}

#[test]
fn a_plain_specification_needs_nothing() {
    assert_eq!(check(&spec(), &cloud(&[])), Ok(()));
    let mut explicit = spec();
    explicit.listeners[0].set_application(Application::Pass);
    explicit.listeners[0].set_proxy_protocol(ProxyProtocol::Off);
    explicit.set_address_retention(AddressRetention::Release);
    explicit.set_scheme(Scheme::Internet);
    assert_eq!(check(&explicit, &cloud(&[])), Ok(()));
}

#[test]
fn missing_capability_is_refused_by_name() {
    for (capability, field, change) in ROWS {
        let spec = changed(change);
        let error = check(&spec, &cloud(&[])).expect_err(capability);
        assert_eq!(error.reason, Reason::UnsupportedFeature, "{capability}");
        assert_eq!(error.metadata["field"], field);
        assert_eq!(error.metadata["capability"], capability);
        assert_eq!(check(&spec, &cloud(&[(capability, "")])), Ok(()), "{capability}");
    }
}

#[test]
fn only_listed_values_of_a_choice_are_accepted() {
    let some = cloud(&[("lb.algorithm", "round-robin,source-ip"), ("lb.proxy-protocol", "v2")]);
    let mut wanted = changed(|spec| spec.listeners[0].set_algorithm(Algorithm::SourceIp));
    wanted.listeners[0].set_proxy_protocol(ProxyProtocol::V2);
    assert_eq!(check(&wanted, &some), Ok(()));
    wanted.listeners[0].set_algorithm(Algorithm::LeastConnections);
    let error = check(&wanted, &some).expect_err("not supported");
    let text = "spec.listeners.algorithm: the lb.algorithm of this cloud supports round-robin,source-ip, but not least-connections";
    assert_eq!(error.message, text);
    wanted.listeners[0].set_algorithm(Algorithm::SourceIpPort);
    check(&wanted, &some).expect_err("a longer word is a different value");
}

/// A hint that the adapter does not use is removed. The hint is neither passed to the driver, nor hashed, nor refused.
// Behaviour: SF4
#[test]
fn app_protocol_is_removed_unless_supported() {
    let said = || changed(|spec| spec.listeners[0].app_protocol = "kubernetes.io/h2c".into());
    for (capabilities, left) in [(vec![], ""), (vec![("lb.app-protocol", "")], "kubernetes.io/h2c")] {
        let (mut spec, cloud) = (said(), cloud(&capabilities));
        assert_eq!(check(&spec, &cloud), Ok(()));
        forget_unread(&mut spec, &cloud);
        assert_eq!(spec.listeners[0].app_protocol, left);
        assert_eq!(spec == self::spec(), left.is_empty(), "nothing else is removed");
    }
}
