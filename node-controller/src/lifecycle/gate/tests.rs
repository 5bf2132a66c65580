//! Who goes, who is held, and for how long that counts.

use std::time::Duration;

use controller_core::testing::node;

use super::*;
use crate::mirror::trim_node;

const WINDOW: Duration = Duration::from_mins(10);

/// A gate that has been there for a window, and the time.
fn gate() -> (Gate, Instant) {
    let now = Instant::now();
    (Gate::new(Limits { share: 30, number: 50, window: WINDOW }, now), now + WINDOW)
}

fn nodes(names: &[&str]) -> Vec<Arc<Node>> {
    names.iter().map(|name| Arc::new(trim_node(&node(name).build()))).collect()
}

/// These are gone, of so many.
fn gone(names: &[&str], n_nodes: usize) -> Crowd {
    held(names, &[], n_nodes)
}

/// These are gone and those were held before, of so many.
fn held(proven: &[&str], held: &[&str], n_nodes: usize) -> Crowd {
    let these: BTreeSet<&str> = proven.iter().chain(held).copied().collect();
    let others: Vec<String> = (these.len()..n_nodes).map(|n| format!("other{n}")).collect();
    let present: Vec<&str> = these.into_iter().chain(others.iter().map(String::as_str)).collect();
    Crowd { proven: nodes(proven), held: nodes(held), present: nodes(&present) }
}

fn names(nodes: &[Arc<Node>]) -> Vec<&str> {
    nodes.iter().map(|node| node.name.as_str()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_node_counts_once_however_often_its_deletion_is_tried() {
    let (mut gate, mut now) = gate();
    for attempt in 0..20 {
        let Judgement { going, held, verdict } = gate.judge(gone(&["a"], 10), now);
        assert_eq!((names(&going), held.len(), verdict), (vec!["a"], 0, Verdict::Go), "{attempt}");
        gate.went(&going[0], now);
        now += Duration::from_secs(20);
    }
    let both = gate.judge(gone(&["b", "c"], 10), now);
    assert_eq!((names(&both.going), both.verdict), (vec!["b", "c"], Verdict::Go), "3 of 10 may go");
}

#[tokio::test(start_paused = true)]
async fn a_deletion_that_is_tried_for_longer_than_a_window_still_counts() {
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
async fn another_try_goes_on_while_the_brake_holds_the_others() {
    let (mut gate, now) = gate();
    gate.went(&nodes(&["a"])[0], now);
    let judged = gate.judge(gone(&["a", "b", "c", "d"], 10), now);
    assert_eq!((names(&judged.going), names(&judged.held)), (vec!["a"], vec!["b", "c", "d"]));
    assert_eq!(judged.verdict, Verdict::Tripped { allowance: 3 }, "of ten, not of eleven");
    let later = gate.judge(gone(&["b", "c", "d"], 10), now + WINDOW);
    assert_eq!((names(&later.going).len(), later.verdict), (3, Verdict::Go), "the next window");
}

#[tokio::test(start_paused = true)]
async fn who_was_deleted_and_is_held_by_a_finalizer_is_one_of_all_and_not_two() {
    let (mut gate, now) = gate();
    nodes(&["a", "b", "c"]).iter().for_each(|node| gate.went(node, now));
    // They are there still: of ten nodes three may go, and of the thirteen that a miscount makes of them four.
    let mut crowd = gone(&["a", "b", "c", "d"], 10);
    crowd.proven = nodes(&["d"]);
    let judged = gate.judge(crowd, now);
    assert_eq!((names(&judged.going).len(), judged.verdict), (0, Verdict::Tripped { allowance: 3 }));
}

#[tokio::test(start_paused = true)]
async fn whom_somebody_let_go_does_not_count() {
    let (mut gate, now) = gate();
    let autoscaled = |name| {
        let node = node(name).tainted(controller_core::node::TO_BE_DELETED, Some("1"), "NoSchedule");
        Arc::new(trim_node(&node.build()))
    };
    let leaving = ["a", "b", "c", "d"].map(autoscaled).to_vec();
    let crowd = Crowd { proven: leaving.clone(), held: leaving, ..gone(&[], 10) };
    let judged = gate.judge(crowd, now);
    assert_eq!((judged.going.len(), judged.verdict), (4, Verdict::Go));
    judged.going.iter().for_each(|node| gate.went(node, now));
    assert_eq!(gate.judge(gone(&["e", "f", "g"], 6), now).verdict, Verdict::Tripped { allowance: 2 });
    assert_eq!(gate.judge(gone(&["e", "f"], 6), now).verdict, Verdict::Go, "nobody counted before them");
}

#[tokio::test(start_paused = true)]
async fn whom_the_brake_held_counts_whether_proven_or_not() {
    let (mut gate, now) = gate();
    let tripped = Verdict::Tripped { allowance: 3 };
    let before = ["a", "b", "c", "d"];
    for proven in [&before[..], &before[..3], &[]] {
        let judged = gate.judge(held(proven, &before, 10), now);
        assert_eq!((judged.going.len(), judged.held.len(), judged.verdict), (0, 4, tripped), "{proven:?}");
    }
    let judged = gate.judge(held(&["e"], &before, 10), now);
    assert_eq!((judged.going.len(), judged.held.len(), judged.verdict), (0, 5, tripped), "a new one");
    let judged = gate.judge(held(&["a", "b"], &before[..3], 10), now);
    assert_eq!((names(&judged.going), judged.verdict), (vec!["a", "b"], Verdict::Go), "and never unproven");
    judged.going.iter().for_each(|node| gate.went(node, now));
    let judged = gate.judge(held(&["a", "c"], &before[..3], 10), now);
    assert_eq!((names(&judged.going), judged.verdict), (vec!["a", "c"], Verdict::Go), "who went counts once");
}
