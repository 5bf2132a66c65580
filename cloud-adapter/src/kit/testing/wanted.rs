//! Load balancers to request.

use cloud_api_proto::v1alpha1::{
    Backend, Fence, IpFamily, Listener, LoadBalancerKey, LoadBalancerSpec, Owner, Protocol,
    load_balancer_spec::Scheme,
};

use crate::{
    driver::{DesiredLoadBalancer, Inheritance},
    kit::digest,
};

/// Returns a listener on a TCP port, with a node port.
pub fn tcp(port: u32) -> Listener {
    let node_port = Some(30_000 + port % 1000);
    Listener { protocol: Protocol::Tcp.into(), port, node_port, ..Listener::default() }
}

/// Returns a listener on a UDP port, with a node port.
pub fn udp(port: u32) -> Listener {
    Listener { protocol: Protocol::Udp.into(), ..tcp(port) }
}

/// Returns the node `node-n`, with an address of each IP family.
pub fn backend(provider_id: String, n: u8) -> Backend {
    Backend {
        provider_id,
        node_name: format!("node-{n}"),
        addresses: vec![format!("10.0.0.{n}"), format!("fd00::{n}")],
        ..Backend::default()
    }
}

/// Returns the specification of a load balancer with IPv4.
pub fn spec(scheme: Scheme, listeners: impl Into<Vec<Listener>>) -> LoadBalancerSpec {
    LoadBalancerSpec {
        scheme: scheme.into(),
        ip_families: vec![IpFamily::Ipv4.into()],
        listeners: listeners.into(),
        ..LoadBalancerSpec::default()
    }
}

/// Returns the load balancer of the Service `shop/web` of the cluster `c-1`.
pub fn web(spec: LoadBalancerSpec, backends: impl IntoIterator<Item = Backend>) -> DesiredLoadBalancer {
    let [kind, namespace, name, uid] = ["Service", "shop", "web", "u-1"].map(str::to_owned);
    hashed(DesiredLoadBalancer {
        key: LoadBalancerKey { cluster_id: "c-1".to_owned(), owner_uid: uid.clone() },
        owner: Owner { kind, namespace, name, uid },
        cluster_name: "prod".to_owned(),
        inheritance: Inheritance::ByName,
        spec,
        backends: backends.into_iter().collect(),
        hash: String::new(),
    })
}

/// Sets the hash, which depends on the specification as in the runtime.
pub fn hashed(mut desired: DesiredLoadBalancer) -> DesiredLoadBalancer {
    desired.hash = format!("1-{}", digest(&[&format!("{:?}", desired.spec)]));
    desired
}

/// Changes the specification.
pub fn with(
    mut desired: DesiredLoadBalancer,
    change: impl FnOnce(&mut LoadBalancerSpec),
) -> DesiredLoadBalancer {
    change(&mut desired.spec);
    hashed(desired)
}

/// Returns the fence of the only writer.
pub fn writer() -> Fence {
    Fence { scope: "service-controller/0".to_owned(), epoch: 1, sequence: 1 }
}
