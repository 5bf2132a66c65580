//! What a cloud's driver sends to its vendor: how often it may, and the calls of each thing that happens. From the drivers, which tests
//! of this crate compare.

mod openstack;
mod sim;
#[cfg(test)]
mod tests;

use std::time::Duration;

use cloud_adapter::{driver::VendorLimit, vendor::Operation};
use serde::Serialize;

/// A cloud whose driver is known here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "camelCase")]
pub enum Cloud {
    /// The simulated cloud: routes, members and machines by the hundred in a call
    #[default]
    Sim,
    /// OpenStack with Octavia: a load balancer with all its parts in a call, and one more for its public address
    Openstack,
}

/// What the adapter keeps a shared listing of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Collection {
    Instances,
    LoadBalancers,
    Routes,
}

impl Collection {
    pub(crate) const ALL: [Self; 3] = [Self::Instances, Self::LoadBalancers, Self::Routes];

    /// The section of the file below `cache`.
    pub(crate) const fn key(self) -> &'static str {
        match self {
            Self::Instances => "instances",
            Self::LoadBalancers => "loadBalancers",
            Self::Routes => "routes",
        }
    }

    /// The family whose rate says how often it may be listed.
    pub(crate) const fn family(self) -> &'static str {
        match self {
            Self::Instances => "compute",
            Self::LoadBalancers => "loadbalancer",
            Self::Routes => "network",
        }
    }
}

/// What there is at the vendor.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stock {
    pub(crate) nodes: u32,
    pub(crate) balancers: u32,
    pub(crate) routes: u32,
    /// Pools whose members the adapter has not read since they changed.
    pub(crate) unread: u32,
}

impl Cloud {
    /// The driver's limits, for what the file does not name.
    pub(crate) fn call_limits(self) -> &'static [(&'static str, VendorLimit)] {
        match self {
            Self::Sim => &sim::CALL_LIMITS,
            Self::Openstack => &openstack::CALL_LIMITS,
        }
    }

    /// What a start costs before anything is listed.
    pub(crate) fn start(self) -> &'static [Operation] {
        match self {
            Self::Sim => &sim::START,
            Self::Openstack => &openstack::START,
        }
    }

    /// The calls of one listing, in order. `page_size`: what the file says.
    pub(crate) fn listing(self, what: Collection, stock: Stock, page_size: Option<u32>) -> Vec<Operation> {
        match self {
            Self::Sim => sim::listing(what, stock, page_size),
            Self::Openstack => openstack::listing(what, stock, page_size),
        }
    }

    /// The writes of a new public load balancer with one port.
    pub(crate) fn creation(self) -> &'static [Operation] {
        match self {
            Self::Sim => &sim::CREATION,
            Self::Openstack => &openstack::CREATION,
        }
    }

    /// The writes by which a load balancer with one port follows a node that joins.
    pub(crate) fn membership(self) -> Operation {
        match self {
            Self::Sim => sim::MEMBERSHIP,
            Self::Openstack => openstack::MEMBERSHIP,
        }
    }

    /// The reads of one load balancer that is waited for: before it is made, and then each time that it is looked. `None`: the driver
    /// has none, and all are listed.
    pub(crate) fn single_reads(self) -> Option<(Operation, Operation)> {
        match self {
            Self::Sim => Some(sim::SINGLE_READS),
            Self::Openstack => None,
        }
    }

    /// Whether the members of each pool that was written are read, by a call of their own.
    pub(crate) fn reads_members(self) -> bool {
        match self {
            Self::Sim => false,
            Self::Openstack => true,
        }
    }

    /// How many routes are laid together.
    pub(crate) fn route_batch(self) -> u32 {
        match self {
            Self::Sim => sim::ROUTE_BATCH,
            Self::Openstack => openstack::ROUTE_BATCH,
        }
    }

    /// The calls by which so many routes are laid, one after the other.
    pub(crate) fn laying(self, routes: u32) -> Vec<Operation> {
        match self {
            Self::Sim => vec![sim::BATCH_ROUTES],
            Self::Openstack => openstack::laying(routes),
        }
    }

    /// Whether routes have to be listed to see what was laid.
    pub(crate) fn lists_after_laying(self) -> bool {
        match self {
            Self::Sim => false,
            Self::Openstack => true,
        }
    }

    /// How soon the adapter looks again after a write.
    pub(crate) fn poll(self) -> Duration {
        match self {
            Self::Sim => sim::POLL,
            Self::Openstack => openstack::POLL,
        }
    }

    /// How long after its start the adapter makes no load balancer, lest it makes one that reads do not show yet.
    pub(crate) fn creates_after(self) -> Duration {
        match self {
            Self::Sim => Duration::ZERO,
            Self::Openstack => openstack::CONSISTENCY_HORIZON,
        }
    }
}

/// Calls that so many items take by pages of at most `most`: one at least.
fn pages(
    operation: Operation,
    items: u32,
    (size, most): (Option<u32>, u32),
) -> impl Iterator<Item = Operation> {
    let size = size.unwrap_or(most).clamp(1, most);
    std::iter::repeat_n(operation, usize::try_from(items.div_ceil(size).max(1)).unwrap_or(usize::MAX))
}
