//! Load balancers to request. Calls read as a sentence: `web().listeners([tcp(80)])`.

use cloud_api_proto::v1alpha1::{
    Backend, IpFamily, Listener, LoadBalancerKey, LoadBalancerSpec, Owner, Protocol,
    load_balancer_spec::Scheme,
};

/// The cluster of all tests.
pub(crate) const CLUSTER: &str = "c-1";

pub(crate) fn key(uid: &str) -> LoadBalancerKey {
    LoadBalancerKey { cluster_id: CLUSTER.into(), owner_uid: uid.into() }
}

/// The Service `shop/<uid>`.
pub(crate) fn owner(uid: &str) -> Owner {
    Owner { kind: "Service".into(), namespace: "shop".into(), name: uid.into(), uid: uid.into() }
}

pub(crate) fn tcp(port: u32) -> Listener {
    Listener {
        protocol: Protocol::Tcp.into(),
        port,
        node_port: Some(30_000 + port % 1000),
        ..Listener::default()
    }
}

pub(crate) fn udp(port: u32) -> Listener {
    Listener { protocol: Protocol::Udp.into(), ..tcp(port) }
}

/// A public load balancer with IPv4.
pub(crate) fn spec(listeners: impl Into<Vec<Listener>>) -> LoadBalancerSpec {
    LoadBalancerSpec {
        scheme: Scheme::Internet.into(),
        ip_families: vec![IpFamily::Ipv4.into()],
        listeners: listeners.into(),
        ..LoadBalancerSpec::default()
    }
}

/// The instance `i-000n`, with an address of each family.
pub(crate) fn backend(n: u8) -> Backend {
    Backend {
        provider_id: format!("sim://sim-1/i-000{n}"),
        node_name: format!("node-{n}"),
        addresses: vec![format!("10.0.0.{n}"), format!("fd00::{n}")],
        ..Backend::default()
    }
}
