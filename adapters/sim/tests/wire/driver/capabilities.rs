//! Tests of each capability in `describe`. The effect is checked in the cloud itself.

use std::collections::BTreeSet;

use cloud_adapter::driver::Driver as _;
use cloud_api_proto::v1alpha1::{
    HealthCheck, InstanceState, IpFamily, Listener, LoadBalancerSpec, Protocol, SessionAffinity,
    health_check,
    listener::{Algorithm, Application, ProxyProtocol},
    load_balancer_spec::Scheme,
    session_affinity,
};
use reqwest::Method;
use serde_json::{Value, json};

use crate::{
    driver::bench::{bench, desired, route},
    support::wanted::{backend, spec, tcp, udp},
};

/// A capability, a change of a load balancer that needs this capability, and the resulting fields of the load balancer in the cloud.
type Row = (&'static str, fn(&mut LoadBalancerSpec), Vec<(&'static str, Value)>);

#[expect(clippy::too_many_lines, reason = "a table")]
fn rows() -> Vec<Row> {
    vec![
        ("lb.internal", |spec| spec.scheme = Scheme::Internal.into(), vec![("/scheme", json!("internal"))]),
        (
            "lb.source-ranges",
            |spec| spec.source_ranges = vec!["192.0.2.0/24".into(), "2001:db8::/32".into()],
            vec![("/listeners/0/allowed_cidrs", json!(["192.0.2.0/24", "2001:db8::/32"]))],
        ),
        (
            "lb.proxy-protocol",
            |spec| spec.listeners[0].proxy_protocol = ProxyProtocol::V2.into(),
            vec![("/pools/0/protocol", json!("PROXY"))],
        ),
        (
            "lb.health-check.http",
            |spec| {
                spec.health_check = Some(HealthCheck {
                    kind: health_check::Kind::Http.into(),
                    port: Some(32_000),
                    path: "/healthz".into(),
                    unhealthy_threshold: Some(4),
                    ..HealthCheck::default()
                });
            },
            vec![
                ("/pools/0/health_monitor/protocol", json!("HTTP")),
                ("/pools/0/health_monitor/port", json!(32_000)),
                ("/pools/0/health_monitor/path", json!("/healthz")),
                ("/pools/0/health_monitor/unhealthy_threshold", json!(4)),
            ],
        ),
        (
            "lb.session-affinity",
            |spec| {
                let timeout = Some(prost_types::Duration { seconds: 600, nanos: 0 });
                let kind = session_affinity::Kind::ClientIp.into();
                spec.session_affinity = Some(SessionAffinity { kind, timeout });
            },
            vec![("/pools/0/persistence", json!({ "kind": "source_ip", "timeout": 600 }))],
        ),
        ("lb.udp", |spec| spec.listeners = vec![udp(53)], vec![("/listeners/0/protocol", json!("UDP"))]),
        (
            "lb.sctp",
            |spec| {
                spec.listeners = vec![Listener { protocol: Protocol::Sctp.into(), ..tcp(9) }, tcp(9)];
            },
            vec![
                ("/listeners/0/protocol", json!("TCP")),
                ("/listeners/1/protocol", json!("SCTP")),
                ("/pools/1/protocol", json!("SCTP")),
            ],
        ),
        (
            "lb.mixed-protocols",
            |spec| spec.listeners = vec![tcp(53), udp(53)],
            vec![("/listeners/0/protocol", json!("TCP")), ("/listeners/1/protocol", json!("UDP"))],
        ),
        (
            "lb.dual-stack",
            |spec| spec.ip_families = vec![IpFamily::Ipv6.into(), IpFamily::Ipv4.into()],
            vec![
                ("/families", json!(["ipv6", "ipv4"])),
                ("/pools/0/members/0/address", json!("10.0.0.1")),
                ("/pools/0/members/1/address", json!("fd00::1")),
            ],
        ),
        (
            "lb.reserved-ip",
            |spec| spec.requested_addresses = vec!["198.18.7.7".into()],
            vec![("/vips", json!(["198.18.7.7"]))],
        ),
        (
            "lb.tls",
            |spec| spec.listeners[0].tls_refs = vec!["cert-1".into()],
            vec![
                ("/listeners/0/traffic/application", json!("tls")),
                ("/listeners/0/traffic/certificates", json!(["cert-1"])),
            ],
        ),
        (
            "lb.address-pool",
            |spec| spec.address_pool = "public".into(),
            vec![("/placement/address_pool", json!("public"))],
        ),
        (
            "lb.subnets",
            |spec| spec.subnets = vec!["s-1".into(), "s-2".into()],
            vec![("/placement/subnets", json!(["s-1", "s-2"]))],
        ),
        ("lb.size", |spec| spec.size = "large".into(), vec![("/placement/size", json!("large"))]),
        ("lb.zone", |spec| spec.zone = "z1".into(), vec![("/placement/zone", json!("z1"))]),
        ("lb.name", |spec| spec.name = "Shop_web.1".into(), vec![("/name", json!("Shop_web.1"))]),
        (
            "lb.algorithm",
            |spec| spec.listeners[0].set_algorithm(Algorithm::LeastConnections),
            vec![("/pools/0/algorithm", json!("least_connections"))],
        ),
        (
            "lb.listener-protocol",
            |spec| spec.listeners[0].set_application(Application::Http),
            vec![("/listeners/0/traffic/application", json!("http"))],
        ),
        (
            "lb.connect-timeout",
            |spec| {
                spec.listeners[0].connect_timeout = Some(prost_types::Duration { seconds: 7, nanos: 0 });
            },
            vec![("/listeners/0/traffic/connect_timeout", json!(7))],
        ),
        (
            "lb.connection-limit",
            |spec| spec.listeners[0].connection_limit = Some(1000),
            vec![("/listeners/0/traffic/connection_limit", json!(1000))],
        ),
        (
            "lb.app-protocol",
            |spec| spec.listeners[0].app_protocol = "kubernetes.io/h2c".into(),
            vec![("/listeners/0/traffic/app_protocol", json!("kubernetes.io/h2c"))],
        ),
        (
            "lb.ownership-tags",
            |_| (),
            vec![
                ("/tags/cloudadapter.dev~1cluster-id", json!("c-1")),
                ("/tags/cloudadapter.dev~1cluster-name", json!("prod")),
                ("/tags/cloudadapter.dev~1owner-kind", json!("Service")),
                ("/tags/cloudadapter.dev~1owner-namespace", json!("shop")),
                ("/tags/cloudadapter.dev~1owner-name", json!("web")),
                ("/tags/cloudadapter.dev~1owner-uid", json!("web")),
                ("/tags/cloudadapter.dev~1hash", json!("1-1")),
            ],
        ),
    ]
}

/// The capabilities that have a test of their own below.
const OTHERS: [&str; 6] = [
    "instances",
    "instances.shutdown-state",
    "loadbalancers",
    "lb.in-place-update",
    "routes",
    "routes.ownership-tags",
];

#[tokio::test]
async fn each_capability_has_a_test() {
    let claims = bench().await.driver.describe().capabilities.into_iter().map(|one| one.name);
    let tested = rows().into_iter().map(|(name, ..)| name).chain(OTHERS).map(str::to_owned);
    assert_eq!(claims.collect::<BTreeSet<_>>(), tested.collect());
}

#[tokio::test]
async fn each_capability_changes_the_load_balancer_in_the_cloud() {
    for (capability, change, fields) in rows() {
        let mut wanted = spec([tcp(80)]);
        change(&mut wanted);
        let bench = bench().await;
        bench.ensure(&desired(wanted, [backend(1)])).await;
        let balancer = bench.cloud.balancer().await;
        let count = |field: &str| balancer[field].as_array().map(Vec::len);
        assert_eq!(count("vips"), count("families"), "{capability}: an address of each family");
        for (field, wanted) in fields {
            assert_eq!(balancer.pointer(field), Some(&wanted), "{capability}: {field} of {balancer}");
        }
    }
}

#[tokio::test]
async fn generated_name_is_readable() {
    let bench = bench().await;
    bench.ensure(&desired(spec([tcp(80)]), [backend(1)])).await;
    let balancer = bench.cloud.balancer().await;
    assert!(balancer["name"].as_str().is_some_and(|name| name.starts_with("prod-shop-web-")), "{balancer}");
}

#[tokio::test]
async fn instances_are_listed_with_their_state() {
    let bench = bench().await;
    bench.cloud.machines(2).await;
    let instances = bench.instances().await;
    assert_eq!(instances.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(), ["node-1", "node-2"]);
    assert!(!instances[0].addresses.is_empty());
    bench.cloud.admin(Method::PATCH, "instances/i-0001", json!({ "status": "stopped" })).await;
    bench.cloud.admin(Method::PATCH, "instances/i-0002", json!({ "status": "terminated" })).await;
    let states: Vec<_> = bench.instances().await.iter().map(|one| one.state()).collect();
    assert_eq!(states, [InstanceState::Stopped, InstanceState::Terminated]);
}

#[tokio::test]
async fn load_balancer_is_created_and_deleted() {
    let bench = bench().await;
    let (record, _) = bench.ensure(&desired(spec([tcp(80)]), [backend(1), backend(2)])).await;
    assert_eq!((record.summary.addresses.len(), record.summary.backends), (1, 2));
    bench.remove().await;
    assert_eq!(bench.balancers().await, []);
}

#[tokio::test]
async fn everything_but_the_address_changes_in_place() {
    let bench = bench().await;
    let (before, _) = bench.ensure(&desired(spec([tcp(80)]), [backend(1)])).await;
    let proxied = Listener { proxy_protocol: ProxyProtocol::V2.into(), ..tcp(80) };
    let mut changed = spec([proxied, udp(53)]);
    changed.source_ranges = vec!["192.0.2.0/24".into()];
    changed.parameters.insert("algorithm".into(), "source-ip".into());
    let (after, _) = bench.ensure(&desired(changed, [backend(2)])).await;
    let addresses = |record: &crate::driver::bench::Record| {
        record.summary.addresses.iter().map(|address| address.value.clone()).collect::<Vec<_>>()
    };
    assert_eq!(addresses(&after), addresses(&before));
    assert_eq!(bench.cloud.balancer().await["pools"][0]["algorithm"], json!("source_ip"));
}

#[tokio::test]
async fn routes_are_created_with_their_owner_and_removed() {
    let bench = bench().await;
    bench.cloud.machines(1).await;
    bench.change_routes(&[], [route(1, "i-0001")]).await.remove(0).expect("created");
    let routes = bench.routes().await;
    assert_eq!((routes.len(), routes[0].destination.as_str()), (1, "10.244.1.0/24"));
    assert_eq!(routes[0].key, route(1, "i-0001").upsert.key);
    bench.change_routes(&[&routes[0].vendor_id], []).await.remove(0).expect("removed");
    assert_eq!(bench.routes().await, []);
}
