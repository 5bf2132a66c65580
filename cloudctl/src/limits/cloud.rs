//! The calls that a cloud's driver sends to its vendor for each event, and its default limits. The calls and limits are copied from the
//! drivers, and tests compare them with the drivers.

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
pub(crate) enum Cloud {
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

/// The calls of a cloud's driver, and its settings.
#[derive(Debug)]
pub(crate) struct Model {
    /// The driver's default limits. They apply where the file sets none.
    pub(crate) call_limits: &'static [(&'static str, VendorLimit)],
    /// The calls at a start, before anything is listed.
    pub(crate) start: &'static [Operation],
    /// The calls of one listing, in order. The last argument is the page size in the file.
    pub(crate) listing: fn(Collection, Stock, Option<u32>) -> Vec<Operation>,
    /// The writes of a new public load balancer with one port.
    pub(crate) creation: &'static [Operation],
    /// The write that a load balancer with one port needs when a node joins.
    pub(crate) membership: Operation,
    /// The calls that read a single load balancer, before it is created and then at each poll. `None`: the driver has no such calls, and
    /// lists all load balancers.
    pub(crate) single_reads: Option<(Operation, Operation)>,
    /// Whether a separate call reads the members of each changed pool.
    pub(crate) reads_members: bool,
    pub(crate) route_batch: u32,
    /// The calls that create this number of routes, one after the other.
    pub(crate) create_routes: fn(u32) -> Vec<Operation>,
    /// Whether the driver has to list routes to confirm that they were created.
    pub(crate) lists_created_routes: bool,
    /// The interval between polls after a write.
    pub(crate) poll: Duration,
    /// Time after the adapter's start during which it creates no load balancer, because reads may not show yet what the previous process
    /// created.
    pub(crate) creates_after: Duration,
}

impl Cloud {
    pub(crate) fn model(self) -> &'static Model {
        match self {
            Self::Sim => &sim::MODEL,
            Self::Openstack => &openstack::MODEL,
        }
    }
}

/// Returns the calls that list this number of items, in pages of at most `most` items. There is at least one call.
fn pages(operation: Operation, items: u32, size: Option<u32>, most: u32) -> impl Iterator<Item = Operation> {
    let size = size.unwrap_or(most).clamp(1, most);
    std::iter::repeat_n(operation, usize::try_from(items.div_ceil(size).max(1)).unwrap_or(usize::MAX))
}
