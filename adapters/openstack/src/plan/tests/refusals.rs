//! Tests of requests that this cloud cannot fulfil, or cannot fulfil without recreating objects. The error names the field at fault.

use super::*;

#[test]
fn immutable_fields_are_reported() {
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

// Behaviour: S28
#[test]
fn immutable_fields_do_not_block_other_changes() {
    type Set = fn(&mut LoadBalancerSpec);
    for (field, change) in [
        ("spec.requested_addresses", (|spec| spec.requested_addresses = vec!["10.0.7.7".into()]) as Set),
        ("spec.subnets", |spec| spec.subnets = vec!["other".into()]),
        ("spec.parameters[network-id]", |spec| parameter("network-id", "other")(spec)),
        ("spec.size", |spec| spec.size = "big".into()),
        ("spec.zone", |spec| spec.zone = "north".into()),
    ] {
        let mut bench = Bench::new();
        let mut desired = web([tcp(80)]);
        bench.settled(&desired);
        desired.backends = [1, 2, 3].map(backend).into();
        let other = with(desired.clone(), |spec| {
            change(spec);
            spec.listeners.push(tcp(443));
        });
        let (writes, error) = bench.refused(&other);
        let coming = ["create pool tcp-443", "add or change 3 members of pool tcp-443"];
        let coming = [&coming[..], &["create the health monitor of pool tcp-443", "create listener tcp/443"]];
        let coming = coming.concat();
        assert_eq!(writes, [&["add or change 1 members of pool tcp-80"], &coming[..]].concat(), "{field}");
        assert_eq!((error.fault, error.fields.as_slice()), (Fault::Immutable, &[field.to_owned()][..]));
        let there = bench.observe().expect("there");
        assert_eq!(there.summary.applied_hash, desired.hash, "it is not marked as complete");
        // After the change is reverted, the load balancer is in sync.
        bench.settled(&desired);
    }
}

#[test]
fn unsupported_requests_are_refused_before_any_write() {
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
fn old_octavia_and_ovn_report_missing_features() {
    let mut bench = Bench::new();
    bench.version = Version::v2(21);
    let proxied = contract::Listener { proxy_protocol: ProxyProtocol::V2.into(), ..tcp(80) };
    let error = bench.plan(&web([proxied])).expect_err("Octavia is too old");
    assert!(error.message.contains("Octavia API has version 2.21, but this feature needs 2.22"), "{error}");
    bench.options.load_balancer_provider = Some("ovn".to_owned());
    let (record, _) = bench.settled(&web([tcp(80)]));
    assert_eq!(record.detail.pools[0].pool.lb_algorithm, "SOURCE_IP_PORT");
    let round = contract::Listener { algorithm: Algorithm::RoundRobin.into(), ..tcp(80) };
    assert_eq!(bench.plan(&web([round])).expect_err("ovn does not support it").fault, Fault::Unsupported);
    bench.options.load_balancer_provider = Some("f5".to_owned());
    let by_port = contract::Listener { algorithm: Algorithm::SourceIpPort.into(), ..tcp(80) };
    bench.settled(&web([by_port]));
}

/// See cpo#829. Octavia refuses all other monitors of UDP pools, and the controller would repeat the request forever.
#[test]
fn udp_probes_by_http_or_tcp_need_a_new_octavia() {
    use health_check::Kind;
    let probed = |kind: Kind, port: Option<u32>, listeners: &[contract::Listener]| {
        let check =
            HealthCheck { kind: kind.into(), port, path: "/healthz".into(), ..HealthCheck::default() };
        with(web(listeners.to_vec()), |spec| spec.health_check = Some(check))
    };
    let mixed = [tcp(53), udp(53)];
    for (minor, kind, port, listeners, can) in [
        (15, Kind::Http, Some(32_000), &mixed[1..], false),
        (15, Kind::Http, Some(32_000), &mixed[..], false),
        (15, Kind::Tcp, Some(30_053), &mixed[1..], false),
        (15, Kind::Tcp, Some(30_053), &mixed[..], true),
        (15, Kind::Http, Some(32_000), &mixed[..1], true),
        (15, Kind::Tcp, None, &mixed[..], true),
        (15, Kind::None, Some(32_000), &mixed[..], true),
        (16, Kind::Http, Some(32_000), &mixed[..], true),
    ] {
        let mut bench = Bench::new();
        bench.version = Version::v2(minor);
        let desired = probed(kind, port, listeners);
        match bench.plan(&desired) {
            Ok(_) => {
                assert!(can, "2.{minor} {kind:?} {port:?}");
                let (record, _) = bench.settled(&desired);
                let of_udp =
                    record.detail.pools.iter().filter(|tree| tree.pool.protocol == "UDP" && minor < 16);
                for tree in of_udp {
                    assert!(tree.monitor.as_ref().is_none_or(|one| one.kind == "UDP-CONNECT"));
                    let mut members = tree.members.iter().flat_map(|all| all.iter());
                    assert!(kind == Kind::None || members.all(|one| one.monitor_port.is_none()));
                }
            }
            Err(error) => {
                assert!(!can, "{error}");
                assert_eq!(error.fields, ["spec.health_check.kind"]);
                assert!(
                    error.message.contains("Octavia API has version 2.15, but this feature needs 2.16"),
                    "{error}"
                );
            }
        }
    }
}

#[test]
fn missing_subnet_is_taken_from_a_node_or_reported() {
    let mut bench = Bench::new();
    bench.options.subnet_id = None;
    let mut alone = web([tcp(80)]);
    let Step::CreateLoadBalancer(new) = &bench.plan(&alone).expect("the VIP is in the subnet of a node")[0]
    else {
        panic!("the step is not a create")
    };
    let beside = new.beside.as_ref().expect("no subnet is configured");
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
