//! Tests which nodes are deleted, which are held, and for how long they count.

use std::time::Duration;

use controller_core::testing::node;

use super::*;
use crate::mirror::trim_node;

const WINDOW: Duration = Duration::from_mins(10);

/// Returns a gate that has existed for a window, and the current time.
fn gate() -> (Gate, Instant) {
    let now = Instant::now();
    (Gate::new(Limits { share: 30, number: 50, window: WINDOW }, now), now + WINDOW)
}

fn nodes(names: &[&str]) -> Vec<Arc<Node>> {
    names.iter().map(|name| Arc::new(trim_node(&node(name).build()))).collect()
}

/// Returns the input of the gate for `n_nodes` nodes. The instances of the nodes `names` are gone.
fn gone(names: &[&str], n_nodes: usize) -> BrakeInput {
    held(names, &[], n_nodes)
}

/// Returns the input of the gate for `n_nodes` nodes. The instances of the nodes `proven` are gone, and the brake held the nodes `held`
/// before.
fn held(proven: &[&str], held: &[&str], n_nodes: usize) -> BrakeInput {
    let these: BTreeSet<&str> = proven.iter().chain(held).copied().collect();
    let others: Vec<String> = (these.len()..n_nodes).map(|n| format!("other{n}")).collect();
    let present: Vec<&str> = these.into_iter().chain(others.iter().map(String::as_str)).collect();
    BrakeInput { proven: nodes(proven), held: nodes(held), present: nodes(&present) }
}

fn names(nodes: &[Arc<Node>]) -> Vec<&str> {
    nodes.iter().map(|node| node.name.as_str()).collect()
}

#[tokio::test(start_paused = true)]
async fn node_counts_once_however_often_its_deletion_is_retried() {
    let (mut gate, mut now) = gate();
    for attempt in 0..20 {
        let Judgement { going, held, verdict } = gate.judge(gone(&["a"], 10), now);
        assert_eq!((names(&going), held.len(), verdict), (vec!["a"], 0, Verdict::Go), "{attempt}");
        gate.went(&going[0], now);
        now += Duration::from_secs(20);
    }
    let both = gate.judge(gone(&["b", "c"], 10), now);
    assert_eq!((names(&both.going), both.verdict), (vec!["b", "c"], Verdict::Go), "3 of 10 are allowed");
}

// Behaviour: ND12
#[tokio::test(start_paused = true)]
async fn deletion_that_is_retried_for_longer_than_a_window_counts() {
    let (mut gate, mut now) = gate();
    let end = now + Duration::from_mins(11);
    while now < end {
        gate.went(&nodes(&["a"])[0], now);
        now += Duration::from_secs(20);
    }
    let judged = gate.judge(gone(&["a", "b", "c", "d"], 10), now);
    assert_eq!(judged.verdict, Verdict::Tripped { allowance: 3 });
    assert_eq!((names(&judged.going), names(&judged.held)), (vec!["a"], vec!["b", "c", "d"]));
}

#[tokio::test(start_paused = true)]
async fn retry_is_allowed_while_the_brake_holds_others() {
    let (mut gate, now) = gate();
    gate.went(&nodes(&["a"])[0], now);
    let judged = gate.judge(gone(&["a", "b", "c", "d"], 10), now);
    assert_eq!((names(&judged.going), names(&judged.held)), (vec!["a"], vec!["b", "c", "d"]));
    assert_eq!(judged.verdict, Verdict::Tripped { allowance: 3 }, "3 of ten nodes, not of eleven");
    let later = gate.judge(gone(&["b", "c", "d"], 10), now + WINDOW);
    assert_eq!((names(&later.going).len(), later.verdict), (3, Verdict::Go), "the next window");
}

// Behaviour: ND12
#[tokio::test(start_paused = true)]
async fn deleted_node_with_a_finalizer_is_not_counted_twice() {
    let (mut gate, now) = gate();
    nodes(&["a", "b", "c"]).iter().for_each(|node| gate.went(node, now));
    // The deleted nodes still exist. Three of ten nodes are allowed; a wrong count of thirteen nodes would allow four.
    let mut input = gone(&["a", "b", "c", "d"], 10);
    input.proven = nodes(&["d"]);
    let judged = gate.judge(input, now);
    assert_eq!((names(&judged.going).len(), judged.verdict), (0, Verdict::Tripped { allowance: 3 }));
}

#[tokio::test(start_paused = true)]
async fn released_node_does_not_count() {
    let (mut gate, now) = gate();
    let autoscaled = |name| {
        let node = node(name).tainted(controller_core::node::TO_BE_DELETED, Some("1"), "NoSchedule");
        Arc::new(trim_node(&node.build()))
    };
    let leaving = ["a", "b", "c", "d"].map(autoscaled).to_vec();
    let input = BrakeInput { proven: leaving.clone(), held: leaving, ..gone(&[], 10) };
    let judged = gate.judge(input, now);
    assert_eq!((judged.going.len(), judged.verdict), (4, Verdict::Go));
    judged.going.iter().for_each(|node| gate.went(node, now));
    assert_eq!(gate.judge(gone(&["e", "f", "g"], 6), now).verdict, Verdict::Tripped { allowance: 2 });
    assert_eq!(gate.judge(gone(&["e", "f"], 6), now).verdict, Verdict::Go, "no node counted before them");
}

#[tokio::test(start_paused = true)]
async fn held_node_counts_whether_proven_or_not() {
    let (mut gate, now) = gate();
    let tripped = Verdict::Tripped { allowance: 3 };
    let before = ["a", "b", "c", "d"];
    for proven in [&before[..], &before[..3], &[]] {
        let judged = gate.judge(held(proven, &before, 10), now);
        assert_eq!((judged.going.len(), judged.held.len(), judged.verdict), (0, 4, tripped), "{proven:?}");
    }
    let judged = gate.judge(held(&["e"], &before, 10), now);
    assert_eq!((judged.going.len(), judged.held.len(), judged.verdict), (0, 5, tripped), "a new node");
    let judged = gate.judge(held(&["a", "b"], &before[..3], 10), now);
    assert_eq!(
        (names(&judged.going), judged.verdict),
        (vec!["a", "b"], Verdict::Go),
        "an unproven \
    node is never deleted"
    );
    judged.going.iter().for_each(|node| gate.went(node, now));
    let judged = gate.judge(held(&["a", "c"], &before[..3], 10), now);
    assert_eq!(
        (names(&judged.going), judged.verdict),
        (vec!["a", "c"], Verdict::Go),
        "a deleted node counts once"
    );
}
