//! Tests of plans, which are executed on an in-memory fake of the cloud. After each write, a new plan is computed until no step is left.
//! The writes must be those of the first plan.

mod adopted;
mod bench;
mod changes;
mod floating_ips;
mod hostile;
mod inherited;
mod node_access;
mod places;
mod random;
mod refusals;
mod shared;
mod shared_of_go;

use std::net::IpAddr;

use cloud_adapter::{
    driver::{DesiredLoadBalancer, Fault, Inheritance},
    kit::{
        self,
        testing::{self, hashed, tcp, udp, with, writer},
    },
};
use cloud_api_proto::v1alpha1::{
    self as contract, Backend, HealthCheck, LoadBalancerKey, LoadBalancerSpec, Protocol, SessionAffinity,
    health_check,
    listener::{Algorithm, Application, ProxyProtocol},
    load_balancer_spec, session_affinity,
};
use serde_json::json;

use self::bench::{Bench, Record, set};
use crate::{
    api::{responses::Listener, version::Version},
    load_balancers::settings::Creation,
    ownership,
    step::Step,
};

/// The name that the former cloud controller manager gives to the load balancer of `shop/web`.
const GO: &str = "kube_service_prod_shop_web";

/// Returns an internal load balancer for the Service `shop/web`, with two backends.
fn web(listeners: impl Into<Vec<contract::Listener>>) -> DesiredLoadBalancer {
    testing::web(testing::spec(load_balancer_spec::Scheme::Internal, listeners), [1, 2].map(backend))
}

/// Returns the load balancer of [`web`] with a floating IP.
fn public(listeners: impl Into<Vec<contract::Listener>>) -> DesiredLoadBalancer {
    with(web(listeners), |spec| spec.scheme = load_balancer_spec::Scheme::Internet.into())
}

fn backend(n: u8) -> Backend {
    testing::backend(format!("openstack:///i-{n}"), n)
}

fn parameter(key: &str, value: &str) -> impl FnOnce(&mut LoadBalancerSpec) {
    let (key, value) = (key.to_owned(), value.to_owned());
    move |spec| {
        spec.parameters.insert(key, value);
    }
}

fn seconds(seconds: i64) -> Option<prost_types::Duration> {
    Some(prost_types::Duration { seconds, nanos: 0 })
}

fn members(record: &Record) -> Vec<(IpAddr, u16, Option<u32>)> {
    let members =
        record.detail.pools.iter().filter_map(|pool| pool.members.as_ref()).flat_map(|all| all.iter());
    let mut members: Vec<_> = members.map(|one| (one.address, one.protocol_port, one.weight)).collect();
    members.sort();
    members
}

fn addresses(record: &Record) -> Vec<String> {
    let value = |one: &contract::LoadBalancerAddress| match &one.value {
        Some(
            contract::load_balancer_address::Value::Ip(text)
            | contract::load_balancer_address::Value::Hostname(text),
        ) => text.clone(),
        None => String::new(),
    };
    record.summary.addresses.iter().map(value).collect()
}

#[test]
fn new_load_balancer_costs_one_write() {
    let mut bench = Bench::new();
    let desired = web([tcp(80), tcp(443), udp(53)]);
    let (record, writes) = bench.settled(&desired);
    let name = ownership::balancer_name(&desired);
    assert_eq!(writes, [format!("create load balancer {name} with 3 listeners")]);
    assert_eq!(record.summary.listeners, ["tcp/80", "tcp/443", "udp/53"]);
    assert_eq!((record.summary.backends, addresses(&record)), (6, vec!["10.0.0.9".to_owned()]));
    assert_eq!(bench.plan(&desired), Ok(vec![]));
}

#[test]
fn part_by_part_creation_completes_with_the_last_write() {
    let mut bench = Bench::new();
    bench.options.load_balancer_creation = Creation::PartByPart;
    let desired = web([tcp(80)]);
    let name = ownership::balancer_name(&desired);
    let (_, writes) = bench.settled(&desired);
    assert_eq!(
        writes,
        [
            &format!("create load balancer {name}"),
            "create pool tcp-80",
            "add or change 2 members of pool tcp-80",
            "create the health monitor of pool tcp-80",
            "create listener tcp/80",
            "tag load balancer as complete",
        ]
    );
}

#[test]
fn new_node_costs_one_write_for_each_pool() {
    let mut bench = Bench::new();
    let mut desired = web([tcp(80), tcp(443)]);
    bench.settled(&desired);
    desired.backends = [1, 2, 3].map(backend).into();
    let (record, writes) = bench.settled(&desired);
    assert_eq!(writes, ["add or change 1 members of pool tcp-80", "add or change 1 members of pool tcp-443"]);
    assert_eq!(members(&record).len(), 6);
    desired.backends = [2, 3].map(backend).into();
    let (record, writes) = bench.settled(&desired);
    assert_eq!(writes, ["set the 2 members of pool tcp-80", "set the 2 members of pool tcp-443"]);
    assert_eq!(members(&record).len(), 4);
}

#[test]
fn draining_backend_gets_weight_zero() {
    let mut bench = Bench::new();
    let mut desired = web([tcp(80)]);
    bench.settled(&desired);
    let draining = Backend { draining: true, ..backend(1) };
    desired.backends = [draining, Backend { weight: Some(7), ..backend(2) }].into();
    let (record, writes) = bench.settled(&desired);
    assert_eq!(writes, ["add or change 2 members of pool tcp-80"]);
    let wanted = [("10.0.0.1", Some(0)), ("10.0.0.2", Some(7))];
    assert_eq!(
        members(&record),
        wanted.map(|(ip, weight)| (ip.parse().expect("an address"), 30_080, weight))
    );
}

#[test]
fn deletion_is_one_write() {
    let mut bench = Bench::new();
    bench.settled(&web([tcp(80), tcp(443)]));
    set(&mut bench.cloud.balancers, "lb-1", &json!({ "provisioning_status": "PENDING_DELETE" }));
    assert!(bench.deleted().is_empty());
    set(&mut bench.cloud.balancers, "lb-1", &json!({ "provisioning_status": "ERROR" }));
    assert_eq!(bench.deleted(), ["delete load balancer lb-1 with all its parts"]);
    assert_eq!(bench.observe(), None);
}
