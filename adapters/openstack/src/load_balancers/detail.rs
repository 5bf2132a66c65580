//! A load balancer with the objects that the listing joins from Octavia's collections, and the statuses that plans depend on.

use std::sync::Arc;

use crate::api::responses::{Balancer, FloatingIp, Listener, Member, Monitor, Pool};

/// Octavia's status of a load balancer or pool that is not being changed.
pub(crate) const ACTIVE: &str = "ACTIVE";
pub(crate) const PENDING_DELETE: &str = "PENDING_DELETE";
/// Prefix of Octavia's statuses of objects that are being changed.
pub(crate) const PENDING: &str = "PENDING_";

/// The data about a load balancer that a plan needs in addition to the fields of the message `LoadBalancer`.
#[derive(Clone, Debug, PartialEq)]
pub struct Detail {
    /// The load balancer. `None` means that the load balancer no longer exists, and only a floating IP or security group rules are left.
    pub(crate) balancer: Option<Balancer>,
    pub(crate) listeners: Vec<Listener>,
    pub(crate) pools: Vec<PoolTree>,
    /// The floating IPs that are attached to the load balancer, and the unattached floating IPs that belong to it.
    pub(crate) floating_ips: Vec<FloatingIp>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PoolTree {
    pub(crate) pool: Pool,
    pub(crate) monitor: Option<Monitor>,
    /// The members of the pool, or `None` if they have not been read.
    pub(crate) members: Option<Arc<[Member]>>,
}
