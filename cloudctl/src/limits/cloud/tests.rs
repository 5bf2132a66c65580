//! Compares the calls with those of the simulated cloud's driver. The README of the OpenStack adapter lists the calls of its driver, and
//! tests of that adapter count them.

use adapter_sim::{ClientTokens, Settings, SimDriver};
use cloud_adapter::driver::{DesiredLoadBalancer, Driver as _, Step as _};
use cloud_api_proto::v1alpha1::{
    Backend, Fence, IpFamily, Listener, LoadBalancerKey, LoadBalancerSpec, Owner, Protocol,
    load_balancer_spec,
};

use super::*;

fn driver() -> SimDriver {
    let settings = Settings {
        endpoint: "http://127.0.0.1:1".parse().expect("an address"),
        token: None,
        region: "sim-1".to_owned(),
        consistency_horizon: Duration::ZERO,
        create_horizon: Duration::ZERO,
        client_tokens: ClientTokens::Sent,
    };
    SimDriver::new(settings).expect("no token")
}

fn desired() -> DesiredLoadBalancer {
    let listener =
        Listener { port: 80, protocol: Protocol::Tcp.into(), node_port: Some(30_080), ..Listener::default() };
    DesiredLoadBalancer {
        key: LoadBalancerKey { cluster_id: "c-1".into(), owner_uid: "u-1".into() },
        owner: Owner {
            kind: "Service".into(),
            namespace: "shop".into(),
            name: "web".into(),
            uid: "u-1".into(),
        },
        cluster_name: "prod".into(),
        inheritance: cloud_adapter::driver::Inheritance::default(),
        spec: LoadBalancerSpec {
            scheme: load_balancer_spec::Scheme::Internet.into(),
            ip_families: vec![IpFamily::Ipv4.into()],
            listeners: vec![listener],
            ..LoadBalancerSpec::default()
        },
        backends: [Backend {
            provider_id: "sim://sim-1/i-1".into(),
            addresses: vec!["10.0.0.1".into()],
            ..Backend::default()
        }]
        .into(),
        hash: "1:x".into(),
    }
}

#[test]
fn the_limits_are_those_of_the_driver() {
    let (described, model) = (driver().describe(), Cloud::Sim.model());
    assert_eq!(described.call_limits, model.call_limits);
    assert_eq!(described.limits.batch_routes, model.route_batch);
    assert_eq!(described.poll, model.poll);
}

#[test]
fn a_load_balancer_takes_the_calls_of_the_drivers_plan() {
    let steps = driver().plan(&desired(), &Fence::default(), None).expect("possible");
    let operations: Vec<_> = steps.iter().map(|step| step.operation()).collect();
    assert_eq!(operations, Cloud::Sim.model().creation);
}
