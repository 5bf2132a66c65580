//! Tests with random sequences of desired states. Each sequence is interrupted at a random write.

use proptest::prelude::*;

use super::*;

prop_compose! {
    fn listeners()(ports in prop::collection::btree_map((any::<bool>(), 1_u32..6), (0_u32..3, any::<bool>(), 0_i64..3), 1..6))
        -> Vec<contract::Listener>
    {
        let listener = |((is_tcp, port), (node_port, proxied, idle)): ((bool, u32), (u32, bool, i64))| {
            let mut listener = if is_tcp { tcp(port) } else { udp(port) };
            listener.node_port = Some(30_000 + node_port);
            if is_tcp && proxied {
                listener.proxy_protocol = ProxyProtocol::V2.into();
            }
            listener.idle_timeout = (idle > 0).then_some(prost_types::Duration { seconds: idle, nanos: 0 });
            listener
        };
        ports.into_iter().map(listener).collect()
    }
}

prop_compose! {
    fn desired()(
        listeners in listeners(),
        nodes in prop::collection::btree_set(1_u8..6, 0..5),
        sticky in any::<bool>(),
        check in 0_u8..4,
        closed in any::<bool>(),
        algorithm in prop::option::of(prop::sample::select(vec!["round-robin", "source-ip"])),
        tag in prop::option::of("[a-c]"),
        name in prop::sample::select(vec!["", "front", "back"]),
    ) -> DesiredLoadBalancer {
        let mut wanted = web(listeners);
        wanted.backends = nodes.into_iter().map(backend).collect();
        with(wanted, |spec| {
            if sticky {
                let kind = session_affinity::Kind::ClientIp.into();
                spec.session_affinity = Some(SessionAffinity { kind, timeout: None });
            }
            let kind = [health_check::Kind::Tcp, health_check::Kind::Http, health_check::Kind::None].get(usize::from(check));
            spec.health_check = kind.map(|kind| HealthCheck { kind: (*kind).into(), port: Some(32_000), path: "/".into(), ..HealthCheck::default() });
            if closed {
                spec.source_ranges = vec!["192.0.2.0/24".into(), "10.0.0.0/8".into()];
            }
            spec.parameters.extend(algorithm.map(|word| ("algorithm".to_owned(), word.to_owned())));
            spec.tags.extend(tag.map(|key| (key, "x".to_owned())));
            name.clone_into(&mut spec.name);
        })
    }
}

proptest! {
    /// The predicted writes lead from any state, including incomplete states, to any other state.
    #[test]
    fn every_change_converges(first in desired(), cut in 0_usize..12, second in desired(), third in desired()) {
        let mut bench = Bench::new();
        bench.run(&first, cut);
        bench.settled(&second);
        bench.settled(&third);
        prop_assert_eq!(bench.plan(&third), Ok(vec![]));
    }

    #[test]
    fn half_built_load_balancer_is_never_complete(first in desired(), second in desired(), cut in 0_usize..12) {
        let mut bench = Bench::new();
        bench.settled(&first);
        let done = bench.run(&second, cut);
        if !done && first.hash != second.hash && bench.plan(&second) != Ok(vec![]) {
            let record = bench.observe().expect("there");
            prop_assert_ne!(record.summary.applied_hash, second.hash);
        }
    }
}
