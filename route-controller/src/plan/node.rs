//! The fields of a node that routes need, independent of the Kubernetes types.

use std::net::IpAddr;
use std::sync::Arc;

use controller_core::ProviderId;
use ipnet::IpNet;
use jiff::Timestamp;

use super::route::NextHop;

/// The fields of the condition `NetworkUnavailable` that decide whether it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Condition {
    pub(crate) status: String,
    pub(crate) reason: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) name: String,
    /// Part of the keys of the node's routes, because a recreated node of the same name has another UID.
    pub(crate) uid: String,
    /// The creation time. The older of two nodes with the same CIDR keeps the CIDR.
    pub(crate) created: Timestamp,
    /// `spec.providerID`. `None`: the node is not initialised yet, so its instance is not known.
    pub(crate) provider_id: Option<String>,
    /// Whether the instance belongs to another cloud, according to its provider ID. Such a node keeps its CIDRs, but gets no routes and is
    /// not reported.
    pub(crate) elsewhere: bool,
    /// `spec.podCIDRs`, with host bits zero and without duplicates, in the node's order.
    pub(crate) pod_cidrs: Vec<IpNet>,
    /// Entries of `spec.podCIDRs` that are not valid CIDRs.
    pub(crate) unreadable_cidrs: Vec<String>,
    /// The addresses of type `InternalIP`, in the node's order.
    pub(crate) internal_ips: Vec<IpAddr>,
    pub(crate) network_unavailable: Option<Condition>,
}

impl Node {
    /// Returns the next hop for pods in `to`. If the node has no internal address of the family of `to`, the driver chooses an address.
    /// Returns `None` if the node is not initialised yet, or if its instance belongs to another cloud.
    pub(crate) fn next_hop(&self, to: &IpNet) -> Option<NextHop> {
        if self.elsewhere {
            return None;
        }
        let address = self.internal_ips.iter().find(|ip| ip.is_ipv4() == to.addr().is_ipv4()).copied();
        Some(NextHop { provider_id: Some(self.provider_id.clone()?), address })
    }

    pub(crate) const fn asks_for_nothing(&self) -> bool {
        self.pod_cidrs.is_empty() && self.unreadable_cidrs.is_empty()
    }

    /// Whether the node's pods wait for a route, according to the node's fields.
    pub(crate) fn waits_for_a_route(&self) -> bool {
        let is_served = self.network_unavailable.as_ref().is_some_and(|now| now.status == "False");
        self.provider_id.is_some() && !self.elsewhere && !self.pod_cidrs.is_empty() && !is_served
    }

    /// Returns the node, marked as `elsewhere` if its provider ID has another scheme than `scheme`. An invalid provider ID does not count
    /// as another cloud's ID.
    pub(crate) fn seen_from(self: Arc<Self>, scheme: &str) -> Arc<Self> {
        let id = self.provider_id.as_deref().and_then(|id| id.parse::<ProviderId>().ok());
        if id.is_none_or(|id| id.scheme() == scheme) {
            return self;
        }
        Arc::new(Self { elsewhere: true, ..Arc::unwrap_or_clone(self) })
    }
}
