//! The brake, and whom it has let go. Pure, every time is an argument.
//!
//! A deletion that was not answered may have been done, so it counts; once, however often it is tried again, and from the last try on.
//!
//! Whom the brake has held counts for as long as there is no sign of life, whether the proof lasts or not: a cloud that says of four
//! that they are gone, and then of three and an error, has not taken back what made the brake trip.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use controller_core::brake::{Brake, Limits, Verdict};
use tokio::time::Instant;

use crate::plan::Node;

/// Before all deletions.
#[derive(Debug)]
pub(super) struct Gate {
    brake: Brake,
    /// By UID, when those last went, or may have gone, that the brake counts.
    counted: BTreeMap<String, Instant>,
}

/// Whom the gate judges.
#[derive(Debug)]
pub(super) struct Crowd {
    /// Proven to be gone.
    pub(super) proven: Vec<Arc<Node>>,
    /// Held before, with no sign of life since. They may be proven, or not any more.
    pub(super) held: Vec<Arc<Node>>,
    /// All that there are, these among them.
    pub(super) present: Vec<Arc<Node>>,
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

    pub(super) fn limit(&mut self, limits: Limits) {
        self.brake.limit(limits);
    }

    pub(super) fn limits(&self) -> Limits {
        self.brake.limits()
    }

    /// Judges those that are proven to be gone. Whom somebody let through goes in any case and does not count, and neither does
    /// another try.
    pub(super) fn judge(&mut self, crowd: Crowd, now: Instant) -> Judgement {
        let window = self.brake.limits().window;
        self.counted.retain(|_, at| now.duration_since(*at) < window);
        let is_counted = |node: &Arc<Node>| self.counted.contains_key(&node.uid);
        // The brake adds those that it has counted, of which some may be there still: tried in vain, or held by a finalizer.
        let n_nodes = crowd.present.iter().filter(|node| !is_counted(node)).count();
        let (again, new): (Vec<_>, Vec<_>) = crowd.proven.into_iter().partition(is_counted);
        let (let_go, asking): (Vec<_>, Vec<_>) = new.into_iter().partition(|node| node.life.let_go);
        let uids: BTreeSet<&str> = asking.iter().map(|node| node.uid.as_str()).collect();
        let counts =
            |node: &Arc<Node>| !node.life.let_go && !is_counted(node) && !uids.contains(node.uid.as_str());
        let waiting: Vec<_> = crowd.held.into_iter().filter(counts).collect();
        let verdict = self.brake.ask(now, n_nodes, asking.len() + waiting.len());
        let going = [again, let_go].concat();
        match verdict {
            Verdict::Go => Judgement { going: [going, asking].concat(), held: Vec::new(), verdict },
            Verdict::Later { .. } => Judgement { going, held: asking, verdict },
            Verdict::Tripped { .. } => Judgement { going, held: [asking, waiting].concat(), verdict },
        }
    }

    /// The node went, or may have gone.
    pub(super) fn went(&mut self, node: &Node, now: Instant) {
        if node.life.let_go {
            return;
        }
        match self.counted.insert(node.uid.clone(), now) {
            None => self.brake.went(now),
            Some(before) => self.brake.went_again(before, now),
        }
    }
}

#[cfg(test)]
mod tests;
