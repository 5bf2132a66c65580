//! A node as far as routes care. Knows nothing of Kubernetes types: the mirror trims them to this.

use std::net::IpAddr;
use std::sync::Arc;

use controller_core::ProviderId;
use ipnet::IpNet;
use jiff::Timestamp;

use super::condition::Condition;
use super::route::NextHop;

/// A node as far as routes care.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) name: String,
    /// Names the node in the keys of routes that are laid for it: a recreated node of the same name is another one.
    pub(crate) uid: String,
    /// The older of two nodes that claim one CIDR keeps it.
    pub(crate) created: Timestamp,
    /// `spec.providerID`. `None`: not initialised yet, so nobody knows which machine it is.
    pub(crate) provider_id: Option<String>,
    /// Its machine is another cloud's, as its provider ID says: it keeps its place, and nothing else is done for it or said of it.
    pub(crate) elsewhere: bool,
    /// `spec.podCIDRs`, host bits zero, each once, in the node's order.
    pub(crate) pod_cidrs: Vec<IpNet>,
    /// What stands in `spec.podCIDRs` and is no CIDR.
    pub(crate) unreadable_cidrs: Vec<String>,
    /// The addresses of type `InternalIP`, in the node's order.
    pub(crate) internal_ips: Vec<IpAddr>,
    /// The condition `NetworkUnavailable` as it stands.
    pub(crate) network_unavailable: Option<Condition>,
}

impl Node {
    /// Where packets for these pods go. Without an internal address of that family the driver chooses one.
    /// `None`: the node is not initialised yet, or its machine is another cloud's.
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

    /// Whether it is this controller that the node's pods wait for, as far as the node says.
    pub(crate) fn waits_for_a_route(&self) -> bool {
        let is_served = self.network_unavailable.as_ref().is_some_and(|now| now.status == "False");
        self.provider_id.is_some() && !self.elsewhere && !self.pod_cidrs.is_empty() && !is_served
    }

    /// The node as the cloud sees it whose provider IDs have this scheme. What is no provider ID says nothing of a cloud.
    pub(crate) fn seen_from(self: Arc<Self>, scheme: &str) -> Arc<Self> {
        let id = self.provider_id.as_deref().and_then(|id| id.parse::<ProviderId>().ok());
        if id.is_none_or(|id| id.scheme() == scheme) {
            return self;
        }
        Arc::new(Self { elsewhere: true, ..Arc::unwrap_or_clone(self) })
    }
}
