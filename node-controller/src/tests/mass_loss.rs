//! Tests histories after the brake has tripped: no held node is deleted while more nodes lack a sign of life than the brake allows to
//! delete.

use std::{collections::BTreeSet, time::Duration};

use controller_core::{mirror::ObjectName, testing::instance};
use k8s_openapi::api::core::v1::Node;
use proptest::prelude::{Just, ProptestConfig, Strategy, prop, prop_oneof, proptest};
use tokio::time::sleep;

use super::{
    history::in_paused_time,
    world::{World, id, running},
};

const NODES: usize = 10;
/// Number of deletions that the default percentage allows.
const MAY_GO: usize = 3;

/// An event.
#[derive(Clone, Copy, Debug)]
enum Moment {
    /// The instance is lost, or its absence can be proven again.
    Ends(usize),
    /// The instance is not listed any more, and its absence cannot be proven.
    Vanishes(usize),
    /// The cloud returns an error for the instance, or answers again.
    LookupFails(usize),
    /// The kubelet stops its heartbeats.
    Silent(usize),
    AdapterAway(bool),
    ServerAway(bool),
    /// A sign of life: the cloud lists the instance.
    IsThere(usize),
    /// A sign of life: the node is ready.
    Ready(usize),
    /// An operator deletes the node.
    Deleted(usize),
    /// Time passes.
    Passes,
}

fn moment() -> impl Strategy<Value = Moment> {
    let node = || 0..NODES;
    prop_oneof![
        4 => node().prop_map(Moment::Ends),
        3 => node().prop_map(Moment::Vanishes),
        4 => node().prop_map(Moment::LookupFails),
        3 => node().prop_map(Moment::Silent),
        2 => prop::bool::weighted(0.3).prop_map(Moment::AdapterAway),
        1 => prop::bool::weighted(0.3).prop_map(Moment::ServerAway),
        1 => node().prop_map(Moment::IsThere),
        1 => node().prop_map(Moment::Ready),
        1 => node().prop_map(Moment::Deleted),
        6 => Just(Moment::Passes),
    ]
}

/// Applies an event. A sign of life removes the node from `lost`. No event adds it again, because this model ignores proofs of absence.
async fn happens(world: &World, lost: &mut BTreeSet<usize>, moment: Moment) {
    let name = |n: usize| format!("n{n}");
    match moment {
        Moment::Ends(n) => world.cloud.end(&id(&name(n))),
        Moment::Vanishes(n) => world.cloud.edit(|state| {
            state.instances.remove(&id(&name(n)));
            state.gone.remove(&id(&name(n)));
        }),
        Moment::LookupFails(n) => world.cloud.edit(|state| {
            if !state.failing.remove(&id(&name(n))) {
                state.failing.insert(id(&name(n)));
            }
        }),
        Moment::Silent(n) if world.exists(&name(n)) => world.set_ready(&name(n), "Unknown"),
        Moment::Silent(_) | Moment::Passes => {}
        Moment::AdapterAway(away) => world.cloud.away(away),
        Moment::ServerAway(away) => world.kube.away(away),
        Moment::IsThere(n) => {
            lost.remove(&n);
            world.cloud.put(instance(&id(&name(n))).named(&name(n)));
        }
        Moment::Ready(n) if world.exists(&name(n)) => {
            lost.remove(&n);
            world.set_ready(&name(n), "True");
        }
        Moment::Ready(_) => {}
        Moment::Deleted(n) => {
            lost.remove(&n);
            world.kube.delete::<Node>(&ObjectName::cluster(name(n)));
        }
    }
}

/// Returns the number of nodes deleted in the end.
async fn deletions_while_many_are_lost_fail(n_lost: usize, history: &[(u64, Moment)]) -> usize {
    let world = running(NODES).await;
    let mut lost: BTreeSet<usize> = (0..n_lost).collect();
    for n in &lost {
        world.lose(&format!("n{n}"));
    }
    sleep(Duration::from_mins(2)).await;
    for (seconds, moment) in history {
        // Avoids the instants at which the controller acts.
        sleep(Duration::from_secs(*seconds) + Duration::from_millis(3)).await;
        if lost.len() <= MAY_GO {
            break;
        }
        assert_eq!(world.n_deletions(), 0, "{n_lost} were lost, {lost:?} are: {history:?}");
        happens(&world, &mut lost, *moment).await;
    }
    world.n_deletions()
}

#[test]
fn held_nodes_are_deleted_once_few_enough() {
    let history = [(10, Moment::Ready(0)), (20, Moment::Passes)];
    assert_eq!(in_paused_time(deletions_while_many_are_lost_fail(4, &history)), 3);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: test_support::cases(3), ..ProptestConfig::default() })]

    // Behaviour: ND12
    #[test]
    fn no_history_releases_held_nodes_without_signs_of_life(
        n_lost in MAY_GO + 1..=NODES,
        history in prop::collection::vec((1_u64..400, moment()), 1..25),
    ) {
        in_paused_time(deletions_while_many_are_lost_fail(n_lost, &history));
    }
}
