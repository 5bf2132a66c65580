//! A lane holds waiting keys of equal urgency. The queue has a lane for keys that were added individually, and a lane for keys that a
//! reconcile of all keys added. Namespaces with waiting keys are served in turn. The keys of one namespace are served in the sequence of
//! their arrival.
//!
//! A new namespace is served after the namespaces that already wait. Its first key therefore waits for only one key of each other
//! namespace.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::Arc,
};

/// Waiting keys. Each operation costs O(log n).
#[derive(Debug)]
pub(super) struct Lane<K> {
    flows: BTreeMap<Arc<str>, Flow<K>>,
    /// The namespaces with waiting keys, by turn number. The namespace with the lowest number is served next.
    round: BTreeMap<u64, Arc<str>>,
    /// The number of turns and places assigned so far.
    given: u64,
}

/// The waiting keys of one namespace. There is always at least one key.
#[derive(Debug)]
struct Flow<K> {
    turn: u64,
    /// The keys by place, which is the sequence of arrival.
    keys: BTreeMap<u64, K>,
}

impl<K> Default for Lane<K> {
    fn default() -> Self {
        Self { flows: BTreeMap::new(), round: BTreeMap::new(), given: 0 }
    }
}

impl<K> Lane<K> {
    pub(super) fn is_empty(&self) -> bool {
        self.flows.is_empty()
    }

    pub(super) fn first(&self) -> Option<&K> {
        let (_turn, namespace) = self.round.first_key_value()?;
        self.flows.get(namespace)?.keys.first_key_value().map(|(_place, key)| key)
    }

    /// Adds a key that is not in this lane yet, and returns its place.
    pub(super) fn push(&mut self, namespace: &str, key: K) -> u64 {
        let place = self.give();
        match self.flows.get_mut(namespace) {
            Some(flow) => drop(flow.keys.insert(place, key)),
            None => {
                let namespace: Arc<str> = namespace.into();
                self.round.insert(place, Arc::clone(&namespace));
                self.flows.insert(namespace, Flow { turn: place, keys: BTreeMap::from([(place, key)]) });
            }
        }
        place
    }

    /// Takes the next key. All other waiting namespaces are then served before the namespace of this key.
    pub(super) fn pop(&mut self) -> Option<K> {
        let (_turn, namespace) = self.round.pop_first()?;
        let turn = self.give();
        let Entry::Occupied(mut flow) = self.flows.entry(Arc::clone(&namespace)) else { return None };
        let key = flow.get_mut().keys.pop_first().map(|(_place, key)| key);
        if flow.get().keys.is_empty() {
            flow.remove();
        } else {
            flow.get_mut().turn = turn;
            self.round.insert(turn, namespace);
        }
        key
    }

    pub(super) fn remove(&mut self, namespace: &str, place: u64) {
        let Some(flow) = self.flows.get_mut(namespace) else { return };
        flow.keys.remove(&place);
        if flow.keys.is_empty() {
            self.round.remove(&flow.turn);
            self.flows.remove(namespace);
        }
    }

    /// Returns the next place or turn.
    fn give(&mut self) -> u64 {
        self.given = self.given.saturating_add(1);
        self.given
    }
}
