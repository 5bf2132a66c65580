//! The calls of OpenStack, with public load balancers that become active at once, and without security groups. Source:
//! `adapters/openstack/README.md`.
//!
//! Objects that Octavia creates are visible at the next poll. The calls for other objects of the project, such as ports that do not belong
//! to nodes, are not counted.

use std::time::Duration;

use cloud_adapter::{
    driver::VendorLimit,
    vendor::{Family, Operation},
};

use super::{Collection, Model, Stock, pages};

pub(super) const MODEL: Model = Model {
    call_limits: &[
        ("compute", VendorLimit::Bucket { rate: 5.0, burst: 20 }),
        ("network", VendorLimit::Bucket { rate: 5.0, burst: 20 }),
        ("loadbalancer", VendorLimit::Bucket { rate: 5.0, burst: 20 }),
        ("identity", VendorLimit::Bucket { rate: 1.0, burst: 5 }),
    ],
    // A log-in: one call creates a token, and one reads it.
    start: &[
        Operation::read(Family::Identity, "CreateToken"),
        Operation::read(Family::Identity, "ShowToken"),
    ],
    listing,
    creation: &[
        Operation::write(Family::LoadBalancer, "CreateLoadBalancer"),
        Operation::write(Family::Network, "CreateFloatingIp"),
    ],
    membership: Operation::write(Family::LoadBalancer, "UpdateMembers"),
    single_reads: None,
    reads_members: true,
    route_batch: 50,
    create_routes,
    lists_created_routes: true,
    poll: Duration::from_secs(2),
    creates_after: Duration::from_secs(30),
};

const LIST_PORTS: Operation = Operation::read(Family::Network, "ListPorts");
const UPDATE_PORT: Operation = Operation::write(Family::Network, "UpdatePort");
const ADD_ROUTES: Operation = Operation::write(Family::Network, "AddExtraRoutes");
const PAGE: u32 = 1_000;

fn listing(what: Collection, stock: Stock, size: Option<u32>) -> Vec<Operation> {
    let all = |operation, items| pages(operation, items, size, PAGE);
    let octavia = |name| all(Operation::read(Family::LoadBalancer, name), stock.balancers);
    match what {
        Collection::Instances => {
            let servers = all(Operation::read(Family::Compute, "ListServers"), stock.nodes);
            servers.chain(all(LIST_PORTS, stock.nodes)).collect()
        }
        Collection::LoadBalancers => {
            let parts = ["ListListeners", "ListPools", "ListHealthMonitors"].into_iter().flat_map(octavia);
            let parts = parts.filter(|_| stock.balancers > 0);
            let addresses = all(Operation::read(Family::Network, "ListFloatingIps"), stock.balancers);
            let unread = usize::try_from(stock.unread).unwrap_or(usize::MAX);
            let members = std::iter::repeat_n(Operation::read(Family::LoadBalancer, "ListMembers"), unread);
            octavia("ListLoadBalancers").chain(parts).chain(addresses).chain(members).collect()
        }
        Collection::Routes => {
            let router = std::iter::once(Operation::read(Family::Network, "ShowRouter"));
            let ports = all(LIST_PORTS, stock.nodes).filter(|_| stock.routes > 0);
            router.chain(ports).collect()
        }
    }
}

/// Before the router gets the routes, the driver adds the pod network of each node to the port of its instance.
fn create_routes(routes: u32) -> Vec<Operation> {
    let ports = std::iter::repeat_n(UPDATE_PORT, usize::try_from(routes).unwrap_or(usize::MAX));
    std::iter::once(LIST_PORTS).chain(ports).chain([ADD_ROUTES]).collect()
}
