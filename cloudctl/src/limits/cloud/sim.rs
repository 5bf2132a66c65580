//! The calls of the simulated cloud. Source: `adapters/sim/src/{driver,client,plan}.rs`.

use std::time::Duration;

use cloud_adapter::{
    driver::VendorLimit,
    vendor::{Family, Operation},
};

use super::{Collection, Model, Stock, pages};

pub(super) const MODEL: Model = Model {
    call_limits: &[
        ("compute", VendorLimit::Bucket { rate: 20.0, burst: 40 }),
        ("network", VendorLimit::Bucket { rate: 20.0, burst: 40 }),
        ("loadbalancer", VendorLimit::Bucket { rate: 20.0, burst: 40 }),
        ("identity", VendorLimit::Bucket { rate: 5.0, burst: 10 }),
    ],
    start: &[Operation::read(Family::Identity, "GetProject")],
    listing,
    creation: &[
        Operation::write(Family::LoadBalancer, "CreateLoadBalancer"),
        Operation::write(Family::LoadBalancer, "CreateListener"),
        Operation::write(Family::LoadBalancer, "UpdateLoadBalancer"),
    ],
    membership: Operation::write(Family::LoadBalancer, "UpdateMembers"),
    single_reads: Some((LIST_LOAD_BALANCERS, Operation::read(Family::LoadBalancer, "GetLoadBalancer"))),
    reads_members: false,
    route_batch: 200,
    create_routes: |_| vec![Operation::write(Family::Network, "BatchRoutes")],
    lists_created_routes: false,
    poll: Duration::from_millis(250),
    creates_after: Duration::ZERO,
};

const LIST_INSTANCES: Operation = Operation::read(Family::Compute, "ListInstances");
const LIST_LOAD_BALANCERS: Operation = Operation::read(Family::LoadBalancer, "ListLoadBalancers");
const LIST_ROUTES: Operation = Operation::read(Family::Network, "ListRoutes");
const PAGE: u32 = 500;
const BALANCERS_PAGE: u32 = 100;

fn listing(what: Collection, stock: Stock, size: Option<u32>) -> Vec<Operation> {
    match what {
        Collection::Instances => pages(LIST_INSTANCES, stock.nodes, size, PAGE),
        Collection::LoadBalancers => pages(LIST_LOAD_BALANCERS, stock.balancers, size, BALANCERS_PAGE),
        Collection::Routes => pages(LIST_ROUTES, stock.routes, size, PAGE),
    }
    .collect()
}
