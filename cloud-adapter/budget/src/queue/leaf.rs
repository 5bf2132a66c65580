//! One leaf: its objects take turns.
//!
//! The round is kept as one ring a lane, so that an object whose call cannot go does not hold up those whose can, and no
//! decision looks at all of them.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::Arc,
};

use super::LeafKey;
use crate::{Ticket, tree::PathId};

/// Calls that need the same: if the head of a lane may not go, none behind it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LaneKey {
    pub(crate) path: PathId,
    pub(crate) reserve: bool,
    pub(crate) self_check: bool,
}

/// A call as far as its place is concerned.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    pub(crate) ticket: Ticket,
    pub(crate) cost: u64,
    pub(crate) lane: LaneKey,
}

/// One queue of the fair scheduler.
#[derive(Clone, Debug)]
pub(super) struct Leaf {
    pub(super) key: LeafKey,
    objects: HashMap<Arc<str>, Object>,
    /// First calls of the objects, by turn. Lanes are kept: there are few.
    lanes: BTreeMap<LaneKey, BTreeMap<i64, Head>>,
    /// Calls and tokens that wait, by path.
    waiting: BTreeMap<PathId, Sum>,
    len: usize,
    /// The turn of the object that came last.
    last_turn: i64,
    /// The turn of the object that was put first.
    first_turn: i64,
}

/// The calls about one object, first come first served. Never empty.
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
            objects: HashMap::new(),
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

    pub(super) fn objects(&self) -> usize {
        self.objects.len()
    }

    pub(super) fn len_of(&self, object: &str) -> usize {
        self.objects.get(object).map_or(0, |object| object.calls.len())
    }

    /// How many go before a call that waits: those before it about its object, and other objects in turn. Cost: O(objects).
    pub(super) fn before(&self, object: &str, ticket: Ticket) -> Option<usize> {
        let queue = self.objects.get(object)?;
        let position = queue.calls.iter().position(|call| call.ticket == ticket)?;
        let earlier: usize = self.lanes.values().map(|ring| ring.range(..queue.turn).count()).sum();
        Some(
            position
                .saturating_mul(self.objects.len())
                .saturating_add(earlier)
                .min(self.len.saturating_sub(1)),
        )
    }

    /// Tokens that calls on those paths wait for.
    pub(super) fn waiting(&self, on: impl Fn(PathId) -> bool) -> u64 {
        self.waiting.iter().filter(|(path, _)| on(**path)).map(|(_, sum)| sum.tokens).sum()
    }

    /// Calls that wait on those paths.
    pub(super) fn queued(&self, on: impl Fn(PathId) -> bool) -> u64 {
        self.waiting.iter().filter(|(path, _)| on(**path)).map(|(_, sum)| sum.calls).sum()
    }

    /// Whose turn it is, one a lane.
    pub(super) fn heads(&self) -> impl Iterator<Item = (i64, &Head)> {
        self.lanes.values().filter_map(|ring| ring.first_key_value()).map(|(turn, head)| (*turn, head))
    }

    pub(super) fn push_back(&mut self, object: &Arc<str>, head: Head) {
        self.count(head);
        if let Some(object) = self.objects.get_mut(object) {
            object.calls.push_back(head);
            return;
        }
        self.last_turn += 1;
        let turn = self.last_turn;
        self.objects.insert(Arc::clone(object), Object { turn, calls: VecDeque::from([head]) });
        self.lanes.entry(head.lane).or_default().insert(turn, head);
    }

    pub(super) fn push_front(&mut self, object: &Arc<str>, head: Head) {
        self.count(head);
        self.first_turn -= 1;
        let turn = self.first_turn;
        let mut calls = self.leave(object).map_or_else(VecDeque::new, |object| object.calls);
        calls.push_front(head);
        self.enter(object, Object { turn, calls });
    }

    /// Takes one call out.
    pub(super) fn remove(&mut self, object: &Arc<str>, ticket: Ticket, head: Head) {
        let Some(mut queue) = self.leave(object) else { return };
        if let Some(position) = queue.calls.iter().position(|call| call.ticket == ticket) {
            queue.calls.remove(position);
            self.len -= 1;
            if let Some(sum) = self.waiting.get_mut(&head.lane.path) {
                sum.calls -= 1;
                sum.tokens -= head.cost;
            }
        }
        self.enter(object, queue);
    }

    /// The object has had its turn.
    pub(super) fn rotate(&mut self, object: &Arc<str>) {
        let Some(queue) = self.leave(object) else { return };
        self.last_turn += 1;
        self.enter(object, Object { turn: self.last_turn, ..queue });
    }

    /// Gives each call its new head; the turns stay.
    pub(super) fn rearrange(&mut self, mut head: impl FnMut(Ticket) -> Option<Head>) {
        self.lanes.clear();
        self.waiting.clear();
        self.len = 0;
        let objects: BTreeMap<_, _> = std::mem::take(&mut self.objects).into_iter().collect();
        for (name, Object { turn, calls }) in objects {
            let calls: VecDeque<_> = calls.into_iter().filter_map(|call| head(call.ticket)).collect();
            calls.iter().for_each(|call| self.count(*call));
            self.enter(&name, Object { turn, calls });
        }
    }

    fn count(&mut self, head: Head) {
        self.len += 1;
        let sum = self.waiting.entry(head.lane.path).or_default();
        sum.calls += 1;
        sum.tokens += head.cost;
    }

    /// Takes an object out of the round.
    fn leave(&mut self, object: &Arc<str>) -> Option<Object> {
        let queue = self.objects.remove(object)?;
        if let Some(ring) = queue.calls.front().and_then(|head| self.lanes.get_mut(&head.lane)) {
            ring.remove(&queue.turn);
        }
        Some(queue)
    }

    /// Puts an object into the round, unless nothing waits.
    fn enter(&mut self, name: &Arc<str>, object: Object) {
        if let Some(head) = object.calls.front() {
            self.lanes.entry(head.lane).or_default().insert(object.turn, *head);
            self.objects.insert(Arc::clone(name), object);
        }
    }
}
