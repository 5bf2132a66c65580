//! What waits, and whose turn it is: start-time fair queueing over leaves (a class of a controller), round robin over the
//! objects of a leaf, first come first served for one object. Knows nothing of buckets but that calls have a path.
//!
//! Source: Goyal, Vin, Cheng, "Start-time Fair Queueing", SIGCOMM 1996. All in integers; nothing here looks at the
//! whole queue, except for [`Queue::rearrange`].

mod leaf;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, HashMap},
};

use self::leaf::Leaf;
pub(crate) use self::leaf::{Head, LaneKey};
use crate::{Call, Class, LeafReport, QueueLimits, Ticket, Time, tree::PathId};

/// A class of a controller.
pub(crate) type LeafKey = (Class, &'static str);

/// Tag units that one token is worth at weight 1.
const TOKEN: u64 = 1 << 20;

/// Everything that waits.
#[derive(Clone, Debug, Default)]
pub(crate) struct Queue {
    waiting: HashMap<Ticket, Waiting>,
    leaves: BTreeMap<LeafKey, Leaf>,
    /// The first is shed first: least urgent, newest.
    by_class: BTreeSet<(Class, Reverse<Ticket>)>,
    /// When a call is too late to be sent.
    by_expiry: BTreeSet<(Time, Ticket)>,
    /// The start tag of the call that was served last.
    virtual_time: u64,
}

/// A call that waits.
#[derive(Clone, Debug)]
pub(crate) struct Waiting {
    pub(crate) ticket: Ticket,
    pub(crate) call: Call,
    pub(crate) path: PathId,
    /// When it was handed in.
    pub(crate) since: Time,
    /// When it is too late to be sent.
    pub(crate) expiry: Option<Time>,
    /// Whether it was sent and throttled once.
    pub(crate) again: bool,
}

/// One candidate: the call whose turn it is in one lane of a leaf.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    pub(crate) leaf: LeafKey,
    pub(crate) lane: LaneKey,
    pub(crate) ticket: Ticket,
    pub(crate) cost: u64,
    /// The smallest goes first: start tag of the leaf, then the more urgent, then whose turn it is in the leaf.
    pub(crate) order: (u64, Reverse<Class>, i64),
}

impl Waiting {
    pub(crate) fn cost(&self) -> u64 {
        u64::from(self.call.cost.max(1))
    }

    fn leaf(&self) -> LeafKey {
        (self.call.class, self.call.controller)
    }

    fn lane(&self) -> LaneKey {
        LaneKey { path: self.path, reserve: self.call.reserve, self_check: self.call.self_check }
    }

    fn head(&self) -> Head {
        Head { ticket: self.ticket, cost: self.cost(), lane: self.lane() }
    }
}

impl Queue {
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether the leaf and the object have place for one more; the whole is another matter.
    pub(crate) fn has_place(&self, call: &Call, limits: &QueueLimits) -> bool {
        self.leaves
            .get(&(call.class, call.controller))
            .is_none_or(|leaf| leaf.len() < limits.per_leaf && leaf.len_of(&call.object) < limits.per_object)
    }

    /// What is shed first, if it is less urgent than `class`.
    pub(crate) fn least_urgent(&self, class: Class) -> Option<Ticket> {
        let (least, Reverse(ticket)) = self.by_class.first()?;
        (*least < class).then_some(*ticket)
    }

    /// At the end of its object's queue.
    pub(crate) fn push_back(&mut self, waiting: Waiting) {
        let leaf = self.leaves.entry(waiting.leaf()).or_default();
        leaf.push_back(&waiting.call.object, waiting.head());
        self.insert(waiting);
    }

    /// At the head of its flow: the next of its leaf.
    pub(crate) fn push_front(&mut self, waiting: Waiting) {
        let leaf = self.leaves.entry(waiting.leaf()).or_default();
        leaf.push_front(&waiting.call.object, waiting.head());
        self.insert(waiting);
    }

    fn insert(&mut self, waiting: Waiting) {
        self.by_class.insert((waiting.call.class, Reverse(waiting.ticket)));
        self.by_expiry.extend(waiting.expiry.map(|expiry| (expiry, waiting.ticket)));
        self.waiting.insert(waiting.ticket, waiting);
    }

    /// Takes a call out that nobody serves.
    pub(crate) fn remove(&mut self, ticket: Ticket) -> Option<Waiting> {
        let waiting = self.waiting.remove(&ticket)?;
        self.by_class.remove(&(waiting.call.class, Reverse(ticket)));
        if let Some(expiry) = waiting.expiry {
            self.by_expiry.remove(&(expiry, ticket));
        }
        if let Some(leaf) = self.leaves.get_mut(&waiting.leaf()) {
            leaf.remove(&waiting.call.object, ticket, waiting.head());
        }
        Some(waiting)
    }

    /// Takes the call out that is served now: its leaf pays, and its object goes to the end of the round.
    pub(crate) fn serve(&mut self, candidate: &Candidate, weight: u32) -> Option<Waiting> {
        let (start, ..) = candidate.order;
        let waiting = self.remove(candidate.ticket)?;
        let leaf = self.leaves.get_mut(&candidate.leaf)?;
        leaf.rotate(&waiting.call.object);
        leaf.finish = start.saturating_add((candidate.cost.saturating_mul(TOKEN) / u64::from(weight)).max(1));
        self.virtual_time = self.virtual_time.max(start);
        Some(waiting)
    }

    /// One candidate a lane: O(leaves x paths).
    pub(crate) fn candidates(&self) -> impl Iterator<Item = Candidate> {
        self.leaves.iter().flat_map(|(key, leaf)| {
            let start = leaf.finish.max(self.virtual_time);
            leaf.heads().map(move |(turn, head)| Candidate {
                leaf: *key,
                lane: head.lane,
                ticket: head.ticket,
                cost: head.cost,
                order: (start, Reverse(key.0), turn),
            })
        })
    }

    /// The call that is too late first.
    pub(crate) fn first_expiry(&self) -> Option<(Time, Ticket)> {
        self.by_expiry.first().copied()
    }

    /// Tokens that wait in a leaf for a bucket, as `pays` tells, and which part of them goes before one more call about
    /// the object: objects take turns.
    pub(crate) fn ahead(&self, call: &Call, pays: impl Fn(PathId) -> bool) -> u64 {
        let Some(leaf) = self.leaves.get(&(call.class, call.controller)) else { return 0 };
        let rounds = leaf.len_of(&call.object).saturating_add(1);
        let calls = leaf.len().max(1);
        let turns = rounds.saturating_mul(leaf.objects()).min(calls);
        let share = u128::from(leaf.waiting(pays)) * turns as u128 / calls as u128;
        u64::try_from(share).unwrap_or(u64::MAX)
    }

    /// The other leaves in which calls wait for a bucket, with the tokens that they wait for.
    pub(crate) fn others(
        &self,
        call: &Call,
        pays: impl Fn(PathId) -> bool,
    ) -> impl Iterator<Item = (Class, u64)> {
        let own = (call.class, call.controller);
        let others = self.leaves.iter().filter(move |(key, _)| **key != own);
        others.map(move |(key, leaf)| (key.0, leaf.waiting(&pays))).filter(|(_, tokens)| *tokens > 0)
    }

    /// Calls that wait for a bucket, as `pays` tells.
    pub(crate) fn queued(&self, pays: impl Fn(PathId) -> bool) -> u64 {
        self.leaves.values().map(|leaf| leaf.queued(&pays)).sum()
    }

    /// Paths have changed: each call gets its new one, and everything keeps its place.
    pub(crate) fn rearrange(&mut self, mut path: impl FnMut(&Call) -> PathId) {
        for leaf in self.leaves.values_mut() {
            leaf.rearrange(|ticket| {
                let waiting = self.waiting.get_mut(&ticket)?;
                waiting.path = path(&waiting.call);
                Some(waiting.head())
            });
        }
    }

    /// Nothing waits any more; the leaves stay.
    pub(crate) fn clear(&mut self) {
        for ticket in self.tickets() {
            self.remove(ticket);
        }
    }

    /// Everything that waits, oldest first.
    pub(crate) fn tickets(&self) -> Vec<Ticket> {
        let mut tickets: Vec<_> = self.by_class.iter().map(|(_, Reverse(ticket))| *ticket).collect();
        tickets.sort_unstable();
        tickets
    }

    pub(crate) fn report(&self) -> Vec<LeafReport> {
        let leaves = self.leaves.iter();
        leaves
            .map(|((class, controller), leaf)| LeafReport {
                class: *class,
                controller,
                queued: u64::try_from(leaf.len()).unwrap_or(u64::MAX),
            })
            .collect()
    }

    /// A waiting call.
    pub(crate) fn get(&self, ticket: Ticket) -> Option<&Waiting> {
        self.waiting.get(&ticket)
    }
}
