//! The brake, and whom it has let go. Pure, every time is an argument.
//!
//! A deletion that was not answered may have been done, so it counts; but once, however often it is tried again.

use std::{collections::BTreeMap, sync::Arc};

use controller_core::brake::{Brake, Limits, Verdict};
use tokio::time::Instant;

use crate::plan::Node;

/// Before all deletions.
#[derive(Debug)]
pub(super) struct Gate {
    brake: Brake,
    /// By UID, when those went, or may have gone, that the brake counts.
    counted: BTreeMap<String, Instant>,
}

/// Who goes now, and who does not.
#[derive(Debug)]
pub(super) struct Judgement {
    pub(super) going: Vec<Arc<Node>>,
    /// They stay for as long as the verdict says.
    pub(super) held: Vec<Arc<Node>>,
    pub(super) verdict: Verdict,
}

impl Gate {
    pub(super) fn new(limits: Limits, now: Instant) -> Self {
        Self { brake: Brake::new(limits, now), counted: BTreeMap::new() }
    }

    pub(super) fn limits(&self) -> Limits {
        self.brake.limits()
    }

    /// Judges those that are proven to be gone, of `n_nodes` that there are. Whom somebody let through goes in any case and does not
    /// count, and neither does another try.
    pub(super) fn judge(&mut self, proven: Vec<Arc<Node>>, n_nodes: usize, now: Instant) -> Judgement {
        let window = self.brake.limits().window;
        self.counted.retain(|_, at| now.duration_since(*at) < window);
        let (again, new): (Vec<_>, Vec<_>) =
            proven.into_iter().partition(|node| self.counted.contains_key(&node.uid));
        let (let_go, asking): (Vec<_>, Vec<_>) = new.into_iter().partition(|node| node.life.let_go);
        // The brake adds what it has counted to what is there: these are both.
        let verdict = self.brake.ask(now, n_nodes.saturating_sub(again.len()), asking.len());
        let going = [again, let_go].concat();
        match verdict {
            Verdict::Go => Judgement { going: [going, asking].concat(), held: Vec::new(), verdict },
            Verdict::Later { .. } | Verdict::Tripped { .. } => Judgement { going, held: asking, verdict },
        }
    }

    /// The node went, or may have gone.
    pub(super) fn went(&mut self, node: &Node, now: Instant) {
        if !node.life.let_go && self.counted.insert(node.uid.clone(), now).is_none() {
            self.brake.went(now);
        }
    }
}

#[cfg(test)]
mod tests {
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

    fn gone(names: &[&str]) -> Vec<Arc<Node>> {
        names.iter().map(|name| Arc::new(trim_node(&node(name).build()))).collect()
    }

    fn names(nodes: &[Arc<Node>]) -> Vec<&str> {
        nodes.iter().map(|node| node.name.as_str()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_counts_once_however_often_its_deletion_is_tried() {
        let (mut gate, mut now) = gate();
        for attempt in 0..20 {
            let Judgement { going, held, verdict } = gate.judge(gone(&["a"]), 10, now);
            assert_eq!((names(&going), held.len(), verdict), (vec!["a"], 0, Verdict::Go), "{attempt}");
            gate.went(&going[0], now);
            now += Duration::from_secs(20);
        }
        let both = gate.judge(gone(&["b", "c"]), 10, now);
        assert_eq!((names(&both.going), both.verdict), (vec!["b", "c"], Verdict::Go), "3 of 10 may go");
    }

    #[tokio::test(start_paused = true)]
    async fn another_try_goes_on_while_the_brake_holds_the_others() {
        let (mut gate, now) = gate();
        gate.went(&gone(&["a"])[0], now);
        let judged = gate.judge(gone(&["a", "b", "c", "d"]), 10, now);
        assert_eq!((names(&judged.going), names(&judged.held)), (vec!["a"], vec!["b", "c", "d"]));
        assert_eq!(judged.verdict, Verdict::Tripped { allowance: 3 }, "of ten, not of eleven");
        let later = gate.judge(gone(&["b", "c", "d"]), 10, now + WINDOW);
        assert_eq!((names(&later.going).len(), later.verdict), (3, Verdict::Go), "the next window");
    }

    #[tokio::test(start_paused = true)]
    async fn whom_somebody_let_go_does_not_count() {
        let (mut gate, now) = gate();
        let autoscaled = |name| {
            let node = node(name).tainted(controller_core::node::TO_BE_DELETED, Some("1"), "NoSchedule");
            Arc::new(trim_node(&node.build()))
        };
        let judged = gate.judge(["a", "b", "c", "d"].map(autoscaled).to_vec(), 10, now);
        assert_eq!((judged.going.len(), judged.verdict), (4, Verdict::Go));
        judged.going.iter().for_each(|node| gate.went(node, now));
        assert_eq!(gate.judge(gone(&["e", "f", "g"]), 6, now).verdict, Verdict::Tripped { allowance: 2 });
        assert_eq!(gate.judge(gone(&["e", "f"]), 6, now).verdict, Verdict::Go, "nobody counted before them");
    }
}
