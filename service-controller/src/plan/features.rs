//! Compares the adapter's capabilities with what a Service needs before the adapter is called.

use std::collections::{BTreeMap, BTreeSet};

pub(crate) use cloud_api_proto::features::name;
use cloud_api_proto::{
    features::Need,
    v1alpha1::{Capability, GetInfoResponse, capability::Level},
};

use super::{
    annotations::{Wish, Wishes, keys},
    health_check::Probe,
    service::{Service, Transport},
};

/// The field that lets other Services share the load balancer.
const SHARED_WITH: &str = "spec.shared_with";

/// Identity and capabilities of the adapter. A capability counts as missing if this version does not know its level.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Features {
    /// The scheme of the cloud's provider IDs, such as `openstack`.
    pub(crate) vendor: String,
    /// The keys of the vendor-specific parameters.
    pub(crate) parameters: BTreeSet<String>,
    /// The capabilities, each with the supported values if the capability is a choice of values. `None`: all values are supported.
    can: BTreeMap<String, Option<BTreeSet<String>>>,
}

impl Features {
    pub(crate) fn has(&self, name: &str) -> bool {
        self.can.contains_key(name)
    }

    /// Why the adapter does not support a feature. `None`: the adapter supports the feature. The adapter refuses the same in terms of the
    /// contract (`cloud-adapter/src/load_balancers/validate/features.rs`); this text follows the name of a setting that the user wrote.
    pub(crate) fn lack(&self, need: &Need) -> Option<String> {
        match (self.can.get(need.capability), need.value) {
            (None, _) => {
                // A load balancer is shared with two annotations, and neither has a meaning of its own then.
                let shares = need.capability == name::SHARED && need.field != SHARED_WITH;
                let fix = if shares {
                    format!(": remove both annotations, {} and {}", keys::ADOPT.name, keys::ID.name)
                } else {
                    String::new()
                };
                Some(format!(
                    "the cloud adapter does not support this (no capability {}){fix}",
                    need.capability
                ))
            }
            (Some(Some(values)), Some(value)) if !values.contains(value) => {
                let values: Vec<&str> = values.iter().map(String::as_str).collect();
                Some(format!(
                    "the cloud adapter does not support {value}: write one of {}",
                    values.join(", ")
                ))
            }
            (Some(_), _) => None,
        }
    }
}

impl From<&GetInfoResponse> for Features {
    fn from(info: &GetInfoResponse) -> Self {
        let values = |it: &Capability| Some(it.values()?.map(str::to_owned).collect());
        let promised = info.capabilities.iter().filter(|it| it.level() != Level::Unspecified);
        Self {
            vendor: info.provider.clone(),
            parameters: info.parameters.iter().map(|it| it.key.clone()).collect(),
            can: promised.map(|it| (it.name.clone(), values(it))).collect(),
        }
    }
}

#[cfg(test)]
impl<const N: usize> From<[&str; N]> for Features {
    fn from(names: [&str; N]) -> Self {
        let can = names.iter().map(|&name| (name.to_owned(), None)).collect();
        Self { vendor: "sim".to_owned(), parameters: BTreeSet::new(), can }
    }
}

/// The settings of a Service that request a feature, as the user wrote them.
///
/// Features that also work without the cloud do not count as requested. kube-proxy implements session affinity, and a Service that only
/// prefers two families also works with one family.
pub(crate) fn places(need: &Need, service: &Service, wishes: &Wishes, probe: &Probe) -> Vec<String> {
    let port = need.listener.and_then(|at| wishes.ports.get(at));
    let place = match need.capability {
        name::UDP => Some(port_field(service, Transport::Udp)),
        name::SCTP => Some(port_field(service, Transport::Sctp)),
        name::MIXED_PROTOCOLS => Some("spec.ports with more than one protocol".to_owned()),
        name::SOURCE_RANGES => Some("spec.loadBalancerSourceRanges".to_owned()),
        name::RESERVED_IP => {
            let field = service.requested_address.as_ref().map(|_| "spec.loadBalancerIP".to_owned());
            return field.into_iter().chain(place(wishes.addresses.as_ref())).collect();
        }
        name::DUAL_STACK => Some("spec.ipFamilyPolicy RequireDualStack".to_owned()),
        name::SHARED if need.field == SHARED_WITH => place(wishes.share_with.as_ref()),
        name::SHARED => place(wishes.adopt.as_ref()).map(|place| format!("{place}: shared")),
        name::INTERNAL => place(wishes.internal.as_ref()),
        name::KEEP_ADDRESS => place(wishes.on_delete.as_ref()),
        name::NAME => place(wishes.name.as_ref()),
        name::ADDRESS_POOL => place(wishes.address_pool.as_ref()),
        name::SUBNETS => place(wishes.subnets.as_ref()),
        name::SIZE => place(wishes.size.as_ref()),
        name::ZONE => place(wishes.zone.as_ref()),
        name::TLS => port.and_then(|port| place(port.certificates.as_ref())),
        name::ALGORITHM => port.and_then(|port| place(port.algorithm.as_ref())),
        name::LISTENER_PROTOCOL => port.and_then(|port| place(port.protocol.as_ref())),
        name::PROXY_PROTOCOL => port.and_then(|port| place(port.proxy_protocol.as_ref())),
        name::CONNECT_TIMEOUT => port.and_then(|port| place(port.connect_timeout.as_ref())),
        name::CONNECTION_LIMIT => port.and_then(|port| place(port.connection_limit.as_ref())),
        name::HTTP_HEALTH_CHECK => Some(probe.field.clone()),
        _ => None,
    };
    vec![place.unwrap_or_else(|| need.field.to_owned())]
}

fn place<T>(wish: Option<&Wish<T>>) -> Option<String> {
    wish.map(|wish| wish.given.place.clone())
}

fn port_field(service: &Service, transport: Transport) -> String {
    let at = service.ports.iter().position(|port| port.transport == transport).unwrap_or_default();
    format!("spec.ports[{at}].protocol {transport}")
}
