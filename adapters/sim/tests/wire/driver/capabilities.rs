//! Verifies each capability of `describe` in the cloud itself.

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

/// Defines one test for each capability, and the list of all tests.
macro_rules! capabilities {
    ($($name:literal => $test:ident,)*) => {
        const TESTED: &[&str] = &[$($name),*];
        mod tests {
            $(#[tokio::test]
            async fn $test() {
                super::$test().await;
            })*
        }
    };
}

capabilities! {
    "instances" => machines_are_listed,
    "instances.shutdown-state" => a_machine_that_is_off_is_told_from_one_that_is_gone,
    "loadbalancers" => a_load_balancer_is_made_and_unmade,
    "lb.internal" => it_is_reached_from_inside_only,
    "lb.source-ranges" => only_named_networks_may_connect,
    "lb.proxy-protocol" => the_clients_address_is_sent_ahead,
    "lb.health-check.http" => backends_are_probed_over_http,
    "lb.session-affinity" => a_client_stays_with_its_backend,
    "lb.udp" => it_listens_on_udp,
    "lb.sctp" => it_listens_on_sctp,
    "lb.mixed-protocols" => one_port_in_both_protocols,
    "lb.dual-stack" => it_has_an_address_of_each_family,
    "lb.reserved-ip" => it_has_the_address_that_was_asked_for,
    "lb.tls" => tls_ends_there,
    "lb.address-pool" => its_address_is_of_the_pool,
    "lb.subnets" => it_is_in_the_subnets,
    "lb.size" => it_is_as_large,
    "lb.zone" => it_runs_in_the_zone,
    "lb.name" => it_is_called_as_wished,
    "lb.algorithm" => members_are_chosen_as_asked_for,
    "lb.listener-protocol" => it_understands_http,
    "lb.connect-timeout" => a_member_has_so_long_to_answer,
    "lb.connection-limit" => so_many_may_connect,
    "lb.app-protocol" => what_is_spoken_is_noted_as_it_was_said,
    "lb.in-place-update" => everything_but_the_address_changes_in_place,
    "lb.ownership-tags" => tags_say_whose_it_is,
    "routes" => routes_are_laid_and_removed,
    "routes.ownership-tags" => tags_say_whose_route_it_is,
}

#[tokio::test]
async fn every_claim_is_tested() {
    let claims: Vec<String> =
        bench().await.driver.describe().capabilities.into_iter().map(|one| one.name).collect();
    assert_eq!(claims, TESTED);
}

/// Converges to this request, and returns the load balancer in the cloud.
async fn made(change: impl FnOnce(&mut LoadBalancerSpec)) -> Value {
    let mut wanted = spec([tcp(80)]);
    change(&mut wanted);
    let bench = bench().await;
    bench.ensure(&desired(wanted, [backend(1)])).await;
    bench.cloud.balancer().await
}

async fn machines_are_listed() {
    let bench = bench().await;
    bench.cloud.machines(2).await;
    let instances = bench.instances().await;
    assert_eq!(instances.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(), ["node-1", "node-2"]);
    assert!(!instances[0].addresses.is_empty());
}

async fn a_machine_that_is_off_is_told_from_one_that_is_gone() {
    let bench = bench().await;
    bench.cloud.machines(2).await;
    bench.cloud.admin(Method::PATCH, "instances/i-0001", json!({ "status": "stopped" })).await;
    bench.cloud.admin(Method::PATCH, "instances/i-0002", json!({ "status": "terminated" })).await;
    let states: Vec<_> = bench.instances().await.iter().map(|one| one.state()).collect();
    assert_eq!(states, [InstanceState::Stopped, InstanceState::Terminated]);
}

async fn a_load_balancer_is_made_and_unmade() {
    let bench = bench().await;
    let (record, _) = bench.ensure(&desired(spec([tcp(80)]), [backend(1), backend(2)])).await;
    assert_eq!((record.summary.addresses.len(), record.summary.backends), (1, 2));
    bench.remove().await;
    assert_eq!(bench.balancers().await, []);
}

async fn it_is_reached_from_inside_only() {
    let balancer = made(|spec| spec.scheme = Scheme::Internal.into()).await;
    assert_eq!(balancer["scheme"], json!("internal"));
}

async fn only_named_networks_may_connect() {
    let balancer =
        made(|spec| spec.source_ranges = vec!["192.0.2.0/24".into(), "2001:db8::/32".into()]).await;
    assert_eq!(balancer["listeners"][0]["allowed_cidrs"], json!(["192.0.2.0/24", "2001:db8::/32"]));
}

async fn the_clients_address_is_sent_ahead() {
    let proxied = Listener { proxy_protocol: ProxyProtocol::V2.into(), ..tcp(80) };
    let balancer = made(|spec| spec.listeners = vec![proxied]).await;
    assert_eq!(balancer["pools"][0]["protocol"], json!("PROXY"));
}

async fn backends_are_probed_over_http() {
    let check = HealthCheck {
        kind: health_check::Kind::Http.into(),
        port: Some(32_000),
        path: "/healthz".into(),
        unhealthy_threshold: Some(4),
        ..HealthCheck::default()
    };
    let balancer = made(|spec| spec.health_check = Some(check)).await;
    let monitor = &balancer["pools"][0]["health_monitor"];
    assert_eq!((&monitor["protocol"], &monitor["port"]), (&json!("HTTP"), &json!(32_000)));
    assert_eq!((&monitor["path"], &monitor["unhealthy_threshold"]), (&json!("/healthz"), &json!(4)));
}

async fn a_client_stays_with_its_backend() {
    let timeout = Some(prost_types::Duration { seconds: 600, nanos: 0 });
    let affinity = SessionAffinity { kind: session_affinity::Kind::ClientIp.into(), timeout };
    let balancer = made(|spec| spec.session_affinity = Some(affinity)).await;
    assert_eq!(balancer["pools"][0]["persistence"], json!({ "kind": "source_ip", "timeout": 600 }));
}

async fn it_listens_on_udp() {
    let balancer = made(|spec| spec.listeners = vec![udp(53)]).await;
    assert_eq!(balancer["listeners"][0]["protocol"], json!("UDP"));
}

async fn it_listens_on_sctp() {
    let sctp = Listener { protocol: Protocol::Sctp.into(), ..tcp(9) };
    let balancer = made(|spec| spec.listeners = vec![sctp, tcp(9)]).await;
    let protocols: Vec<_> = [0, 1].map(|at| balancer["listeners"][at]["protocol"].clone()).into();
    assert_eq!(protocols, [json!("TCP"), json!("SCTP")]);
    assert_eq!(balancer["pools"][1]["protocol"], json!("SCTP"));
}

async fn one_port_in_both_protocols() {
    let balancer = made(|spec| spec.listeners = vec![tcp(53), udp(53)]).await;
    let protocols: Vec<_> = [0, 1].map(|at| balancer["listeners"][at]["protocol"].clone()).into();
    assert_eq!(protocols, [json!("TCP"), json!("UDP")]);
}

async fn it_has_an_address_of_each_family() {
    let balancer = made(|spec| spec.ip_families = vec![IpFamily::Ipv6.into(), IpFamily::Ipv4.into()]).await;
    assert_eq!(balancer["vips"].as_array().map(Vec::len), Some(2));
    let members = balancer["pools"][0]["members"].as_array().expect("a list");
    let addresses: Vec<_> = members.iter().map(|member| member["address"].clone()).collect();
    assert_eq!(addresses, [json!("10.0.0.1"), json!("fd00::1")]);
}

async fn it_has_the_address_that_was_asked_for() {
    let balancer = made(|spec| spec.requested_addresses = vec!["198.18.7.7".into()]).await;
    assert_eq!(balancer["vips"], json!(["198.18.7.7"]));
}

async fn tls_ends_there() {
    let balancer = made(|spec| spec.listeners[0].tls_refs = vec!["cert-1".into()]).await;
    let traffic = &balancer["listeners"][0]["traffic"];
    assert_eq!((&traffic["application"], &traffic["certificates"]), (&json!("tls"), &json!(["cert-1"])));
}

async fn its_address_is_of_the_pool() {
    let balancer = made(|spec| spec.address_pool = "public".into()).await;
    assert_eq!(balancer["placement"]["address_pool"], json!("public"));
}

async fn it_is_in_the_subnets() {
    let balancer = made(|spec| spec.subnets = vec!["s-1".into(), "s-2".into()]).await;
    assert_eq!(balancer["placement"]["subnets"], json!(["s-1", "s-2"]));
}

async fn it_is_as_large() {
    let balancer = made(|spec| spec.size = "large".into()).await;
    assert_eq!(balancer["placement"]["size"], json!("large"));
}

async fn it_runs_in_the_zone() {
    let balancer = made(|spec| spec.zone = "z1".into()).await;
    assert_eq!(balancer["placement"]["zone"], json!("z1"));
}

async fn it_is_called_as_wished() {
    let balancer = made(|spec| spec.name = "Shop_web.1".into()).await;
    assert_eq!(balancer["name"], json!("Shop_web.1"));
}

async fn members_are_chosen_as_asked_for() {
    let balancer = made(|spec| spec.listeners[0].set_algorithm(Algorithm::LeastConnections)).await;
    assert_eq!(balancer["pools"][0]["algorithm"], json!("least_connections"));
}

async fn it_understands_http() {
    let balancer = made(|spec| spec.listeners[0].set_application(Application::Http)).await;
    assert_eq!(balancer["listeners"][0]["traffic"]["application"], json!("http"));
}

async fn a_member_has_so_long_to_answer() {
    let timeout = prost_types::Duration { seconds: 7, nanos: 0 };
    let balancer = made(|spec| spec.listeners[0].connect_timeout = Some(timeout)).await;
    assert_eq!(balancer["listeners"][0]["traffic"]["connect_timeout"], json!(7));
}

async fn so_many_may_connect() {
    let balancer = made(|spec| spec.listeners[0].connection_limit = Some(1000)).await;
    assert_eq!(balancer["listeners"][0]["traffic"]["connection_limit"], json!(1000));
}

async fn what_is_spoken_is_noted_as_it_was_said() {
    let said = "kubernetes.io/h2c";
    let balancer = made(|spec| spec.listeners[0].app_protocol = said.into()).await;
    assert_eq!(balancer["listeners"][0]["traffic"]["app_protocol"], json!(said));
}

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

async fn tags_say_whose_it_is() {
    let balancer = made(|_| ()).await;
    for (key, value) in [
        ("cluster-id", "c-1"),
        ("cluster-name", "prod"),
        ("owner-kind", "Service"),
        ("owner-namespace", "shop"),
        ("owner-name", "web"),
        ("owner-uid", "web"),
        ("hash", "1-1"),
    ] {
        assert_eq!(balancer["tags"][format!("cloudadapter.dev/{key}")], json!(value), "{key}");
    }
    assert!(balancer["name"].as_str().is_some_and(|name| name.starts_with("prod-shop-web-")));
}

async fn routes_are_laid_and_removed() {
    let bench = bench().await;
    bench.cloud.machines(1).await;
    bench.change_routes(&[], [route(1, "i-0001")]).await.remove(0).expect("laid");
    let routes = bench.routes().await;
    assert_eq!((routes.len(), routes[0].destination.as_str()), (1, "10.244.1.0/24"));
    bench.change_routes(&[&routes[0].vendor_id], []).await.remove(0).expect("removed");
    assert_eq!(bench.routes().await, []);
}

async fn tags_say_whose_route_it_is() {
    let bench = bench().await;
    bench.cloud.machines(1).await;
    bench.change_routes(&[], [route(1, "i-0001")]).await.remove(0).expect("laid");
    assert_eq!(bench.routes().await[0].key, route(1, "i-0001").upsert.key);
}
