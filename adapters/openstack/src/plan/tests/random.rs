//! Tests that plans reach any state from any other state.

use proptest::prelude::*;

use super::{adopted::by_hand, shared::sharer, *};

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
    /// Planned writes reach any state from any other state, including incomplete states.
    #[test]
    fn every_change_converges(
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

    #[test]
    fn half_built_load_balancer_is_never_complete(
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

    /// After a deletion nothing is left, except floating IPs that are kept.
    #[test]
    fn deletion_leaves_no_objects(at_once in any::<bool>(), first in desired(), second in desired(), cut in 0_usize..12) {
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

/// An action of one of several Services. Either the first Service owns the load balancer and the others share it, or all share a load
/// balancer that a user created.
#[derive(Clone, Debug)]
enum Disturbance {
    /// The Service requests this load balancer. After this number of writes, the next action follows or the adapter is killed.
    Wants(usize, Box<DesiredLoadBalancer>, usize),
    /// The Service is deleted, either immediately with all its parts, or at the end.
    Goes(usize, usize, bool),
}

prop_compose! {
    fn disturbance(hers: bool)(
        who in 0_usize..3, goes in 0_u8..8, cut in 0_usize..9, listeners in listeners(), is_public in any::<bool>(),
    ) -> Disturbance {
        if goes < 2 {
            return Disturbance::Goes(who, cut, goes == 0);
        }
        let balancer = if hers { "hers" } else { "lb-1" };
        let wanted = match (who, is_public) {
            (0, _) if hers => sharer("web", balancer, listeners),
            (0, true) => public(listeners),
            (0, false) => web(listeners),
            (who, _) => sharer(&format!("s{who}"), balancer, listeners),
        };
        Disturbance::Wants(who, Box::new(wanted), cut)
    }
}

/// Returns all objects that do not belong to this key: tags, listeners, and pools with their contents.
fn of_others(bench: &Bench, key: &LoadBalancerKey) -> Vec<serde_json::Value> {
    let (part, sharer) = (ownership::part_tag(key), format!("/sharer/{}/", key.owner_uid));
    let own =
        |one: &serde_json::Value| one["tags"].as_array().is_some_and(|tags| tags.contains(&json!(part)));
    let cloud = &bench.cloud;
    let parts = cloud.listeners.iter().chain(&cloud.pools).filter(|one| !own(one));
    let pools = cloud.pools.iter().filter(|one| !own(one)).filter_map(|one| one["id"].as_str());
    let members = pools.map(|id| json!(cloud.members.get(id)));
    let tags = cloud.balancers.iter().flat_map(|one| one["tags"].as_array().cloned().unwrap_or_default());
    let tags =
        tags.filter(|tag| tag.as_str().is_some_and(|tag| tag.contains("/sharer/") && !tag.contains(&sharer)));
    parts.cloned().chain(members).chain(tags).collect()
}

/// Executes at most this number of steps for a key, and checks that no step changes objects of other keys. Returns whether no step is left.
fn some_steps(bench: &mut Bench, desired: &DesiredLoadBalancer, goes: bool, most: usize) -> bool {
    for _ in 0..most {
        let step = match goes {
            true => bench.next_of_removal(desired),
            // If the port belongs to another user or the load balancer no longer exists, there is no step, and the Service waits.
            false => bench.plan_if_there(desired).unwrap_or_default().into_iter().next(),
        };
        let Some(step) = step else { return true };
        let (before, used) = (of_others(bench, &desired.key), bench.cloud.balancers.len());
        bench.execute(&step);
        let deleted = bench.cloud.balancers.len() < used;
        assert!(deleted || of_others(bench, &desired.key) == before, "{step} changes objects of others");
        assert!(!deleted || before.iter().all(|one| !one.is_string()), "{step}: others still share it");
    }
    false
}

proptest! {
    /// Services start to use a load balancer, change it and leave it in any order. They are interrupted after any write. Each Service
    /// changes only its own listeners and pools, and the load balancer exists while any Service uses it. In the end, only objects that
    /// users created are left.
    // Behaviour: SF14
    #[test]
    fn sharing_services_change_only_their_own_parts(
        (hers, disturbances, order) in any::<bool>().prop_flat_map(|hers| {
            let order = Just([0_usize, 1, 2]).prop_shuffle();
            (Just(hers), prop::collection::vec(disturbance(hers), 1..14), order)
        }),
        cut in 1_usize..4,
    ) {
        let mut bench = Bench::new();
        if hers {
            by_hand(&mut bench);
        }
        let before = bench.cloud.clone();
        let mut wishes: [Option<DesiredLoadBalancer>; 3] = [None, None, None];
        let mut all: std::collections::BTreeMap<usize, DesiredLoadBalancer> = std::collections::BTreeMap::new();
        let mut going = std::collections::BTreeSet::new();
        for disturbance in disturbances {
            match disturbance {
                // A deleted Service is no longer reconciled.
                Disturbance::Wants(who, ..) if going.contains(&who) => (),
                Disturbance::Wants(who, wanted, cut) => {
                    some_steps(&mut bench, &wanted, false, cut);
                    all.insert(who, (*wanted).clone());
                    wishes[who] = Some(*wanted);
                }
                Disturbance::Goes(who, cut, at_once) => {
                    // A deleted Service does not return. Its load balancer is deleted despite interruptions.
                    let Some(wanted) = wishes[who].take() else { continue };
                    some_steps(&mut bench, &wanted, true, cut);
                    if at_once {
                        prop_assert!(some_steps(&mut bench, &wanted, true, 60));
                    } else {
                        going.insert(who);
                    }
                }
            }
        }
        for wanted in wishes.iter().flatten() {
            prop_assert!(some_steps(&mut bench, wanted, false, 60), "does not converge");
            if bench.plan_if_there(wanted).is_some_and(|steps| steps.is_empty()) {
                let record = bench.seen(wanted).expect("there");
                prop_assert_eq!(&record.summary.applied_hash, &wanted.hash);
                prop_assert_eq!(record.summary.listeners.len(), wanted.spec.listeners.len());
            }
        }
        // All Services are deleted at the same time. They take turns, with a few writes each.
        for _ in 0..60 {
            for who in order {
                if let Some(wanted) = all.get(&who) {
                    some_steps(&mut bench, wanted, true, cut);
                }
            }
        }
        let cloud = &bench.cloud;
        prop_assert_eq!(&cloud.balancers, &before.balancers);
        prop_assert_eq!((&cloud.listeners, &cloud.pools), (&before.listeners, &before.pools));
        prop_assert!(cloud.floating_ips.is_empty() && cloud.monitors.is_empty());
    }
}
