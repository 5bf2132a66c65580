//! Plans, carried out on a small cloud in memory, one first step after the other: what is foretold must come true, and settle.

mod bench;
mod floating_ips;
mod random;

use std::net::IpAddr;

use cloud_adapter::driver::{DesiredLoadBalancer, Fault};
use cloud_api_proto::v1alpha1::{
    self as contract, Backend, HealthCheck, LoadBalancerKey, LoadBalancerSpec, Owner, Protocol,
    SessionAffinity, health_check,
    listener::{Algorithm, Application, ProxyProtocol},
    load_balancer_spec, session_affinity,
};
use serde_json::json;

use self::bench::{Bench, Record, set};
use crate::{
    load_balancers::{
        answers::Listener,
        settings::{Creation, Version},
    },
    ownership,
    step::Step,
};

/// How the Go cloud controller manager calls the load balancer of `shop/web`.
const GO: &str = "kube_service_prod_shop_web";

fn tcp(port: u32) -> contract::Listener {
    contract::Listener {
        protocol: Protocol::Tcp.into(),
        port,
        node_port: Some(30_000 + port % 1000),
        ..contract::Listener::default()
    }
}

fn udp(port: u32) -> contract::Listener {
    contract::Listener { protocol: Protocol::Udp.into(), ..tcp(port) }
}

/// An internal load balancer for the Service `shop/web` with two backends.
fn web(listeners: impl Into<Vec<contract::Listener>>) -> DesiredLoadBalancer {
    let spec = LoadBalancerSpec {
        scheme: load_balancer_spec::Scheme::Internal.into(),
        ip_families: vec![contract::IpFamily::Ipv4.into()],
        listeners: listeners.into(),
        ..LoadBalancerSpec::default()
    };
    let word = |word: &str| word.to_owned();
    hashed(DesiredLoadBalancer {
        key: LoadBalancerKey { cluster_id: word("c-1"), owner_uid: word("u-1") },
        owner: Owner { kind: word("Service"), namespace: word("shop"), name: word("web"), uid: word("u-1") },
        cluster_name: word("prod"),
        spec,
        backends: [backend(1), backend(2)].into(),
        hash: String::new(),
    })
}

/// The same with a floating IP.
fn public(listeners: impl Into<Vec<contract::Listener>>) -> DesiredLoadBalancer {
    with(web(listeners), |spec| spec.scheme = load_balancer_spec::Scheme::Internet.into())
}

fn backend(n: u8) -> Backend {
    Backend {
        provider_id: format!("openstack:///i-{n}"),
        node_name: format!("node-{n}"),
        addresses: vec![format!("10.0.0.{n}"), format!("fd00::{n}")],
        ..Backend::default()
    }
}

/// As the runtime does: the hash follows the specification.
fn hashed(mut desired: DesiredLoadBalancer) -> DesiredLoadBalancer {
    desired.hash = format!("1-{}", ownership::digest(&[&format!("{:?}", desired.spec)]));
    desired
}

fn with(mut desired: DesiredLoadBalancer, change: impl FnOnce(&mut LoadBalancerSpec)) -> DesiredLoadBalancer {
    change(&mut desired.spec);
    hashed(desired)
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
fn a_new_load_balancer_costs_one_write_however_many_ports() {
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
fn part_by_part_it_is_complete_with_the_last_write_only() {
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
fn a_node_that_joins_costs_one_write_a_pool_and_no_tag() {
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
fn a_draining_backend_gets_no_new_connections() {
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
fn ports_come_before_others_go_and_their_pools_are_complete_before_they_do() {
    let mut bench = Bench::new();
    bench.settled(&web([tcp(80), tcp(443)]));
    let (record, writes) = bench.settled(&web([tcp(443), tcp(8080)]));
    assert_eq!(
        writes,
        [
            "create pool tcp-8080",
            "add or change 2 members of pool tcp-8080",
            "create the health monitor of pool tcp-8080",
            "create listener tcp/8080",
            "delete listener tcp/80",
            "delete pool tcp-80 (pool-2)",
            "tag load balancer as complete",
        ]
    );
    assert_eq!(record.detail.pools.len(), 2);
}

#[test]
fn the_proxy_protocol_comes_with_another_pool_and_without_a_gap() {
    let mut bench = Bench::new();
    bench.settled(&web([tcp(80)]));
    let proxied = contract::Listener { proxy_protocol: ProxyProtocol::V2.into(), ..tcp(80) };
    let (record, writes) = bench.settled(&web([proxied]));
    assert_eq!(
        writes,
        [
            "create pool tcp-80",
            "add or change 2 members of pool tcp-80",
            "create the health monitor of pool tcp-80",
            "give listener tcp/80 its new pool",
            "delete pool tcp-80 (pool-2)",
            "tag load balancer as complete",
        ]
    );
    assert_eq!(record.detail.pools[0].pool.protocol, "PROXYV2");
    assert_eq!(record.summary.addresses[0].ip_mode(), contract::load_balancer_address::IpMode::Proxy);
}

#[test]
fn a_listener_that_speaks_otherwise_is_made_anew_and_keeps_a_pool_that_fits() {
    let mut bench = Bench::new();
    let http = contract::Listener { application: Application::Http.into(), ..tcp(443) };
    let (record, _) = bench.settled(&web([http]));
    assert_eq!(record.detail.listeners[0].protocol, "HTTP");
    let tls = contract::Listener {
        tls_refs: vec!["https://barbican/v1/containers/a".to_owned()],
        application: Application::Https.into(),
        ..tcp(443)
    };
    let (record, writes) = bench.settled(&web([tls]));
    assert_eq!(
        writes,
        ["delete listener tcp/443", "create listener tcp/443", "tag load balancer as complete"]
    );
    let listener = &record.detail.listeners[0];
    assert_eq!(listener.protocol, "TERMINATED_HTTPS");
    assert_eq!(listener.default_tls_container_ref.as_deref(), Some("https://barbican/v1/containers/a"));
    assert_eq!(listener.insert_headers.get("X-Forwarded-For").map(String::as_str), Some("true"));
}

#[test]
fn settings_of_listeners_pools_and_monitors_change_in_place_and_back() {
    let mut bench = Bench::new();
    bench.settled(&web([tcp(80)]));
    let desired = with(web([tcp(80)]), |spec| {
        spec.listeners[0].idle_timeout = seconds(90);
        spec.source_ranges = vec!["192.0.2.7/24".into(), "2001:db8::/32".into()];
        spec.session_affinity =
            Some(SessionAffinity { kind: session_affinity::Kind::ClientIp.into(), timeout: seconds(600) });
        spec.health_check = Some(HealthCheck { interval: seconds(20), ..HealthCheck::default() });
        spec.listeners[0].connection_limit = Some(9);
        spec.listeners[0].connect_timeout = seconds(7);
        spec.listeners[0].algorithm = Algorithm::LeastConnections.into();
        parameter("timeout-tcp-inspect", "1s")(spec);
    });
    let (record, writes) = bench.settled(&desired);
    let both = ["update pool tcp-80", "update the health monitor of pool tcp-80", "update listener tcp/80"];
    assert_eq!(writes, [&both[..], &["tag load balancer as complete"]].concat());
    let (listener, pool) = (&record.detail.listeners[0], &record.detail.pools[0]);
    assert_eq!((listener.timeout_client_data, listener.timeout_member_connect), (Some(90_000), Some(7_000)));
    assert_eq!((listener.timeout_tcp_inspect, listener.connection_limit), (Some(1_000), Some(9)));
    assert_eq!(listener.allowed_cidrs, ["192.0.2.0/24"], "those of families that nobody has are left out");
    assert_eq!(pool.pool.lb_algorithm, "LEAST_CONNECTIONS");
    assert_eq!(
        pool.pool.session_persistence.as_ref().expect("sticky").persistence_timeout,
        None,
        "of UDP alone"
    );
    assert_eq!(pool.monitor.as_ref().expect("probed").delay, 20);
    let (record, _) = bench.settled(&web([tcp(80)]));
    assert_eq!(record.detail.pools[0].pool.session_persistence, None);
    assert!(record.detail.listeners[0].allowed_cidrs.is_empty());
}

#[test]
fn a_probe_of_another_kind_comes_after_the_old_one_has_gone() {
    let mut bench = Bench::new();
    bench.settled(&web([tcp(80)]));
    let check = |kind: health_check::Kind| {
        with(web([tcp(80)]), |spec| {
            let path = "/healthz".to_owned();
            spec.health_check =
                Some(HealthCheck { kind: kind.into(), port: Some(32_000), path, ..HealthCheck::default() });
        })
    };
    let (record, writes) = bench.settled(&check(health_check::Kind::Http));
    assert_eq!(
        writes,
        [
            "add or change 2 members of pool tcp-80",
            "delete the health monitor of pool tcp-80",
            "create the health monitor of pool tcp-80",
            "tag load balancer as complete",
        ]
    );
    let pool = &record.detail.pools[0];
    assert_eq!(pool.monitor.as_ref().expect("probed").url_path.as_deref(), Some("/healthz"));
    assert!(pool.members.as_ref().expect("asked for").iter().all(|one| one.monitor_port == Some(32_000)));
    let (record, _) = bench.settled(&check(health_check::Kind::None));
    assert_eq!(record.detail.pools[0].monitor, None);
}

#[test]
fn what_nobody_else_tells_is_probed_by_its_own_protocol() {
    for (listener, port, kind) in [
        (tcp(80), None, "TCP"),
        (udp(53), None, "UDP-CONNECT"),
        (udp(53), Some(10_256), "TCP"),
        (contract::Listener { protocol: Protocol::Sctp.into(), ..tcp(9) }, None, "SCTP"),
    ] {
        let desired = with(web([listener]), |spec| {
            spec.health_check = Some(HealthCheck { port, ..HealthCheck::default() });
        });
        let (record, _) = Bench::new().settled(&desired);
        assert_eq!(record.detail.pools[0].monitor.as_ref().expect("probed").kind, kind);
    }
}

#[test]
fn what_a_person_changed_at_the_vendor_is_put_right_and_what_a_person_made_stays() {
    let mut bench = Bench::new();
    let desired = web([tcp(80)]);
    let (record, _) = bench.settled(&desired);
    let (id, pool) = (record.summary.vendor_id, record.detail.pools[0].pool.id.clone());
    let foreign =
        bench.create_pool(&id, &json!({ "name": "mine", "protocol": "TCP", "lb_algorithm": "SOURCE_IP" }));
    bench.create_listener(
        &id,
        Some(&foreign),
        &json!({ "name": "mine", "protocol": "TCP", "protocol_port": 22 }),
    );
    bench.cloud.members.insert(pool, Vec::new());
    set(&mut bench.cloud.listeners, "listener-4", &json!({ "timeout_client_data": 1 }));
    let (record, writes) = bench.settled(&desired);
    assert_eq!(writes, ["add or change 2 members of pool tcp-80", "update listener tcp/80"]);
    assert_eq!(record.summary.listeners, ["tcp/22", "tcp/80"]);
    bench.cloud.listeners.retain(|one| one["protocol_port"] != 80);
    assert_eq!(bench.settled(&desired).1, ["create listener tcp/80"]);
}

#[test]
fn a_port_that_a_person_opened_becomes_ours_with_its_pool_when_it_is_wanted() {
    let mut bench = Bench::new();
    let (record, _) = bench.settled(&web([tcp(80)]));
    let id = record.summary.vendor_id;
    let pool =
        bench.create_pool(&id, &json!({ "name": "mine", "protocol": "TCP", "lb_algorithm": "SOURCE_IP" }));
    let listener = json!({ "name": "mine", "protocol": "TCP", "protocol_port": 8080, "tags": ["theirs"] });
    bench.create_listener(&id, Some(&pool), &listener);
    let (record, writes) = bench.settled(&web([tcp(80), tcp(8080)]));
    assert!(!writes.iter().any(|write| write.starts_with("create listener")), "{writes:#?}");
    let theirs = record.detail.listeners.iter().find(|one| one.name == "mine").expect("stays");
    assert_eq!(theirs.tags, ["theirs", "cloudadapter.dev/owner-uid=u-1"]);
    let (record, _) = bench.settled(&web([tcp(80)]));
    assert_eq!(record.summary.listeners, ["tcp/80"], "and goes when it is not wanted any more");
}

/// The Go cloud controller manager's load balancer for `shop/web`, as it was with these ports.
fn of_go(bench: &mut Bench, desired: &DesiredLoadBalancer) {
    bench.settled(desired);
    set(&mut bench.cloud.balancers, "lb-1", &json!({ "name": GO, "tags": [GO] }));
    for (n, listener) in bench.cloud.listeners.iter_mut().enumerate() {
        listener["tags"] = json!([GO]);
        listener["name"] = json!(format!("listener_{n}_{GO}"));
    }
    for (n, pool) in bench.cloud.pools.iter_mut().enumerate() {
        pool["tags"] = json!([]);
        pool["name"] = json!(format!("pool_{n}_{GO}"));
    }
    for ip in &mut bench.cloud.floating_ips {
        ip["description"] = json!("Floating IP for Kubernetes external service shop/web from cluster prod");
    }
}

#[test]
fn one_of_the_go_controller_is_taken_over_with_its_parts() {
    let mut bench = Bench::new();
    of_go(&mut bench, &web([tcp(80), tcp(443)]));
    let (record, writes) = bench.settled(&web([tcp(80)]));
    assert_eq!(
        writes,
        [
            "tag load balancer lb-1 as ours",
            "update pool pool_0_kube_service_prod_shop_web",
            "update listener tcp/80",
            "delete listener tcp/443",
            "delete pool pool_1_kube_service_prod_shop_web (pool-5)",
            "tag load balancer as complete",
        ]
    );
    assert!(record.detail.balancer.expect("there").tags.contains(&GO.to_owned()), "the tags of others stay");
    let (record, _) = bench.settled(&web([tcp(80), tcp(8080)]));
    let takes_back = |one: &Listener| one.tags.contains(&GO.to_owned());
    assert!(record.detail.listeners.iter().all(takes_back), "it could go back");
}

#[test]
fn one_of_the_go_controller_that_is_public_keeps_its_address() {
    let mut bench = Bench::new();
    let desired = public([tcp(80)]);
    of_go(&mut bench, &desired);
    let before = addresses(&bench.observe().expect("there"));
    let (record, writes) = bench.settled(&desired);
    assert_eq!(
        writes,
        [
            "tag load balancer lb-1 as ours",
            "update pool pool_0_kube_service_prod_shop_web",
            "update listener tcp/80",
            "describe floating IP 203.0.113.5 as ours",
            "tag load balancer as complete",
        ]
    );
    assert_eq!(addresses(&record), before);
}

#[test]
fn one_of_the_go_controller_that_was_not_taken_over_goes_with_its_address() {
    let mut bench = Bench::new();
    of_go(&mut bench, &public([tcp(80)]));
    assert_eq!(
        bench.deleted(),
        ["delete floating IP 203.0.113.5", "delete load balancer lb-1 with all its parts"],
        "the other way round nobody would find the address"
    );
    assert!(bench.cloud.floating_ips.is_empty());
}

#[test]
fn what_a_service_says_of_its_place_and_size_comes_before_the_flags() {
    let mut bench = Bench::new();
    bench.options.network_id = Some("net".to_owned());
    let desired = with(web([tcp(80)]), |spec| {
        spec.ip_families = [contract::IpFamily::Ipv6, contract::IpFamily::Ipv4].map(i32::from).into();
        spec.subnets = vec!["subnet-6".into(), "subnet-44".into()];
        (spec.size, spec.zone) = ("big".into(), "north".into());
    });
    let (record, _) = bench.settled(&desired);
    let balancer = record.detail.balancer.expect("there");
    assert_eq!(balancer.vip_subnet_id.as_deref(), Some("subnet-6"));
    assert_eq!(balancer.additional_vips[0].subnet_id.as_deref(), Some("subnet-44"));
    assert_eq!(
        (balancer.flavor_id.as_deref(), balancer.availability_zone.as_deref()),
        (Some("big"), Some("north"))
    );
    assert_eq!(bench.plan(&desired), Ok(vec![]));
}

#[test]
fn two_families_have_an_address_each_and_packets_stay_in_theirs() {
    let both = |listener| {
        with(web([listener]), |spec| {
            spec.ip_families = [contract::IpFamily::Ipv6, contract::IpFamily::Ipv4].map(i32::from).into();
        })
    };
    let (record, _) = Bench::new().settled(&both(tcp(80)));
    assert_eq!(addresses(&record), ["fd00::9", "10.0.0.9"]);
    assert_eq!(members(&record).len(), 2, "a proxy needs one a node");
    let (record, _) = Bench::new().settled(&both(udp(53)));
    assert_eq!(members(&record).len(), 4);
}

#[test]
fn one_that_takes_the_place_of_another_asks_for_its_addresses() {
    let both = |spec: &mut LoadBalancerSpec| {
        spec.ip_families = [contract::IpFamily::Ipv4, contract::IpFamily::Ipv6].map(i32::from).into();
    };
    let dual = with(web([tcp(80)]), both);
    let elsewhere = with(dual.clone(), |spec| spec.subnets = vec!["other".into()]);
    let given = with(dual.clone(), |spec| spec.requested_addresses = vec!["10.0.0.77".into()]);
    let network = with(web([tcp(80)]), parameter("network-id", "net"));
    for (what, first, second, wanted) in [
        ("the same", &dual, &dual, &["10.0.0.9", "fd00::9"][..]),
        ("of another subnet", &dual, &elsewhere, &["10.0.0.10", "fd00::9"]),
        ("asked for", &dual, &given, &["10.0.0.77", "fd00::9"]),
        ("of a network", &network, &network, &["10.0.0.9"]),
    ] {
        let mut bench = Bench::new();
        let (former, _) = bench.settled(first);
        bench.deleted();
        bench.next_address = 10;
        assert_eq!(addresses(&bench.again(second, &former)), wanted, "{what}");
    }
    let mut bench = Bench::new();
    let (mut former, _) = bench.settled(&dual);
    bench.deleted();
    bench.next_address = 10;
    let balancer = former.detail.balancer.as_mut().expect("there");
    (balancer.vip_address, balancer.additional_vips) = (None, Vec::new());
    assert_eq!(addresses(&bench.again(&dual, &former)), ["10.0.0.10", "fd00::10"], "it never had any");
    bench.deleted();
    let balancer = former.detail.balancer.as_mut().expect("there");
    let six = json!([{ "ip_address": "fd00::f816:3eff:fefa:5aec", "subnet_id": "subnet-6" }]);
    balancer.additional_vips = serde_json::from_value(six).expect("an address");
    assert_eq!(addresses(&bench.again(&dual, &former)), ["10.0.0.10", "fd00::10"], "made of a MAC");
}

#[test]
fn what_cannot_change_in_place_is_named() {
    let mut bench = Bench::new();
    bench.settled(&web([tcp(80)]));
    type Set = fn(&mut LoadBalancerSpec);
    for (field, change) in [
        ("spec.ip_families", (|spec| spec.ip_families.push(contract::IpFamily::Ipv6.into())) as Set),
        ("spec.requested_addresses", |spec| spec.requested_addresses = vec!["10.0.7.7".into()]),
        ("spec.subnets", |spec| spec.subnets = vec!["other".into()]),
        ("spec.parameters[network-id]", |spec| parameter("network-id", "other")(spec)),
        ("spec.size", |spec| spec.size = "big".into()),
        ("spec.zone", |spec| spec.zone = "north".into()),
    ] {
        let error = bench.plan(&with(web([tcp(80)]), change)).expect_err("cannot");
        assert_eq!((error.fault, error.fields.as_slice()), (Fault::Immutable, &[field.to_owned()][..]));
    }
}

#[test]
fn what_this_cloud_cannot_do_is_refused_before_anything_is_made() {
    type Set = fn(&mut LoadBalancerSpec);
    for (field, fault, change) in [
        ("spec.listeners[0].node_port", Fault::Invalid, (|spec| spec.listeners[0].node_port = None) as Set),
        ("spec.listeners[0].idle_timeout", Fault::Invalid, |spec| {
            spec.listeners[0].idle_timeout = seconds(0);
        }),
        ("spec.listeners[0].proxy_protocol", Fault::Unsupported, |spec| {
            spec.listeners[0].protocol = Protocol::Udp.into();
            spec.listeners[0].proxy_protocol = ProxyProtocol::V1.into();
        }),
        ("spec.listeners[0].application", Fault::Unsupported, |spec| {
            spec.listeners[0].application = Application::Tls.into();
        }),
        ("spec.listeners[0].application", Fault::Unsupported, |spec| {
            spec.listeners[0].protocol = Protocol::Udp.into();
            spec.listeners[0].application = Application::Http.into();
        }),
        ("spec.listeners[0].tls_refs", Fault::Invalid, |spec| {
            spec.listeners[0].application = Application::Https.into();
        }),
        ("spec.listeners[0].algorithm", Fault::Unsupported, |spec| {
            spec.listeners[0].algorithm = Algorithm::SourceIpPort.into();
        }),
        ("spec.subnets", Fault::Invalid, |spec| spec.subnets = vec!["subnet-4".into(), "subnet-6".into()]),
        ("spec.listeners[0].tls_refs", Fault::Unsupported, |spec| {
            spec.listeners[0].protocol = Protocol::Udp.into();
            spec.listeners[0].tls_refs.push("cert".into());
        }),
        ("spec.source_ranges", Fault::Invalid, |spec| spec.source_ranges.push("2001:db8::/32".into())),
        ("spec.requested_addresses[0]", Fault::Invalid, |spec| {
            spec.requested_addresses.push("fd00::1".into());
        }),
        ("spec.requested_addresses[1]", Fault::Invalid, |spec| {
            spec.requested_addresses = vec!["10.0.0.1".into(), "10.0.0.2".into()];
        }),
        ("spec.tags[cloudadapter.dev/hash]", Fault::Invalid, |spec| {
            spec.tags.insert("cloudadapter.dev/hash".into(), "1-fake".into());
        }),
        ("spec.health_check.timeout", Fault::Invalid, |spec| {
            spec.health_check =
                Some(HealthCheck { interval: seconds(5), timeout: seconds(9), ..HealthCheck::default() });
        }),
        ("spec.health_check.healthy_threshold", Fault::Invalid, |spec| {
            spec.health_check = Some(HealthCheck { healthy_threshold: Some(11), ..HealthCheck::default() });
        }),
    ] {
        let error = Bench::new().plan(&with(web([tcp(80)]), change)).expect_err(field);
        assert_eq!((error.fault, error.fields.as_slice()), (fault, &[field.to_owned()][..]), "{error}");
    }
}

#[test]
fn an_old_octavia_or_one_without_proxies_says_what_it_lacks() {
    let mut bench = Bench::new();
    bench.version = Version::v2(21);
    let proxied = contract::Listener { proxy_protocol: ProxyProtocol::V2.into(), ..tcp(80) };
    let error = bench.plan(&web([proxied])).expect_err("too old");
    assert!(error.message.contains("Octavia API is 2.21, and it needs 2.22"), "{error}");
    bench.options.load_balancer_provider = Some("ovn".to_owned());
    let (record, _) = bench.settled(&web([tcp(80)]));
    assert_eq!(record.detail.pools[0].pool.lb_algorithm, "SOURCE_IP_PORT");
    let round = contract::Listener { algorithm: Algorithm::RoundRobin.into(), ..tcp(80) };
    assert_eq!(bench.plan(&web([round])).expect_err("ovn cannot").fault, Fault::Unsupported);
    bench.options.load_balancer_provider = Some("f5".to_owned());
    let by_port = contract::Listener { algorithm: Algorithm::SourceIpPort.into(), ..tcp(80) };
    bench.settled(&web([by_port]));
}

#[test]
fn without_a_subnet_it_goes_beside_a_node_or_the_missing_one_is_named() {
    let mut bench = Bench::new();
    bench.options.subnet_id = None;
    let mut alone = web([tcp(80)]);
    let Step::CreateLoadBalancer(new) = &bench.plan(&alone).expect("beside a node")[0] else {
        panic!("no create")
    };
    let beside = new.beside.as_ref().expect("where nobody says a subnet");
    assert_eq!(
        (beside.provider_id.as_str(), beside.address.to_string()),
        ("openstack:///i-1", "10.0.0.1".into())
    );
    alone.backends = [].into();
    let error = bench.plan(&alone).expect_err("no subnet and no node");
    assert_eq!(error.fields, ["spec.subnets"]);
    assert!(error.message.contains("--subnet-id"), "{error}");
    bench.settled(&with(web([tcp(80)]), parameter("network-id", "net")));
}

#[test]
fn deletion_is_one_write_and_none_while_it_is_under_way() {
    let mut bench = Bench::new();
    bench.settled(&web([tcp(80), tcp(443)]));
    set(&mut bench.cloud.balancers, "lb-1", &json!({ "provisioning_status": "PENDING_DELETE" }));
    assert!(bench.deleted().is_empty());
    set(&mut bench.cloud.balancers, "lb-1", &json!({ "provisioning_status": "ERROR" }));
    assert_eq!(bench.deleted(), ["delete load balancer lb-1 with all its parts"]);
    assert_eq!(bench.observe(), None);
}
