//! Tests of changes to ports, pools and settings of an existing load balancer. Some objects are changed in place, other objects are
//! recreated.

use super::*;

#[test]
fn new_ports_come_before_old_ones_are_deleted() {
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
fn proxy_protocol_switches_pools_without_a_gap() {
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
            "switch listener tcp/80 to its new pool",
            "delete pool tcp-80 (pool-2)",
            "tag load balancer as complete",
        ]
    );
    assert_eq!(record.detail.pools[0].pool.protocol, "PROXYV2");
    assert_eq!(record.summary.addresses[0].ip_mode(), contract::load_balancer_address::IpMode::Proxy);
}

#[test]
fn listener_with_another_protocol_is_recreated() {
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
fn settings_change_in_place_and_back() {
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
    assert_eq!(listener.allowed_cidrs, ["192.0.2.0/24"], "CIDRs of absent IP families are left out");
    assert_eq!(pool.pool.lb_algorithm, "LEAST_CONNECTIONS");
    assert_eq!(
        pool.pool.session_persistence.as_ref().expect("sticky").persistence_timeout,
        None,
        "the field is only for UDP"
    );
    assert_eq!(pool.monitor.as_ref().expect("probed").delay, 20);
    let (record, _) = bench.settled(&web([tcp(80)]));
    assert_eq!(record.detail.pools[0].pool.session_persistence, None);
    assert!(record.detail.listeners[0].allowed_cidrs.is_empty());
}

#[test]
fn monitor_of_another_type_is_recreated() {
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
    assert!(
        pool.members
            .as_ref()
            .expect("the Service requested the change")
            .iter()
            .all(|one| one.monitor_port == Some(32_000))
    );
    let (record, _) = bench.settled(&check(health_check::Kind::None));
    assert_eq!(record.detail.pools[0].monitor, None);
}

#[test]
fn default_probe_uses_the_protocol_of_the_port() {
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
fn changes_of_a_user_are_reverted_and_additions_stay() {
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
fn listener_of_a_user_is_taken_over_if_its_port_is_desired() {
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
    assert_eq!(
        record.summary.listeners,
        ["tcp/80"],
        "the listener will be deleted when it is no longer needed"
    );
}
