//! One lane of a leaf: calls that take tokens from the same buckets under the same conditions. The namespaces that have a call in the lane
//! take turns, and so do the objects of each namespace.
//!
//! A namespace has a separate turn in each lane, so its calls through other buckets do not delay its calls in this lane.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use crate::{Ticket, tree::PathId};

/// Calls with equal keys have the same requirements. So if the first call of a lane may not be sent, no other call of the lane may be sent
/// either.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LaneKey {
    pub(crate) path: PathId,
    pub(crate) reserve: bool,
    pub(crate) self_check: bool,
}

/// The part of a call that decides its place in the queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    pub(crate) ticket: Ticket,
    pub(crate) cost: u64,
    pub(crate) lane: LaneKey,
}

/// Position in the round robin: the smallest is next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct QueueHead {
    pub(super) namespace: i64,
    pub(super) object: i64,
}

/// The first call of each object, by namespace. These calls are the candidates.
#[derive(Clone, Debug, Default)]
pub(super) struct Lane {
    flows: HashMap<Arc<str>, Flow>,
    /// Namespaces by turn; the smallest turn is next.
    round: BTreeMap<i64, Arc<str>>,
}

/// The objects of one namespace that have a call in the lane. Never empty.
#[derive(Clone, Debug)]
struct Flow {
    turn: i64,
    /// Calls by the turn of their object.
    heads: BTreeMap<i64, Head>,
}

impl Lane {
    pub(super) fn first(&self) -> Option<(QueueHead, &Head)> {
        let (namespace, name) = self.round.first_key_value()?;
        let (object, head) = self.flows.get(name)?.heads.first_key_value()?;
        Some((QueueHead { namespace: *namespace, object: *object }, head))
    }

    /// Inserts an object's first call; `object` is the turn of that object. A namespace without calls in the lane gets the turn `fresh`.
    pub(super) fn insert(&mut self, namespace: &Arc<str>, object: i64, head: Head, fresh: i64) {
        if let Some(flow) = self.flows.get_mut(namespace) {
            flow.heads.insert(object, head);
            return;
        }
        let heads = BTreeMap::from([(object, head)]);
        self.flows.insert(Arc::clone(namespace), Flow { turn: fresh, heads });
        self.round.insert(fresh, Arc::clone(namespace));
    }

    pub(super) fn remove(&mut self, namespace: &Arc<str>, object: i64) {
        let Some(flow) = self.flows.get_mut(namespace) else { return };
        flow.heads.remove(&object);
        if flow.heads.is_empty() {
            self.round.remove(&flow.turn);
            self.flows.remove(namespace);
        }
    }

    /// Moves a namespace to this turn, if it is in the lane.
    pub(super) fn turn_to(&mut self, namespace: &Arc<str>, turn: i64) {
        let Some(flow) = self.flows.get_mut(namespace) else { return };
        self.round.remove(&flow.turn);
        flow.turn = turn;
        self.round.insert(turn, Arc::clone(namespace));
    }

    /// Number of namespaces that are served before `namespace`. Cost: O(namespaces).
    pub(super) fn before(&self, namespace: &str) -> usize {
        self.flows.get(namespace).map_or(0, |flow| self.round.range(..flow.turn).count())
    }

    /// Number of objects of the namespace that are served before the object with this turn. Cost: O(objects of the namespace).
    pub(super) fn objects_before(&self, namespace: &str, object: i64) -> usize {
        self.flows.get(namespace).map_or(0, |flow| flow.heads.range(..object).count())
    }

    pub(super) fn turns(&self) -> impl Iterator<Item = (&Arc<str>, i64)> {
        self.round.iter().map(|(turn, namespace)| (namespace, *turn))
    }
}
