//! Applies arbitrary events in arbitrary sequence.

use proptest::prelude::*;

use super::model::{World, service};
use crate::plan::{
    features::{Features, name},
    service::{Family, Port, Role, Service, Transport, same_ingress},
};

proptest! {
    /// For every sequence of events, nothing is deleted without proof. In the end the plans converge, and the cloud contains exactly what
    /// is needed.
    #[test]
    fn any_history_converges(events in prop::collection::vec((0..26_u8, 0..3_u8), 0..32), lags: bool) {
        let mut world = World::with(service());
        world.mirror_lags = lags;
        for (event, rounds) in events {
            world.happens(event);
            world.assert_proven_now();
            for _ in 0..rounds {
                world.round();
                world.assert_proven_now();
            }
        }
        world.end_all_faults();
        world.settled();
        if world.is_gone() {
            // The module `left_over` handles a remaining load balancer.
            return Ok(());
        }
        match world.service.role() {
            Role::Wanted => {
                prop_assert_eq!(world.cloud.len(), 1);
                prop_assert!(world.service.finalizer);
                prop_assert!(same_ingress(&world.service.ingress, &world.cloud[0].ingress));
            }
            Role::Cleanup => prop_assert!(world.is_in_doubt(), "the load balancer must still be deleted"),
            Role::Ignored => {
                // The module `left_over` handles a remaining load balancer without the finalizer.
                prop_assert!(!world.service.finalizer);
            }
        }
    }

    /// The sequence of lists that represent sets does not change the load balancer. The sequence of families matters, because it is a
    /// preference.
    #[test]
    fn order_of_lists_does_not_matter(
        ports in prop::collection::btree_map((0..3_usize, 1..5_u16), 1..9_u16, 1..6),
        ranges in prop::collection::btree_set(0..20_u8, 0..5),
        by in any::<prop::sample::Index>(),
    ) {
        let port = |((transport, port), node_port): (&(usize, u16), &u16)| {
            let transport = [Transport::Tcp, Transport::Udp, Transport::Sctp][*transport];
            Port { name: format!("{transport}-{port}"), ..Port::plain(transport, *port, 30_000 + node_port) }
        };
        let one = Service {
            ports: ports.iter().map(port).collect(),
            source_ranges: ranges.iter().map(|n| format!("10.{n}.0.0/16")).collect(),
            families: vec![Family::V4, Family::V6],
            ..service()
        };
        let mut other = one.clone();
        let turn = |len: usize| if len == 0 { 0 } else { by.index(len) };
        other.ports.rotate_left(turn(one.ports.len()));
        other.source_ranges.rotate_left(turn(one.source_ranges.len()));
        other.source_ranges.extend(one.source_ranges.first().cloned());
        let digest = |service: &Service| {
            let mut world = World::with(service.clone());
            world.features = Some(Features::from([
                name::LOAD_BALANCERS, name::UDP, name::SCTP, name::MIXED_PROTOCOLS, name::SOURCE_RANGES,
                name::DUAL_STACK,
            ]));
            world.next_ask().unwrap().wanted.shape.digest.clone()
        };
        prop_assert_eq!(digest(&one), digest(&other));
        other.families.reverse();
        prop_assert_ne!(digest(&one), digest(&other));
    }
}
