//! From any state any other is reached.

use proptest::prelude::*;

use super::*;

prop_compose! {
    fn listeners()(ports in prop::collection::btree_map((any::<bool>(), 1_u32..5), (0_u32..3, 0_u8..4, 0_i64..3), 1..5))
        -> Vec<contract::Listener>
    {
        let listener = |((is_tcp, port), (node_port, speaks, idle)): ((bool, u32), (u32, u8, i64))| {
            let mut listener = if is_tcp { tcp(port) } else { udp(port) };
            listener.node_port = Some(30_000 + node_port);
            match speaks {
                1 if is_tcp => listener.proxy_protocol = ProxyProtocol::V2.into(),
                2 if is_tcp => listener.proxy_protocol = ProxyProtocol::V1.into(),
                3 if is_tcp => listener.tls_refs = vec!["a".to_owned(), "b".to_owned()],
                _ => (),
            }
            listener.idle_timeout = if idle > 0 { seconds(idle) } else { None };
            listener
        };
        ports.into_iter().map(listener).collect()
    }
}

prop_compose! {
    fn desired()(
        listeners in listeners(),
        nodes in prop::collection::btree_set(1_u8..6, 0..5),
        is_public in any::<bool>(),
        keep in any::<bool>(),
        sticky in any::<bool>(),
        check in 0_u8..4,
        closed in any::<bool>(),
        algorithm in prop::option::of(prop::sample::select(vec![Algorithm::RoundRobin, Algorithm::SourceIp])),
        tag in prop::option::of("[a-c]"),
        name in prop::sample::select(vec!["", "front", GO]),
        pool in prop::sample::select(vec!["", "dmz", "edge"]),
    ) -> DesiredLoadBalancer {
        let mut wanted = if is_public { public(listeners) } else { web(listeners) };
        wanted.backends = nodes.into_iter().map(backend).collect();
        with(wanted, |spec| {
            if sticky {
                let kind = session_affinity::Kind::ClientIp.into();
                spec.session_affinity = Some(SessionAffinity { kind, timeout: None });
            }
            let kinds = [health_check::Kind::Tcp, health_check::Kind::Http, health_check::Kind::None];
            spec.health_check = kinds.get(usize::from(check)).map(|kind| {
                HealthCheck { kind: (*kind).into(), port: Some(32_000), path: "/".into(), ..HealthCheck::default() }
            });
            if closed {
                spec.source_ranges = vec!["192.0.2.0/24".into(), "10.0.0.0/8".into()];
            }
            if keep {
                spec.address_retention = load_balancer_spec::AddressRetention::Keep.into();
            }
            for listener in &mut spec.listeners {
                listener.algorithm = algorithm.unwrap_or_default().into();
            }
            spec.tags.extend(tag.map(|key| (key, "x".to_owned())));
            name.clone_into(&mut spec.name);
            pool.clone_into(&mut spec.address_pool);
        })
    }
}

fn bench(at_once: bool) -> Bench {
    let mut bench = Bench::new();
    if !at_once {
        bench.options.load_balancer_creation = Creation::PartByPart;
    }
    bench
}

proptest! {
    /// From any state, half-built ones included, any other is reached, by the writes that were foretold.
    #[test]
    fn every_change_settles(
        at_once in any::<bool>(), first in desired(), cut in 0_usize..12, second in desired(), third in desired(),
    ) {
        let mut bench = bench(at_once);
        bench.run(&first, cut);
        bench.settled(&second);
        bench.settled(&third);
        prop_assert_eq!(bench.plan(&third), Ok(vec![]));
        let own = bench.cloud.floating_ips.iter().filter(|one| !one["port_id"].is_null()).count();
        prop_assert_eq!(own, usize::from(third.spec.scheme() == load_balancer_spec::Scheme::Internet));
    }

    /// What is half-built never says that it is complete.
    #[test]
    fn half_built_never_looks_complete(
        at_once in any::<bool>(), first in desired(), second in desired(), cut in 0_usize..12,
    ) {
        let mut bench = bench(at_once);
        for wanted in [&first, &second] {
            let done = bench.run(wanted, cut);
            if !done && first.hash != second.hash && bench.plan(wanted) != Ok(vec![]) && cut > 0 {
                let record = bench.observe().expect("there");
                prop_assert_ne!(record.summary.applied_hash, wanted.hash.as_str());
            }
            bench.settled(wanted);
        }
    }

    /// Nothing is left of what was made and goes, save floating IPs that were to be kept.
    #[test]
    fn deletion_leaves_nothing_behind(at_once in any::<bool>(), first in desired(), second in desired(), cut in 0_usize..12) {
        let mut bench = bench(at_once);
        bench.run(&first, cut);
        bench.run(&second, cut);
        bench.deleted();
        let cloud = &bench.cloud;
        prop_assert!(cloud.balancers.is_empty() && cloud.listeners.is_empty() && cloud.pools.is_empty());
        let kept = [&first, &second].iter().any(|one| one.spec.address_retention() == load_balancer_spec::AddressRetention::Keep);
        prop_assert!(kept || cloud.floating_ips.is_empty());
    }
}
