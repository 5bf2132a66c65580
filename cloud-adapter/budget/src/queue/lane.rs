//! One lane of a leaf: the namespaces that have a call in it take turns, and so do the objects of each.
//!
//! The turns of a namespace are of one lane: what it has sent through other buckets does not make it wait here.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use super::leaf::{Head, Turn};

/// The calls that may be next: the first one of each object, by namespace.
#[derive(Clone, Debug, Default)]
pub(super) struct Lane {
    flows: HashMap<Arc<str>, Flow>,
    /// Whose turn it is: the first one's. A turn is of one namespace.
    round: BTreeMap<i64, Arc<str>>,
}

/// The objects of one namespace. Never empty.
#[derive(Clone, Debug)]
struct Flow {
    turn: i64,
    /// By the turn of the object.
    heads: BTreeMap<i64, Head>,
}

impl Lane {
    /// Whose turn it is.
    pub(super) fn first(&self) -> Option<(Turn, &Head)> {
        let (namespace, name) = self.round.first_key_value()?;
        let (object, head) = self.flows.get(name)?.heads.first_key_value()?;
        Some((Turn { namespace: *namespace, object: *object }, head))
    }

    /// The first call of an object whose turn is `object`. A namespace that is not in the lane yet gets the turn `fresh`.
    pub(super) fn insert(&mut self, namespace: &Arc<str>, (object, head): (i64, Head), fresh: i64) {
        if let Some(flow) = self.flows.get_mut(namespace) {
            flow.heads.insert(object, head);
            return;
        }
        let heads = BTreeMap::from([(object, head)]);
        self.flows.insert(Arc::clone(namespace), Flow { turn: fresh, heads });
        self.round.insert(fresh, Arc::clone(namespace));
    }

    /// The object has no call here any more.
    pub(super) fn remove(&mut self, namespace: &Arc<str>, object: i64) {
        let Some(flow) = self.flows.get_mut(namespace) else { return };
        flow.heads.remove(&object);
        if flow.heads.is_empty() {
            self.round.remove(&flow.turn);
            self.flows.remove(namespace);
        }
    }

    /// The namespace gets this turn, if it is in the lane.
    pub(super) fn turn_to(&mut self, namespace: &Arc<str>, turn: i64) {
        let Some(flow) = self.flows.get_mut(namespace) else { return };
        self.round.remove(&flow.turn);
        flow.turn = turn;
        self.round.insert(turn, Arc::clone(namespace));
    }

    /// How many other namespaces come before this one. Cost: O(namespaces).
    pub(super) fn before(&self, namespace: &str) -> usize {
        self.flows.get(namespace).map_or(0, |flow| self.round.range(..flow.turn).count())
    }

    /// How many objects of the namespace come before the one with this turn. Cost: O(objects of the namespace).
    pub(super) fn objects_before(&self, namespace: &str, object: i64) -> usize {
        self.flows.get(namespace).map_or(0, |flow| flow.heads.range(..object).count())
    }

    /// The namespaces that have a call here, and their turns.
    pub(super) fn turns(&self) -> impl Iterator<Item = (&Arc<str>, i64)> {
        self.round.iter().map(|(turn, namespace)| (namespace, *turn))
    }
}
