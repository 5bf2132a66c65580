//! The calls of the simulated cloud. Source: `adapters/sim/src/{driver,client,plan}.rs`.

use std::time::Duration;

use cloud_adapter::{
    driver::VendorLimit,
    vendor::{Family, Operation},
};

use super::{Collection, Stock, pages};

pub(super) const CALL_LIMITS: [(&str, VendorLimit); 4] = [
    ("compute", VendorLimit::Bucket { rate: 20.0, burst: 40 }),
    ("network", VendorLimit::Bucket { rate: 20.0, burst: 40 }),
    ("loadbalancer", VendorLimit::Bucket { rate: 20.0, burst: 40 }),
    ("identity", VendorLimit::Bucket { rate: 5.0, burst: 10 }),
];

pub(super) const START: [Operation; 1] = [Operation::read(Family::Identity, "GetProject")];
pub(super) const CREATION: [Operation; 3] = [
    Operation::write(Family::LoadBalancer, "CreateLoadBalancer"),
    Operation::write(Family::LoadBalancer, "CreateListener"),
    Operation::write(Family::LoadBalancer, "UpdateLoadBalancer"),
];
pub(super) const MEMBERSHIP: Operation = Operation::write(Family::LoadBalancer, "UpdateMembers");
pub(super) const SINGLE_READS: (Operation, Operation) =
    (LIST_LOAD_BALANCERS, Operation::read(Family::LoadBalancer, "GetLoadBalancer"));
pub(super) const BATCH_ROUTES: Operation = Operation::write(Family::Network, "BatchRoutes");
pub(super) const ROUTE_BATCH: u32 = 200;
pub(super) const POLL: Duration = Duration::from_millis(250);

const LIST_INSTANCES: Operation = Operation::read(Family::Compute, "ListInstances");
const LIST_LOAD_BALANCERS: Operation = Operation::read(Family::LoadBalancer, "ListLoadBalancers");
const LIST_ROUTES: Operation = Operation::read(Family::Network, "ListRoutes");
const PAGE: u32 = 500;
const BALANCERS_PAGE: u32 = 100;

pub(super) fn listing(what: Collection, stock: Stock, size: Option<u32>) -> Vec<Operation> {
    match what {
        Collection::Instances => pages(LIST_INSTANCES, stock.nodes, (size, PAGE)),
        Collection::LoadBalancers => pages(LIST_LOAD_BALANCERS, stock.balancers, (size, BALANCERS_PAGE)),
        Collection::Routes => pages(LIST_ROUTES, stock.routes, (size, PAGE)),
    }
    .collect()
}
