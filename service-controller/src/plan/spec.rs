//! What a load balancer shall be: a pure function of the Service, the targets and what the adapter can do.

use std::{collections::BTreeSet, net::IpAddr};

use cloud_api_proto::v1alpha1::{
    HealthCheck, IpFamily, Listener, LoadBalancerSpec, Protocol, SessionAffinity, health_check,
    listener::{ProxyProtocol as Header, TargetKind},
    load_balancer_spec as contract, session_affinity,
};
use ipnet::IpNet;
use prost::Message as _;
use sha2::{Digest as _, Sha256};

use super::{
    Refusal,
    annotations::{PROXY_PROTOCOL, ProxyProtocol, Scheme, Wishes, wishes},
    features::{self, Features, Ranged},
    requested_address::{of_no_family, requested_address},
    service::{Affinity, Family, NodePorts, Port, Service, Traffic, Transport},
    source_ranges::{open_to_all, source_ranges},
    targets::short,
};

/// Where kube-proxy and its replacements answer whether a node has an endpoint of the Service.
const LOCAL_HEALTH_PATH: &str = "/healthz";

/// A Service whose fields and annotations make sense, whatever the adapter can do.
#[derive(Clone, Debug)]
pub(crate) struct Checked<'a> {
    service: &'a Service,
    wishes: Wishes,
    /// Empty: everybody.
    ranges: BTreeSet<IpNet>,
    address: Option<IpAddr>,
}

impl<'a> Checked<'a> {
    /// Judges the Service by itself.
    ///
    /// # Errors
    /// Every fault at once, each with its field or annotation and the repair.
    pub(crate) fn new(service: &'a Service) -> Result<Self, Vec<Refusal>> {
        let mut refusals = bad_ports(service);
        let wishes = wishes(service).unwrap_or_else(|faults| {
            refusals.extend(faults);
            Wishes::default()
        });
        let mut ranges = source_ranges(service).unwrap_or_else(|fault| {
            refusals.push(fault);
            BTreeSet::new()
        });
        let address = requested_address(service).unwrap_or_else(|fault| {
            refusals.push(fault);
            None
        });
        if wishes.proxy_protocol.is_some() && !has_tcp(service) {
            let why = "only TCP ports can carry it and there is none: remove the annotation";
            refusals.push(Refusal::new(format!("annotation {PROXY_PROTOCOL}"), why));
        }
        if !refusals.is_empty() {
            return Err(refusals);
        }
        if open_to_all(&ranges, &service.families) {
            ranges.clear();
        }
        Ok(Self { service, wishes, ranges, address })
    }

    /// The load balancer that an adapter with these features can make of it.
    ///
    /// # Errors
    /// Every feature that is asked for and missing, and an address of a family that goes without.
    pub(crate) fn shape(&self, features: &Features) -> Result<Shape, Vec<Refusal>> {
        let ranged = if self.ranges.is_empty() { Ranged::Nobody } else { Ranged::Some };
        let mut refusals = features::missing(self.service, &self.wishes, ranged, features);
        let families = self.families(features);
        let strange = |address| of_no_family(address, families, "the cloud adapter can give this Service");
        refusals.extend(self.address.and_then(strange));
        if !refusals.is_empty() {
            return Err(refusals);
        }
        let spec = LoadBalancerSpec {
            class: None,
            scheme: self.scheme().into(),
            ip_families: families.iter().map(family).collect(),
            requested_addresses: self.address.iter().map(ToString::to_string).collect(),
            listeners: self.service.ports.iter().map(|port| self.listener(port)).collect(),
            backend_set_id: String::new(),
            health_check: health_check(self.service),
            source_ranges: self.ranges.iter().map(ToString::to_string).collect(),
            session_affinity: affinity(self.service.affinity, features),
            traffic_policy: match self.service.traffic {
                Traffic::Cluster => contract::TrafficPolicy::Cluster,
                Traffic::Local { .. } => contract::TrafficPolicy::Local,
            }
            .into(),
            ..LoadBalancerSpec::default()
        };
        Ok(Shape { digest: short(&Sha256::digest(spec.encode_to_vec())), spec })
    }

    fn scheme(&self) -> contract::Scheme {
        match self.wishes.scheme {
            Scheme::Internet => contract::Scheme::Internet,
            Scheme::Internal => contract::Scheme::Internal,
        }
    }

    /// Those that the load balancer gets, in the Service's order.
    fn families(&self, features: &Features) -> &'a [Family] {
        let all = self.service.families.as_slice();
        match all.first_chunk::<1>() {
            Some(first) if !features.has(features::name::DUAL_STACK) => first,
            Some(_) | None => all,
        }
    }

    fn listener(&self, port: &Port) -> Listener {
        let header = match (port.transport, self.wishes.proxy_protocol) {
            (Transport::Tcp, Some(ProxyProtocol::V1)) => Header::V1,
            (Transport::Tcp, Some(ProxyProtocol::V2)) => Header::V2,
            (Transport::Tcp, None) | (Transport::Udp | Transport::Sctp, _) => Header::Off,
        };
        Listener {
            name: port.name.clone(),
            protocol: protocol(port.transport).into(),
            port: port.port.into(),
            node_port: Some(port.node_port.into()),
            target_kind: TargetKind::NodePort.into(),
            // At most 24 h, so the conversion cannot fail.
            idle_timeout: self.wishes.idle_timeout.and_then(|it| it.try_into().ok()),
            proxy_protocol: header.into(),
            ..Listener::default()
        }
    }
}

/// A load balancer but for its backends, which all Services share.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Shape {
    spec: LoadBalancerSpec,
    /// Equal shapes have equal digests.
    pub(crate) digest: String,
}

impl Shape {
    /// The whole specification, with the backends of one set.
    pub(crate) fn with_targets(&self, backend_set_id: &str) -> LoadBalancerSpec {
        LoadBalancerSpec { backend_set_id: backend_set_id.to_owned(), ..self.spec.clone() }
    }
}

/// The contract's word for a transport.
pub(crate) fn protocol(transport: Transport) -> Protocol {
    match transport {
        Transport::Tcp => Protocol::Tcp,
        Transport::Udp => Protocol::Udp,
        Transport::Sctp => Protocol::Sctp,
    }
}

fn family(family: &Family) -> i32 {
    match family {
        Family::V4 => IpFamily::Ipv4.into(),
        Family::V6 => IpFamily::Ipv6.into(),
    }
}

fn has_tcp(service: &Service) -> bool {
    service.ports.iter().any(|port| port.transport == Transport::Tcp)
}

fn bad_ports(service: &Service) -> Vec<Refusal> {
    if service.ports.is_empty() {
        return vec![Refusal::new("spec.ports", "a load balancer needs at least one port")];
    }
    let without: Vec<usize> =
        service.ports.iter().enumerate().filter(|(_, port)| port.node_port == 0).map(|(at, _)| at).collect();
    match (service.node_ports, without.first()) {
        (_, None) => Vec::new(),
        (NodePorts::Disabled, Some(at)) => vec![Refusal::new(
            "spec.allocateLoadBalancerNodePorts",
            format!(
                "false leaves spec.ports[{at}] without a node port, and the load balancer reaches pods through node \
                 ports: set it to true, or set spec.ports[{at}].nodePort"
            ),
        )],
        (NodePorts::Allocated, Some(at)) => {
            vec![Refusal::new(format!("spec.ports[{at}].nodePort"), "is 0: set a node port")]
        }
    }
}

/// Local: the node says itself whether it has an endpoint. Cluster: any node will do whose node port takes connections.
/// Unset where no port speaks TCP: only the driver knows how its vendor probes UDP.
fn health_check(service: &Service) -> Option<HealthCheck> {
    match service.traffic {
        Traffic::Local { health_check_node_port: 0 } => {
            Some(HealthCheck { kind: health_check::Kind::None.into(), ..HealthCheck::default() })
        }
        Traffic::Local { health_check_node_port } => Some(HealthCheck {
            kind: health_check::Kind::Http.into(),
            port: Some(health_check_node_port.into()),
            path: LOCAL_HEALTH_PATH.to_owned(),
            ..HealthCheck::default()
        }),
        Traffic::Cluster => {
            let tcp = service.ports.iter().find(|port| port.transport == Transport::Tcp)?;
            let mixed = service.ports.iter().any(|port| port.transport != Transport::Tcp);
            // Each listener probes its own node port, but a UDP one would never answer.
            let port = mixed.then(|| u32::from(tcp.node_port));
            Some(HealthCheck { kind: health_check::Kind::Tcp.into(), port, ..HealthCheck::default() })
        }
    }
}

/// Without the capability kube-proxy still keeps clients with their pod, node by node: nothing is refused.
fn affinity(affinity: Affinity, features: &Features) -> Option<SessionAffinity> {
    match affinity {
        Affinity::ClientIp { timeout_seconds } if features.has(features::name::SESSION_AFFINITY) => {
            Some(SessionAffinity {
                kind: session_affinity::Kind::ClientIp.into(),
                timeout: timeout_seconds
                    .map(|seconds| prost_types::Duration { seconds: seconds.into(), nanos: 0 }),
            })
        }
        Affinity::ClientIp { .. } | Affinity::None => None,
    }
}

#[cfg(test)]
mod tests;
