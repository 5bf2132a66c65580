//! The calls that a cloud's driver sends to its vendor for each event, and its default limits. They are copied from the drivers, and tests
//! of this crate compare them.

mod openstack;
mod sim;
#[cfg(test)]
mod tests;

use std::time::Duration;

use cloud_adapter::{driver::VendorLimit, vendor::Operation};
use serde::Serialize;

/// A cloud whose driver is modelled here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "camelCase")]
pub enum Cloud {
    /// The simulated cloud: hundreds of routes, members and instances per call
    #[default]
    Sim,
    /// OpenStack with Octavia: a load balancer with all its parts in one call, and another call for its public address
    Openstack,
}

/// The collections of which the adapter keeps shared listings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Collection {
    Instances,
    LoadBalancers,
    Routes,
}

impl Collection {
    pub(crate) const ALL: [Self; 3] = [Self::Instances, Self::LoadBalancers, Self::Routes];

    /// The collection's section below `cache` in the file.
    pub(crate) const fn key(self) -> &'static str {
        match self {
            Self::Instances => "instances",
            Self::LoadBalancers => "loadBalancers",
            Self::Routes => "routes",
        }
    }

    /// The family whose rate limits how often the collection may be listed.
    pub(crate) const fn family(self) -> &'static str {
        match self {
            Self::Instances => "compute",
            Self::LoadBalancers => "loadbalancer",
            Self::Routes => "network",
        }
    }
}

/// The objects in the cloud.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stock {
    pub(crate) nodes: u32,
    pub(crate) balancers: u32,
    pub(crate) routes: u32,
    /// Pools whose members have changed since the adapter last read them.
    pub(crate) unread: u32,
}

impl Cloud {
    /// The driver's default limits. They apply where the file sets none.
    pub(crate) fn call_limits(self) -> &'static [(&'static str, VendorLimit)] {
        match self {
            Self::Sim => &sim::CALL_LIMITS,
            Self::Openstack => &openstack::CALL_LIMITS,
        }
    }

    /// The calls at a start, before anything is listed.
    pub(crate) fn start(self) -> &'static [Operation] {
        match self {
            Self::Sim => &sim::START,
            Self::Openstack => &openstack::START,
        }
    }

    /// The calls of one listing, in order. `page_size` is the value in the file.
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

    /// The writes that a load balancer with one port needs when a node joins.
    pub(crate) fn membership(self) -> Operation {
        match self {
            Self::Sim => sim::MEMBERSHIP,
            Self::Openstack => openstack::MEMBERSHIP,
        }
    }

    /// The calls that read a single load balancer, before it is created and then at each poll. `None`: the driver has no such calls, and
    /// lists all load balancers.
    pub(crate) fn single_reads(self) -> Option<(Operation, Operation)> {
        match self {
            Self::Sim => Some(sim::SINGLE_READS),
            Self::Openstack => None,
        }
    }

    /// Whether a separate call reads the members of each changed pool.
    pub(crate) fn reads_members(self) -> bool {
        match self {
            Self::Sim => false,
            Self::Openstack => true,
        }
    }

    /// Number of routes created in one batch.
    pub(crate) fn route_batch(self) -> u32 {
        match self {
            Self::Sim => sim::ROUTE_BATCH,
            Self::Openstack => openstack::ROUTE_BATCH,
        }
    }

    /// The calls that create this number of routes, one after the other.
    pub(crate) fn laying(self, routes: u32) -> Vec<Operation> {
        match self {
            Self::Sim => vec![sim::BATCH_ROUTES],
            Self::Openstack => openstack::laying(routes),
        }
    }

    /// Whether the driver has to list routes to confirm that they were created.
    pub(crate) fn lists_after_laying(self) -> bool {
        match self {
            Self::Sim => false,
            Self::Openstack => true,
        }
    }

    /// The interval between polls after a write.
    pub(crate) fn poll(self) -> Duration {
        match self {
            Self::Sim => sim::POLL,
            Self::Openstack => openstack::POLL,
        }
    }

    /// Time after the adapter's start during which it creates no load balancer, because reads may not show yet what the previous process
    /// created.
    pub(crate) fn creates_after(self) -> Duration {
        match self {
            Self::Sim => Duration::ZERO,
            Self::Openstack => openstack::CONSISTENCY_HORIZON,
        }
    }
}

/// Number of calls for this number of items in pages of at most `most` items, at least one.
fn pages(
    operation: Operation,
    items: u32,
    (size, most): (Option<u32>, u32),
) -> impl Iterator<Item = Operation> {
    let size = size.unwrap_or(most).clamp(1, most);
    std::iter::repeat_n(operation, usize::try_from(items.div_ceil(size).max(1)).unwrap_or(usize::MAX))
}
