//! Queued calls: one leaf for each class of a controller. Within a leaf, namespaces take turns; within a namespace, objects take turns; the
//! calls for one object are first in, first out.
//!
//! The queue only knows that calls have a path through buckets; other modules decide the order among leaves. No operation iterates over the
//! whole queue, except a configuration change.

mod lane;
mod leaf;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, HashMap},
};

pub(crate) use self::lane::{Head, LaneKey, QueueHead};
use self::leaf::Leaf;
use crate::{Call, Class, LeafReport, QueueLimits, Ticket, Time, fair_queueing::LeafId, tree::PathId};

pub(crate) type LeafKey = (Class, &'static str);

#[derive(Clone, Debug, Default)]
pub(crate) struct Queue {
    waiting: HashMap<Ticket, Waiting>,
    leaves: Vec<Leaf>,
    names: BTreeMap<LeafKey, LeafId>,
    /// Calls in the order of shedding: least urgent first, then newest.
    by_class: BTreeSet<(Class, Reverse<Ticket>)>,
    /// Calls by the time at which they become too late to be sent.
    by_expiry: BTreeSet<(Time, Ticket)>,
}

#[derive(Clone, Debug)]
pub(crate) struct Waiting {
    pub(crate) ticket: Ticket,
    pub(crate) call: Call,
    pub(crate) path: PathId,
    pub(crate) since: Time,
    /// Time at which the call becomes too late to be sent.
    pub(crate) expiry: Option<Time>,
    /// Whether the call was already sent and throttled once.
    pub(crate) again: bool,
}

/// A candidate: the next call of one lane (see `lane`) of a leaf.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    pub(crate) leaf: LeafId,
    pub(crate) class: Class,
    pub(crate) lane: LaneKey,
    pub(crate) ticket: Ticket,
    pub(crate) cost: u64,
    /// Position of the call in the round robin of the leaf: the smallest is next.
    pub(crate) turn: QueueHead,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Capacity {
    Free,
    /// The queue can accept the call only if this other call is shed.
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

    /// Whether the leaf and the object are below their bounds. The bound of the whole queue is not checked.
    pub(crate) fn has_capacity(&self, call: &Call, limits: &QueueLimits) -> bool {
        self.leaf((call.class, call.controller))
            .is_none_or(|leaf| leaf.len() < limits.per_leaf && leaf.len_of(call) < limits.per_object)
    }

    /// Whether the queue can accept a call. A full queue sheds a less urgent call, or an equally urgent call of a namespace that has more
    /// calls in the leaf. Therefore no namespace can block others, however many calls it submits.
    pub(crate) fn capacity(&self, call: &Call, limits: &QueueLimits) -> Capacity {
        let leaf = self.leaf((call.class, call.controller));
        let shed_candidate = || leaf.and_then(|leaf| leaf.shed_candidate(&call.namespace));
        let or_none = |ticket: Option<Ticket>| ticket.map_or(Capacity::None, Capacity::Of);
        if leaf.is_some_and(|leaf| leaf.len_of(call) >= limits.per_object) {
            return Capacity::None;
        }
        if leaf.is_some_and(|leaf| leaf.len() >= limits.per_leaf) {
            return or_none(shed_candidate());
        }
        if self.len() >= limits.total {
            return or_none(self.least_urgent(call.class).or_else(shed_candidate));
        }
        Capacity::Free
    }

    /// The call to shed first, if it is less urgent than `class`.
    fn least_urgent(&self, class: Class) -> Option<Ticket> {
        let (least, Reverse(ticket)) = self.by_class.first()?;
        (*least < class).then_some(*ticket)
    }

    pub(crate) fn push_back(&mut self, waiting: Waiting) {
        self.insert(waiting, Leaf::push_back);
    }

    /// Puts the call at the head of its namespace and object, so that it is served next in its leaf.
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

    /// Changes the deadline of a queued call; the call keeps its place.
    pub(crate) fn extend(&mut self, ticket: Ticket, deadline: Option<Time>, expiry: Option<Time>) {
        if let Some(waiting) = self.waiting.get_mut(&ticket) {
            waiting.call.deadline = deadline;
            if let Some(before) = std::mem::replace(&mut waiting.expiry, expiry) {
                self.by_expiry.remove(&(before, ticket));
            }
            self.by_expiry.extend(expiry.map(|expiry| (expiry, ticket)));
        }
    }

    /// Removes a call that will not be served.
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

    /// Removes the call that is served now. Its namespace and, within the namespace, its object move to the end of the round robin.
    pub(crate) fn serve(&mut self, ticket: Ticket) -> Option<Waiting> {
        let waiting = self.remove(ticket)?;
        if let Some(leaf) = self.leaf_mut(waiting.leaf()) {
            leaf.rotate(&waiting.call, waiting.lane());
        }
        Some(waiting)
    }

    /// Returns one candidate per lane. Cost: O(leaves x paths).
    pub(crate) fn candidates(&self) -> impl Iterator<Item = Candidate> {
        self.leaves.iter().enumerate().flat_map(|(index, leaf)| {
            let (class, _) = leaf.key;
            leaf.heads().map(move |(turn, head)| {
                let Head { ticket, cost, lane } = *head;
                Candidate { leaf: LeafId(index), class, lane, ticket, cost, turn }
            })
        })
    }

    pub(crate) fn first_expiry(&self) -> Option<(Time, Ticket)> {
        self.by_expiry.first().copied()
    }

    /// Estimated number of tokens that other calls of the same leaf take from a bucket before this call; `pays` selects the paths that
    /// include the bucket. Namespaces and objects take turns. A call that is not queued yet is the last one of its object.
    pub(crate) fn ahead(&self, waiting: &Waiting, pays: impl Fn(PathId) -> bool) -> u64 {
        let Some(leaf) = self.leaf(waiting.leaf()) else { return 0 };
        let (call, calls) = (&waiting.call, leaf.len().max(1));
        let turns = leaf.before(call, waiting.ticket).unwrap_or_else(|| leaf.before_new(call));
        let share = u128::from(leaf.waiting(pays)) * turns as u128 / calls as u128;
        u64::try_from(share).unwrap_or(u64::MAX)
    }

    /// Number of namespaces that take turns in the call's leaf, including the call's own.
    pub(crate) fn namespaces(&self, call: &Call) -> usize {
        self.leaf((call.class, call.controller)).map_or(0, |leaf| leaf.others(call)).saturating_add(1)
    }

    /// The other leaves that have calls waiting for a bucket, and the tokens that these calls need.
    pub(crate) fn others(
        &self,
        call: &Call,
        pays: impl Fn(PathId) -> bool,
    ) -> impl Iterator<Item = (Class, u64)> {
        let own = (call.class, call.controller);
        let others = self.leaves.iter().filter(move |leaf| leaf.key != own);
        others.map(move |leaf| (leaf.key.0, leaf.waiting(&pays))).filter(|(_, tokens)| *tokens > 0)
    }

    /// Number of calls that wait for a bucket; `pays` selects the paths that include the bucket.
    pub(crate) fn queued(&self, pays: impl Fn(PathId) -> bool) -> u64 {
        self.leaves.iter().map(|leaf| leaf.queued(&pays)).sum()
    }

    /// Assigns new paths to all calls without changing their order.
    pub(crate) fn rearrange(&mut self, mut path: impl FnMut(&Call) -> PathId) {
        for leaf in &mut self.leaves {
            leaf.rearrange(|ticket| {
                let waiting = self.waiting.get_mut(&ticket)?;
                waiting.path = path(&waiting.call);
                Some(waiting.head())
            });
        }
    }

    /// Removes all calls, but keeps the leaves.
    pub(crate) fn clear(&mut self) {
        for ticket in self.tickets() {
            self.remove(ticket);
        }
    }

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

    /// All queued calls, in no order.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = &Waiting> {
        self.waiting.values()
    }

    fn leaf(&self, key: LeafKey) -> Option<&Leaf> {
        self.leaves.get(self.names.get(&key)?.0)
    }

    fn leaf_mut(&mut self, key: LeafKey) -> Option<&mut Leaf> {
        self.leaves.get_mut(self.names.get(&key)?.0)
    }

    pub(crate) fn get(&self, ticket: Ticket) -> Option<&Waiting> {
        self.waiting.get(&ticket)
    }
}
