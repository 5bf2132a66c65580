//! Builds requests for load balancers. The calls read like a sentence: `web().listeners([tcp(80)])`.

use cloud_adapter::kit::testing;
pub(crate) use cloud_adapter::kit::testing::{tcp, udp};
use cloud_api_proto::v1alpha1::{
    Backend, DeleteLoadBalancerRequest, Listener, LoadBalancerKey, LoadBalancerSpec, Owner,
    load_balancer_spec::Scheme,
};

use super::{context, fence};

pub(crate) const CLUSTER: &str = "c-1";

pub(crate) fn key(uid: &str) -> LoadBalancerKey {
    LoadBalancerKey { cluster_id: CLUSTER.into(), owner_uid: uid.into() }
}

pub(crate) fn owner(uid: &str) -> Owner {
    Owner { kind: "Service".into(), namespace: "shop".into(), name: uid.into(), uid: uid.into() }
}

/// Returns the specification of a public load balancer with IPv4.
pub(crate) fn spec(listeners: impl Into<Vec<Listener>>) -> LoadBalancerSpec {
    testing::spec(Scheme::Internet, listeners)
}

/// Returns the instance `i-000n` as a backend, with an address of each IP family.
pub(crate) fn backend(n: u8) -> Backend {
    testing::backend(format!("sim://sim-1/i-000{n}"), n)
}

pub(crate) fn deletion(uid: &str) -> DeleteLoadBalancerRequest {
    DeleteLoadBalancerRequest {
        context: Some(context()),
        key: Some(key(uid)),
        owner: Some(owner(uid)),
        fence: Some(fence(1, 1)),
        ..DeleteLoadBalancerRequest::default()
    }
}
