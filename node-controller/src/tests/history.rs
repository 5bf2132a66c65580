//! Tests random histories of instances, nodes, cloud and API server: no node is deleted unless its instance is proven to be gone.

use std::time::Duration;

use controller_core::{mirror::ObjectName, testing::instance};
use k8s_openapi::api::core::v1::Node;
use proptest::prelude::{Just, ProptestConfig, Strategy, prop, prop_oneof, proptest};
use tokio::time::{Instant, sleep};

use super::world::{World, id, known};

/// Few nodes, so that each has many events.
const NODES: usize = 3;

/// Time within which the controller notices that a connection works again.
const CATCH_UP: Duration = Duration::from_secs(15);

/// An event.
#[derive(Clone, Copy, Debug)]
enum Moment {
    /// The instance is lost, and the cloud can prove it.
    Ends(usize),
    /// The instance is not listed any more, and its absence cannot be proven.
    Vanishes(usize),
    IsThere(usize),
    /// The cloud returns an error for the instance, or answers again.
    LookupFails(usize),
    Ready(usize, bool),
    Recreated(usize),
    AdapterAway(bool),
    ServerAway(bool),
    Restart,
    /// Time passes.
    Passes,
}

fn moment() -> impl Strategy<Value = Moment> {
    prop_oneof![
        6 => (0..NODES).prop_map(Moment::Ends),
        1 => (0..NODES).prop_map(Moment::Vanishes),
        2 => (0..NODES).prop_map(Moment::IsThere),
        1 => (0..NODES).prop_map(Moment::LookupFails),
        6 => (0..NODES, prop::bool::weighted(0.3)).prop_map(|(n, ready)| Moment::Ready(n, ready)),
        1 => (0..NODES).prop_map(Moment::Recreated),
        1 => prop::bool::weighted(0.4).prop_map(Moment::AdapterAway),
        1 => prop::bool::weighted(0.4).prop_map(Moment::ServerAway),
        1 => Just(Moment::Restart),
        6 => Just(Moment::Passes),
    ]
}

/// The systems that the controller can observe at the moment.
#[derive(Clone, Copy, Debug)]
struct Observation {
    adapter: bool,
    server: bool,
}

/// What is true of a node, including facts that the controller cannot observe.
#[derive(Debug)]
struct Truth {
    name: String,
    uid: String,
    /// The first and the last time at which the absence could be proven, without a sign of life in between or since.
    proofs: Option<(Instant, Instant)>,
}

impl Truth {
    fn new(n: usize) -> Self {
        let name = format!("n{n}");
        Self { uid: format!("uid-{name}"), name, proofs: None }
    }

    fn observe(&mut self, world: &World, observation: Observation) {
        let ready = controller_core::node::is_ready(&world.node(&self.name));
        let id = id(&self.name);
        let (listed, proven) = world.cloud.read(|state| {
            let listed = state.instances.contains_key(&id);
            (listed, !listed && state.gone.contains(&id) && !state.failing.contains(&id))
        });
        let now = Instant::now();
        if ready || (listed && observation.adapter) {
            self.proofs = None;
        } else if proven {
            self.proofs = Some((self.proofs.map_or(now, |(first, _)| first), now));
        }
    }

    /// Whether the controller has deleted the node. If so, checks that the deletion was right.
    #[track_caller]
    fn judge(&self, world: &World, history: &[(u64, Moment)]) -> bool {
        let there = world.node(&self.name).metadata.uid;
        if there.as_deref() == Some(self.uid.as_str()) {
            return false;
        }
        assert_eq!(there, None, "no other client creates nodes");
        let (first, last) = self.proofs.expect("a proof");
        assert!(last - first >= Duration::from_secs(30), "{}, {:?}: {history:?}", self.name, last - first);
        assert!(
            last.elapsed() <= Duration::from_mins(10),
            "{}, {:?}: {history:?}",
            self.name,
            last.elapsed()
        );
        true
    }
}

async fn happens(
    world: &mut World,
    truths: &mut [Truth; NODES],
    moment: Moment,
    observation: &mut Observation,
) {
    let id = |n: usize| id(&format!("n{n}"));
    match moment {
        Moment::Ends(n) => world.cloud.end(&id(n)),
        Moment::Vanishes(n) => world.cloud.edit(|state| {
            state.instances.remove(&id(n));
            state.gone.remove(&id(n));
        }),
        Moment::IsThere(n) => world.cloud.put(instance(&id(n)).named(&truths[n].name)),
        Moment::LookupFails(n) => world.cloud.edit(|state| {
            if !state.failing.remove(&id(n)) {
                state.failing.insert(id(n));
            }
        }),
        Moment::AdapterAway(away) => {
            world.cloud.away(away);
            observation.adapter = !away;
            sleep(CATCH_UP).await;
        }
        Moment::ServerAway(away) => {
            world.kube.away(away);
            observation.server = !away;
            sleep(CATCH_UP).await;
        }
        // Without an API server no kubelet can report.
        Moment::Ready(..) | Moment::Recreated(_) if !observation.server => {}
        Moment::Ready(n, ready) => world.set_ready(&truths[n].name, if ready { "True" } else { "Unknown" }),
        Moment::Recreated(n) => {
            let truth = &mut truths[n];
            (truth.uid, truth.proofs) = (format!("{}-2", truth.uid), None);
            world.kube.delete::<Node>(&ObjectName::cluster(&truth.name));
            world.kube.put::<Node>(known(&truth.name).uid(&truth.uid).ready("Unknown"));
        }
        Moment::Restart => {
            world.stop().await;
            world.start();
        }
        Moment::Passes => {}
    }
}

/// Returns the number of deleted nodes.
async fn deletions_without_proof_fail(history: &[(u64, Moment)]) -> usize {
    let mut world = World::new();
    // This test switches the brake off. The module `mass_loss` tests the brake.
    world.settings.lifecycle.limits.share = 100;
    world.settings.lifecycle.limits.window = Duration::from_secs(1);
    let mut truths: [Truth; NODES] = std::array::from_fn(Truth::new);
    for truth in &truths {
        world.cloud.put(instance(&id(&truth.name)).named(&truth.name));
        world.kube.put::<Node>(known(&truth.name).ready("Unknown"));
    }
    world.start();
    let (mut n_deleted, mut observation) = (0, Observation { adapter: true, server: true });
    for (seconds, moment) in history {
        // Avoids the instants at which the controller acts.
        sleep(Duration::from_secs(*seconds) + Duration::from_millis(3)).await;
        for n in 0..NODES {
            truths[n].observe(&world, observation);
            if truths[n].judge(&world, history) {
                n_deleted += 1;
                happens(&mut world, &mut truths, Moment::Recreated(n), &mut observation).await;
                truths[n].observe(&world, observation);
            }
        }
        happens(&mut world, &mut truths, *moment, &mut observation).await;
        truths.iter_mut().for_each(|truth| truth.observe(&world, observation));
    }
    n_deleted
}

pub(super) fn in_paused_time<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    runtime.expect("a runtime").block_on(test)
}

#[test]
fn history_with_a_proof_deletes_the_node() {
    let history = [(10, Moment::Ends(1)), (60, Moment::Passes)];
    assert_eq!(in_paused_time(deletions_without_proof_fail(&history)), 1);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: test_support::cases(8), ..ProptestConfig::default() })]

    // Behaviour: ND7
    #[test]
    fn no_history_deletes_a_node_without_a_proof(
        history in prop::collection::vec((1_u64..60, moment()), 1..40),
    ) {
        in_paused_time(deletions_without_proof_fail(&history));
    }
}
