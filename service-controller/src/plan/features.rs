//! Compares the capabilities of the adapter with what a Service needs, before any call.

use std::collections::{BTreeMap, BTreeSet};

use cloud_api_proto::v1alpha1::{Capability, GetInfoResponse, capability::Level};

use super::{
    Refusal,
    service::{FamilyPolicy, Service, Transport},
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
    pub(crate) const SCTP: &str = "lb.sctp";
    pub(crate) const MIXED_PROTOCOLS: &str = "lb.mixed-protocols";
    pub(crate) const DUAL_STACK: &str = "lb.dual-stack";
    pub(crate) const RESERVED_IP: &str = "lb.reserved-ip";
    pub(crate) const TLS: &str = "lb.tls";
    pub(crate) const ADDRESS_POOL: &str = "lb.address-pool";
    pub(crate) const SUBNETS: &str = "lb.subnets";
    pub(crate) const SIZE: &str = "lb.size";
    pub(crate) const ZONE: &str = "lb.zone";
    pub(crate) const NAME: &str = "lb.name";
    pub(crate) const SHARED: &str = "lb.shared";
    pub(crate) const KEEP_ADDRESS: &str = "lb.keep-address";
    pub(crate) const ALGORITHM: &str = "lb.algorithm";
    pub(crate) const LISTENER_PROTOCOL: &str = "lb.listener-protocol";
    pub(crate) const CONNECT_TIMEOUT: &str = "lb.connect-timeout";
    pub(crate) const CONNECTION_LIMIT: &str = "lb.connection-limit";
}

/// The attribute of a capability that lists its values.
const VALUES: &str = "values";

/// Identity and capabilities of the adapter. A capability with a level unknown to this version counts as missing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Features {
    /// The scheme of the cloud's provider IDs, such as `openstack`.
    pub(crate) vendor: String,
    /// Each capability, with the supported values if the capability is a choice of values. `None`: all values.
    can: BTreeMap<String, Option<BTreeSet<String>>>,
}

impl Features {
    /// Whether the adapter has this capability.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.can.contains_key(name)
    }
}

impl From<&GetInfoResponse> for Features {
    fn from(info: &GetInfoResponse) -> Self {
        let values = |it: &Capability| {
            it.attributes.get(VALUES).map(|list| list.split(',').map(str::to_owned).collect())
        };
        let promised = info.capabilities.iter().filter(|it| it.level() != Level::Unspecified);
        Self {
            vendor: info.provider.clone(),
            can: promised.map(|it| (it.name.clone(), values(it))).collect(),
        }
    }
}

#[cfg(test)]
impl<const N: usize> From<[&str; N]> for Features {
    fn from(names: [&str; N]) -> Self {
        let can = names.iter().map(|&name| (name.to_owned(), None)).collect();
        Self { vendor: "sim".to_owned(), can }
    }
}

/// A setting that needs a capability.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Need {
    /// The field as the user wrote it.
    field: String,
    capability: &'static str,
    /// The requested value, if the capability is a choice of values.
    value: Option<&'static str>,
}

impl Need {
    pub(crate) fn new(field: impl Into<String>, capability: &'static str) -> Self {
        Self { field: field.into(), capability, value: None }
    }

    /// The need for one value of a choice.
    pub(crate) fn of(self, value: &'static str) -> Self {
        Self { value: Some(value), ..self }
    }

    fn refusal(&self, features: &Features) -> Option<Refusal> {
        let Self { field, capability, value } = self;
        let why = match (features.can.get(*capability), value) {
            (None, _) => format!("the cloud adapter does not support this (no capability {capability})"),
            (Some(Some(values)), Some(value)) if !values.contains(*value) => {
                let values: Vec<&str> = values.iter().map(String::as_str).collect();
                format!("the cloud adapter does not support {value}: write one of {}", values.join(", "))
            }
            (Some(_), _) => return None,
        };
        Some(Refusal::new(field, why))
    }
}

/// Requested settings that the adapter does not support, without duplicates.
pub(crate) fn missing(needs: &[Need], features: &Features) -> Vec<Refusal> {
    let mut refusals = Vec::new();
    for refusal in needs.iter().filter_map(|need| need.refusal(features)) {
        if !refusals.contains(&refusal) {
            refusals.push(refusal);
        }
    }
    refusals
}

/// Capabilities that the Service's own fields need.
///
/// Features that Kubernetes provides without the cloud need no capability: kube-proxy implements session affinity, and a Service that only
/// prefers two families gets one.
pub(crate) fn of_fields(service: &Service, ranged: Ranged) -> Vec<Need> {
    let transports: BTreeSet<Transport> = service.ports.iter().map(|port| port.transport).collect();
    let rows = [
        (transports.contains(&Transport::Udp), name::UDP, port_field(service, Transport::Udp)),
        (transports.contains(&Transport::Sctp), name::SCTP, port_field(service, Transport::Sctp)),
        (transports.len() > 1, name::MIXED_PROTOCOLS, "spec.ports with more than one protocol".to_owned()),
        (ranged == Ranged::Some, name::SOURCE_RANGES, "spec.loadBalancerSourceRanges".to_owned()),
        (service.requested_address.is_some(), name::RESERVED_IP, "spec.loadBalancerIP".to_owned()),
        (insists_on_both(service), name::DUAL_STACK, "spec.ipFamilyPolicy RequireDualStack".to_owned()),
    ];
    let needed = rows.into_iter().filter(|(needed, _, _)| *needed);
    needed.map(|(_, capability, field)| Need::new(field, capability)).collect()
}

/// Whether the source ranges exclude any client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ranged {
    Nobody,
    Some,
}

fn insists_on_both(service: &Service) -> bool {
    service.families.len() > 1 && service.family_policy == FamilyPolicy::BothRequired
}

fn port_field(service: &Service, transport: Transport) -> String {
    let at = service.ports.iter().position(|port| port.transport == transport).unwrap_or_default();
    format!("spec.ports[{at}].protocol {transport}")
}
