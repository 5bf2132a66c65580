//! State of one leaf (the queue for one class of a controller): its namespaces take turns, and the objects of a namespace take turns.
//!
//! Each lane has a separate round robin. So an object whose call may not be sent does not block others, and no decision iterates over all
//! objects.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    mem,
    sync::Arc,
};

use super::{
    LeafKey,
    lane::{Head, Lane, LaneKey, QueueHead},
};
use crate::{Call, Ticket, tree::PathId};

#[derive(Clone, Debug)]
pub(super) struct Leaf {
    pub(super) key: LeafKey,
    namespaces: BTreeMap<Arc<str>, Namespace>,
    /// The first call of each object, by turn. Lanes are never removed, since they are few.
    lanes: BTreeMap<LaneKey, Lane>,
    /// Number of queued calls and their tokens, by path.
    waiting: BTreeMap<PathId, Sum>,
    len: usize,
    /// The turn that was assigned last.
    last_turn: i64,
    /// The turn of the last object that was put at the front.
    first_turn: i64,
}

/// The queued calls of one namespace. Never empty.
#[derive(Clone, Debug, Default)]
struct Namespace {
    objects: HashMap<Arc<str>, Object>,
    tickets: BTreeSet<Ticket>,
}

/// The queued calls for one object, first in, first out. Never empty.
#[derive(Clone, Debug)]
struct Object {
    turn: i64,
    calls: VecDeque<Head>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    calls: u64,
    tokens: u64,
}

impl Leaf {
    pub(super) fn new(key: LeafKey) -> Self {
        Self {
            key,
            namespaces: BTreeMap::new(),
            lanes: BTreeMap::new(),
            waiting: BTreeMap::new(),
            len: 0,
            last_turn: 0,
            first_turn: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn len_of(&self, call: &Call) -> usize {
        let namespace = self.namespaces.get(&call.namespace);
        namespace.and_then(|it| it.objects.get(&call.object)).map_or(0, |object| object.calls.len())
    }

    /// Number of namespaces with queued calls, excluding the namespace of the call.
    pub(super) fn others(&self, call: &Call) -> usize {
        let own = self.namespaces.contains_key(&call.namespace);
        self.namespaces.len().saturating_sub(own.into())
    }

    /// The call to shed if the leaf is full and `namespace` has a new call. This is the newest call of the namespace with the most calls,
    /// if that namespace would still have more calls than `namespace`. Cost: O(namespaces).
    pub(super) fn shed_candidate(&self, namespace: &str) -> Option<Ticket> {
        let own = self.namespaces.get(namespace).map_or(0, |own| own.tickets.len());
        let most = self.namespaces.values().max_by_key(|it| it.tickets.len())?;
        most.tickets.last().copied().filter(|_| most.tickets.len() > own.saturating_add(1))
    }

    /// Number of calls that are served before a queued call. In the call's namespace, these are earlier calls for the same object and calls
    /// for other objects. For each of them, one call of each other namespace is served, too. Cost: O(objects of the namespace),
    /// O(namespaces).
    pub(super) fn before(&self, call: &Call, ticket: Ticket) -> Option<usize> {
        let namespace = self.namespaces.get(&call.namespace)?;
        let queue = namespace.objects.get(&call.object)?;
        let position = queue.calls.iter().position(|one| one.ticket == ticket)?;
        let lane = self.lanes.get(&queue.calls.front()?.lane)?;
        let lanes = self.lanes.values();
        let earlier: usize = lanes.map(|lane| lane.objects_before(&call.namespace, queue.turn)).sum();
        let own = position.saturating_mul(namespace.objects.len()).saturating_add(earlier);
        let own = own.min(namespace.tickets.len().saturating_sub(1));
        let theirs = own.saturating_mul(self.others(call)).saturating_add(lane.before(&call.namespace));
        Some(own.saturating_add(theirs).min(self.len.saturating_sub(1)))
    }

    pub(super) fn before_new(&self, call: &Call) -> usize {
        let rounds = self.len_of(call).saturating_add(1);
        let own = self.namespaces.get(&call.namespace).map_or(0, |namespace| {
            rounds.saturating_mul(namespace.objects.len()).min(namespace.tickets.len())
        });
        let theirs = own.saturating_add(1).saturating_mul(self.others(call));
        own.saturating_add(theirs).min(self.len)
    }

    /// Number of tokens needed by the calls that are queued on these paths.
    pub(super) fn waiting(&self, on: impl Fn(PathId) -> bool) -> u64 {
        self.waiting.iter().filter(|(path, _)| on(**path)).map(|(_, sum)| sum.tokens).sum()
    }

    /// Number of calls that are queued on these paths.
    pub(super) fn queued(&self, on: impl Fn(PathId) -> bool) -> u64 {
        self.waiting.iter().filter(|(path, _)| on(**path)).map(|(_, sum)| sum.calls).sum()
    }

    pub(super) fn heads(&self) -> impl Iterator<Item = (QueueHead, &Head)> {
        self.lanes.values().filter_map(Lane::first)
    }

    pub(super) fn push_back(&mut self, call: &Call, head: Head) {
        self.count(head);
        let namespace = self.namespaces.entry(Arc::clone(&call.namespace)).or_default();
        namespace.tickets.insert(head.ticket);
        if let Some(object) = namespace.objects.get_mut(&call.object) {
            object.calls.push_back(head);
            return;
        }
        self.last_turn += 1;
        let turn = self.last_turn;
        namespace.objects.insert(Arc::clone(&call.object), Object { turn, calls: VecDeque::from([head]) });
        self.lanes.entry(head.lane).or_default().insert(&call.namespace, turn, head, turn);
    }

    pub(super) fn push_front(&mut self, call: &Call, head: Head) {
        self.count(head);
        self.first_turn -= 1;
        let turn = self.first_turn;
        let namespace = self.namespaces.entry(Arc::clone(&call.namespace)).or_default();
        namespace.tickets.insert(head.ticket);
        let object = namespace.objects.entry(Arc::clone(&call.object));
        let object = object.or_insert_with(|| Object { turn, calls: VecDeque::new() });
        let (before, former) = (mem::replace(&mut object.turn, turn), object.calls.front().copied());
        object.calls.push_front(head);
        if let Some(former) = former {
            self.leave(&call.namespace, before, former.lane);
        }
        let lane = self.lanes.entry(head.lane).or_default();
        lane.insert(&call.namespace, turn, head, turn);
        lane.turn_to(&call.namespace, turn);
    }

    /// Removes a call. The namespace keeps its turn if it has other calls in the lane.
    pub(super) fn remove(&mut self, call: &Call, head: Head) {
        let Some(namespace) = self.namespaces.get_mut(&call.namespace) else { return };
        let Some(object) = namespace.objects.get_mut(&call.object) else { return };
        let Some(position) = object.calls.iter().position(|one| one.ticket == head.ticket) else { return };
        let (turn, removed) = (object.turn, object.calls.remove(position));
        let next = object.calls.front().copied();
        if next.is_none() {
            namespace.objects.remove(&call.object);
        }
        namespace.tickets.remove(&head.ticket);
        if namespace.tickets.is_empty() {
            self.namespaces.remove(&call.namespace);
        }
        self.len -= 1;
        if let Some(sum) = self.waiting.get_mut(&head.lane.path) {
            sum.calls -= 1;
            sum.tokens -= head.cost;
        }
        let Some(removed) = removed.filter(|_| position == 0) else { return };
        if let Some(next) = next {
            self.enter(&call.namespace, turn, next);
        }
        if next.is_none_or(|next| next.lane != removed.lane) {
            self.leave(&call.namespace, turn, removed.lane);
        }
    }

    /// Moves the object, and its namespace in this lane, to the end of the round robin.
    pub(super) fn rotate(&mut self, call: &Call, lane: LaneKey) {
        let Some(namespace) = self.namespaces.get_mut(&call.namespace) else { return };
        self.last_turn += 1;
        let turn = self.last_turn;
        if let Some(object) = namespace.objects.get_mut(&call.object) {
            let before = mem::replace(&mut object.turn, turn);
            if let Some(first) = object.calls.front().copied() {
                self.enter(&call.namespace, turn, first);
                self.leave(&call.namespace, before, first.lane);
            }
        }
        if let Some(lane) = self.lanes.get_mut(&lane) {
            self.last_turn += 1;
            lane.turn_to(&call.namespace, self.last_turn);
        }
    }

    /// Replaces the [`Head`] of each call without changing the turns.
    pub(super) fn rearrange(&mut self, mut head: impl FnMut(Ticket) -> Option<Head>) {
        let mut turns = BTreeMap::new();
        for (namespace, turn) in self.lanes.values().flat_map(Lane::turns) {
            let first = turns.entry(Arc::clone(namespace)).or_insert(turn);
            *first = turn.min(*first);
        }
        self.lanes.clear();
        self.waiting.clear();
        self.len = 0;
        for (name, namespace) in mem::take(&mut self.namespaces) {
            let mut kept = Namespace::default();
            let objects: BTreeMap<_, _> = namespace.objects.into_iter().collect();
            for (object, Object { turn, calls }) in objects {
                let calls: VecDeque<_> = calls.into_iter().filter_map(|call| head(call.ticket)).collect();
                calls.iter().for_each(|call| self.count(*call));
                let Some(first) = calls.front().copied() else { continue };
                let fresh = turns.get(&name).copied().unwrap_or(turn);
                self.lanes.entry(first.lane).or_default().insert(&name, turn, first, fresh);
                kept.tickets.extend(calls.iter().map(|call| call.ticket));
                kept.objects.insert(object, Object { turn, calls });
            }
            if !kept.tickets.is_empty() {
                self.namespaces.insert(name, kept);
            }
        }
    }

    fn count(&mut self, head: Head) {
        self.len += 1;
        let sum = self.waiting.entry(head.lane.path).or_default();
        sum.calls += 1;
        sum.tokens += head.cost;
    }

    fn enter(&mut self, namespace: &Arc<str>, object: i64, head: Head) {
        self.last_turn += 1;
        self.lanes.entry(head.lane).or_default().insert(namespace, object, head, self.last_turn);
    }

    fn leave(&mut self, namespace: &Arc<str>, object: i64, lane: LaneKey) {
        if let Some(lane) = self.lanes.get_mut(&lane) {
            lane.remove(namespace, object);
        }
    }
}
