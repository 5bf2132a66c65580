//! What the adapter can do, against what a Service asks for: told before anything is called.

use std::collections::BTreeSet;

use cloud_api_proto::v1alpha1::{Capability, capability::Level};

use super::{
    Refusal,
    annotations::{PROXY_PROTOCOL, SCHEME, Scheme, Wishes},
    service::{Service, Traffic, Transport},
};

/// Names of capabilities that a load balancer may need. Source: contract, `Capability`.
pub(crate) mod name {
    pub(crate) const LOAD_BALANCERS: &str = "loadbalancers";
    pub(crate) const INTERNAL: &str = "lb.internal";
    pub(crate) const SOURCE_RANGES: &str = "lb.source-ranges";
    pub(crate) const PROXY_PROTOCOL: &str = "lb.proxy-protocol";
    pub(crate) const HTTP_HEALTH_CHECK: &str = "lb.health-check.http";
    pub(crate) const SESSION_AFFINITY: &str = "lb.session-affinity";
    pub(crate) const UDP: &str = "lb.udp";
    /// Not among the names of the contract: an adapter that can adds it.
    pub(crate) const SCTP: &str = "lb.sctp";
    pub(crate) const MIXED_PROTOCOLS: &str = "lb.mixed-protocols";
    pub(crate) const DUAL_STACK: &str = "lb.dual-stack";
    pub(crate) const RESERVED_IP: &str = "lb.reserved-ip";
}

/// The capabilities of the adapter. A level that we do not know counts as missing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Features(BTreeSet<String>);

impl Features {
    /// Reads the answer of `GetInfo`.
    pub(crate) fn of(capabilities: &[Capability]) -> Self {
        let promised = |it: &&Capability| it.level() != Level::Unspecified;
        Self(capabilities.iter().filter(promised).map(|it| it.name.clone()).collect())
    }

    /// Whether the adapter can do this.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.contains(name)
    }
}

#[cfg(test)]
impl<const N: usize> From<[&str; N]> for Features {
    fn from(names: [&str; N]) -> Self {
        Self(names.iter().map(|&name| name.to_owned()).collect())
    }
}

/// What the Service asks for and the adapter cannot do.
///
/// What Kubernetes can do without the cloud is not refused: session affinity is kept by kube-proxy, and a Service that
/// merely prefers two families gets one.
pub(crate) fn missing(
    service: &Service,
    wishes: &Wishes,
    ranged: Ranged,
    features: &Features,
) -> Vec<Refusal> {
    let transports: BTreeSet<Transport> = service.ports.iter().map(|port| port.transport).collect();
    let needs = [
        (true, name::LOAD_BALANCERS, "spec.type LoadBalancer".to_owned()),
        (transports.contains(&Transport::Udp), name::UDP, port_field(service, Transport::Udp)),
        (transports.contains(&Transport::Sctp), name::SCTP, port_field(service, Transport::Sctp)),
        (transports.len() > 1, name::MIXED_PROTOCOLS, "spec.ports with more than one protocol".to_owned()),
        (wishes.scheme == Scheme::Internal, name::INTERNAL, format!("annotation {SCHEME}")),
        (ranged == Ranged::Some, name::SOURCE_RANGES, "spec.loadBalancerSourceRanges".to_owned()),
        (wishes.proxy_protocol.is_some(), name::PROXY_PROTOCOL, format!("annotation {PROXY_PROTOCOL}")),
        (service.requested_address.is_some(), name::RESERVED_IP, "spec.loadBalancerIP".to_owned()),
        (insists_on_both(service), name::DUAL_STACK, "spec.ipFamilyPolicy RequireDualStack".to_owned()),
        (is_local(service), name::HTTP_HEALTH_CHECK, "spec.externalTrafficPolicy Local".to_owned()),
    ];
    let refused = |capability| format!("the cloud adapter cannot do this (no capability {capability})");
    needs
        .into_iter()
        .filter(|(needed, capability, _)| *needed && !features.has(capability))
        .map(|(_, capability, field)| Refusal::new(field, refused(capability)))
        .collect()
}

/// Whether the source ranges keep anybody out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ranged {
    Nobody,
    Some,
}

fn insists_on_both(service: &Service) -> bool {
    service.families.len() > 1 && service.family_policy == super::service::FamilyPolicy::BothRequired
}

fn is_local(service: &Service) -> bool {
    matches!(service.traffic, Traffic::Local { health_check_node_port: 1.. })
}

fn port_field(service: &Service, transport: Transport) -> String {
    let at = service.ports.iter().position(|port| port.transport == transport).unwrap_or_default();
    format!("spec.ports[{at}].protocol {transport}")
}
