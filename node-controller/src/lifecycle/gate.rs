//! Keeps the deletion brake and the deletions that the brake has allowed. The brake "holds" a node if the node must not be deleted now. The
//! code is pure: every time is an argument.
//!
//! If the API server does not answer a deletion request, the deletion may have been executed, so the brake counts it. Each node counts
//! once, from the last attempt to delete the node, however often the controller retries.
//!
//! A node that the brake has held counts until it shows a sign of life, even after its proof of absence has expired. Suppose that a cloud
//! reports four instances as gone, and later only three and one error. The cause that tripped the brake then still exists.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use controller_core::brake::{Brake, Limits, Verdict};
use tokio::time::Instant;

use crate::plan::Node;

#[derive(Debug)]
pub(super) struct Gate {
    brake: Brake,
    /// Time of the last attempt to delete each node that the brake counts, by UID. Some of these nodes may still exist.
    counted: BTreeMap<String, Instant>,
}

#[derive(Debug)]
pub(super) struct BrakeInput {
    /// Nodes whose instances are proven to be gone.
    pub(super) proven: Vec<Arc<Node>>,
    /// Nodes that were held before and have shown no sign of life since. Their proof may have expired.
    pub(super) held: Vec<Arc<Node>>,
    /// All nodes that count for the brake's percentage, including the proven and the held ones.
    pub(super) present: Vec<Arc<Node>>,
}

#[derive(Debug)]
pub(super) struct Judgement {
    pub(super) going: Vec<Arc<Node>>,
    /// Nodes that are not deleted while the verdict applies.
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

    /// Decides which of the nodes that are proven to be gone are deleted. Nodes that a user or the autoscaler released from the brake are
    /// always deleted and do not count. Retries do not count either.
    pub(super) fn judge(&mut self, input: BrakeInput, now: Instant) -> Judgement {
        let window = self.brake.limits().window;
        self.counted.retain(|_, at| now.duration_since(*at) < window);
        let is_counted = |node: &Arc<Node>| self.counted.contains_key(&node.uid);
        // The brake adds the nodes that it has already counted. Some of them may still exist, after a failed attempt or because of a
        // finalizer.
        let n_nodes = input.present.iter().filter(|node| !is_counted(node)).count();
        let (again, new): (Vec<_>, Vec<_>) = input.proven.into_iter().partition(is_counted);
        let (let_go, asking): (Vec<_>, Vec<_>) = new.into_iter().partition(|node| node.life.let_go);
        let uids: BTreeSet<&str> = asking.iter().map(|node| node.uid.as_str()).collect();
        let counts =
            |node: &Arc<Node>| !node.life.let_go && !is_counted(node) && !uids.contains(node.uid.as_str());
        let waiting: Vec<_> = input.held.into_iter().filter(counts).collect();
        let verdict = self.brake.ask(now, n_nodes, asking.len() + waiting.len());
        let going = [again, let_go].concat();
        match verdict {
            Verdict::Go => Judgement { going: [going, asking].concat(), held: Vec::new(), verdict },
            Verdict::Later { .. } => Judgement { going, held: asking, verdict },
            Verdict::Tripped { .. } => Judgement { going, held: [asking, waiting].concat(), verdict },
        }
    }

    /// Records that the node was deleted, or may have been.
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
