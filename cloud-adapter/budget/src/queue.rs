//! What waits: one leaf for a class of a controller, in it round robin over namespaces and in each of them over objects, first come
//! first served for one object.
//!
//! Knows nothing of buckets but that calls have a path, and nothing of the order among leaves. Nothing here looks at the
//! whole queue, except when the configuration changes.

mod lane;
mod leaf;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, HashMap},
};

use self::leaf::Leaf;
pub(crate) use self::leaf::{Head, LaneKey, Turn};
use crate::{Call, Class, LeafReport, QueueLimits, Ticket, Time, tree::PathId};

/// A class of a controller.
pub(crate) type LeafKey = (Class, &'static str);

/// A leaf, for good: there are as many as controllers have classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LeafId(pub(crate) usize);

/// Everything that waits.
#[derive(Clone, Debug, Default)]
pub(crate) struct Queue {
    waiting: HashMap<Ticket, Waiting>,
    leaves: Vec<Leaf>,
    names: BTreeMap<LeafKey, LeafId>,
    /// The first is shed first: least urgent, newest.
    by_class: BTreeSet<(Class, Reverse<Ticket>)>,
    /// When a call is too late to be sent.
    by_expiry: BTreeSet<(Time, Ticket)>,
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
    pub(crate) leaf: LeafId,
    pub(crate) class: Class,
    pub(crate) lane: LaneKey,
    pub(crate) ticket: Ticket,
    pub(crate) cost: u64,
    /// Whose turn it is in the leaf: the smallest.
    pub(crate) turn: Turn,
}

/// Whether one more call can wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Free,
    /// If this one gives up its place.
    Of(Ticket),
    None,
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
        self.leaf((call.class, call.controller))
            .is_none_or(|leaf| leaf.len() < limits.per_leaf && leaf.len_of(call) < limits.per_object)
    }

    /// Where a call would wait. A full queue sheds what is less urgent; what is as urgent gives way if its namespace has more calls in the
    /// leaf. So no namespace keeps others out, however many calls it hands in.
    pub(crate) fn place(&self, call: &Call, limits: &QueueLimits) -> Place {
        let leaf = self.leaf((call.class, call.controller));
        let crowd = || leaf.and_then(|leaf| leaf.crowd(&call.namespace));
        let or_none = |ticket: Option<Ticket>| ticket.map_or(Place::None, Place::Of);
        if leaf.is_some_and(|leaf| leaf.len_of(call) >= limits.per_object) {
            return Place::None;
        }
        if leaf.is_some_and(|leaf| leaf.len() >= limits.per_leaf) {
            return or_none(crowd());
        }
        if self.len() >= limits.total {
            return or_none(self.least_urgent(call.class).or_else(crowd));
        }
        Place::Free
    }

    /// What is shed first, if it is less urgent than `class`.
    fn least_urgent(&self, class: Class) -> Option<Ticket> {
        let (least, Reverse(ticket)) = self.by_class.first()?;
        (*least < class).then_some(*ticket)
    }

    /// At the end of its object's queue.
    pub(crate) fn push_back(&mut self, waiting: Waiting) {
        self.insert(waiting, Leaf::push_back);
    }

    /// At the head of its flow: the next of its leaf.
    pub(crate) fn push_front(&mut self, waiting: Waiting) {
        self.insert(waiting, Leaf::push_front);
    }

    fn insert(&mut self, waiting: Waiting, push: impl FnOnce(&mut Leaf, &Call, Head)) {
        let LeafId(index) = *self.names.entry(waiting.leaf()).or_insert_with(|| {
            self.leaves.push(Leaf::new(waiting.leaf()));
            LeafId(self.leaves.len() - 1)
        });
        if let Some(leaf) = self.leaves.get_mut(index) {
            push(leaf, &waiting.call, waiting.head());
        }
        self.by_class.insert((waiting.call.class, Reverse(waiting.ticket)));
        self.by_expiry.extend(waiting.expiry.map(|expiry| (expiry, waiting.ticket)));
        self.waiting.insert(waiting.ticket, waiting);
    }

    /// A call that waits is of use until another time: it keeps its place.
    pub(crate) fn extend(&mut self, ticket: Ticket, deadline: Option<Time>, expiry: Option<Time>) {
        if let Some(waiting) = self.waiting.get_mut(&ticket) {
            waiting.call.deadline = deadline;
            if let Some(before) = std::mem::replace(&mut waiting.expiry, expiry) {
                self.by_expiry.remove(&(before, ticket));
            }
            self.by_expiry.extend(expiry.map(|expiry| (expiry, ticket)));
        }
    }

    /// Takes a call out that nobody serves.
    pub(crate) fn remove(&mut self, ticket: Ticket) -> Option<Waiting> {
        let waiting = self.waiting.remove(&ticket)?;
        self.by_class.remove(&(waiting.call.class, Reverse(ticket)));
        if let Some(expiry) = waiting.expiry {
            self.by_expiry.remove(&(expiry, ticket));
        }
        if let Some(leaf) = self.leaf_mut(waiting.leaf()) {
            leaf.remove(&waiting.call, waiting.head());
        }
        Some(waiting)
    }

    /// Takes the call out that is served now: its namespace goes to the end of the round, and its object to the end of the namespace's.
    pub(crate) fn serve(&mut self, ticket: Ticket) -> Option<Waiting> {
        let waiting = self.remove(ticket)?;
        if let Some(leaf) = self.leaf_mut(waiting.leaf()) {
            leaf.rotate(&waiting.call, waiting.lane());
        }
        Some(waiting)
    }

    /// One candidate a lane: O(leaves x paths).
    pub(crate) fn candidates(&self) -> impl Iterator<Item = Candidate> {
        self.leaves.iter().enumerate().flat_map(|(index, leaf)| {
            let (class, _) = leaf.key;
            leaf.heads().map(move |(turn, head)| {
                let Head { ticket, cost, lane } = *head;
                Candidate { leaf: LeafId(index), class, lane, ticket, cost, turn }
            })
        })
    }

    /// The call that is too late first.
    pub(crate) fn first_expiry(&self) -> Option<(Time, Ticket)> {
        self.by_expiry.first().copied()
    }

    /// Tokens that wait in a leaf for a bucket, as `pays` tells, and which part of them goes before the call: namespaces and objects
    /// take turns. One that does not wait yet comes last of its object.
    pub(crate) fn ahead(&self, waiting: &Waiting, pays: impl Fn(PathId) -> bool) -> u64 {
        let Some(leaf) = self.leaf(waiting.leaf()) else { return 0 };
        let (call, calls) = (&waiting.call, leaf.len().max(1));
        let turns = leaf.before(call, waiting.ticket).unwrap_or_else(|| leaf.before_new(call));
        let share = u128::from(leaf.waiting(pays)) * turns as u128 / calls as u128;
        u64::try_from(share).unwrap_or(u64::MAX)
    }

    /// How many namespaces take turns with the call, its own among them.
    pub(crate) fn namespaces(&self, call: &Call) -> usize {
        self.leaf((call.class, call.controller)).map_or(0, |leaf| leaf.others(call)).saturating_add(1)
    }

    /// The other leaves in which calls wait for a bucket, with the tokens that they wait for.
    pub(crate) fn others(
        &self,
        call: &Call,
        pays: impl Fn(PathId) -> bool,
    ) -> impl Iterator<Item = (Class, u64)> {
        let own = (call.class, call.controller);
        let others = self.leaves.iter().filter(move |leaf| leaf.key != own);
        others.map(move |leaf| (leaf.key.0, leaf.waiting(&pays))).filter(|(_, tokens)| *tokens > 0)
    }

    /// Calls that wait for a bucket, as `pays` tells.
    pub(crate) fn queued(&self, pays: impl Fn(PathId) -> bool) -> u64 {
        self.leaves.iter().map(|leaf| leaf.queued(&pays)).sum()
    }

    /// Paths have changed: each call gets its new one, and everything keeps its place.
    pub(crate) fn rearrange(&mut self, mut path: impl FnMut(&Call) -> PathId) {
        for leaf in &mut self.leaves {
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
        let leaves = self.names.iter().filter_map(|(key, id)| Some((key, self.leaves.get(id.0)?)));
        leaves
            .map(|((class, controller), leaf)| LeafReport {
                class: *class,
                controller,
                queued: u64::try_from(leaf.len()).unwrap_or(u64::MAX),
            })
            .collect()
    }

    /// Everything that waits, in no order.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = &Waiting> {
        self.waiting.values()
    }

    fn leaf(&self, key: LeafKey) -> Option<&Leaf> {
        self.leaves.get(self.names.get(&key)?.0)
    }

    fn leaf_mut(&mut self, key: LeafKey) -> Option<&mut Leaf> {
        self.leaves.get_mut(self.names.get(&key)?.0)
    }

    /// A waiting call.
    pub(crate) fn get(&self, ticket: Ticket) -> Option<&Waiting> {
        self.waiting.get(&ticket)
    }
}
