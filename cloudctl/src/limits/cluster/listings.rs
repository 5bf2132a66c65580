//! Listings that several readers share. Each collection has at most one listing at a time, with the priority of the most urgent reader. A
//! reader that needs a fresher listing than the one in progress waits for the next listing.

use std::time::Duration;

use cloud_adapter::vendor::Operation;
use cloud_budget::{Class, Ticket, Time};

use super::{Cluster, ClusterEvent, adapter, page_size, settings};
use crate::limits::{cloud::Collection, tally::Caller, world::Request};

#[derive(Debug, Default)]
pub(super) struct Listing {
    /// Time at which the last complete listing began.
    pub(super) observed: Option<Time>,
    /// Number of calls that the last listing needed.
    pub(super) pages: usize,
    in_progress: Option<InProgress>,
    waiting: Vec<Waiter>,
}

#[derive(Debug)]
struct InProgress {
    began: Time,
    /// The remaining pages, in reverse order.
    left: Vec<Operation>,
    caller: Caller,
    /// The page that is queued or in flight.
    ticket: Option<Ticket>,
}

#[derive(Debug)]
struct Waiter {
    /// A listing that began at this time or later is fresh enough.
    bound: Time,
    caller: Caller,
    reader: Reader,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Reader {
    /// The adapter itself, which keeps the snapshot fresh.
    Refresher,
    /// The task of a load balancer.
    Balancer(usize),
    /// The look-up of new nodes.
    Nodes,
    /// The task that creates routes.
    Routes,
}

impl Cluster {
    pub(super) fn refresh(&mut self, what: Collection) {
        let caller = Caller { periodic: self.knows(what), ..adapter("refresh", Class::Background) };
        self.read(what, self.world.now(), caller, Reader::Refresher);
    }

    /// Lists instances live for a new node, however recent the last listing is.
    pub(super) fn list_for_node(&mut self) {
        let caller = Caller { controller: "node-controller", ..adapter("nodes", Class::Interactive) };
        self.wait(Collection::Instances, self.world.now(), caller, Reader::Nodes);
    }

    /// Reads from a listing that began at `bound` or later.
    pub(super) fn read(&mut self, what: Collection, bound: Time, caller: Caller, reader: Reader) {
        let listing = self.listings.entry(what).or_default();
        if listing.observed.is_some_and(|observed| observed >= bound) {
            return self.served(what, reader);
        }
        self.wait(what, bound, caller, reader);
    }

    /// Waits for a listing, and begins one if no listing is in progress.
    fn wait(&mut self, what: Collection, bound: Time, caller: Caller, reader: Reader) {
        let listing = self.listings.entry(what).or_default();
        let urgent = caller.clone();
        listing.waiting.push(Waiter { bound, caller, reader });
        match &mut listing.in_progress {
            None => self.list(what),
            Some(in_progress) if in_progress.caller.class < urgent.class => {
                in_progress.caller = urgent.clone();
                if let Some(ticket) = in_progress.ticket {
                    self.world.raise(ticket, &urgent);
                }
            }
            Some(_) => (),
        }
    }

    pub(super) fn page(&mut self, what: Collection) {
        if self.next_page(what) {
            return;
        }
        let listing = self.listings.entry(what).or_default();
        let Some(InProgress { began, .. }) = listing.in_progress.take() else { return };
        let first = listing.observed.replace(began).is_none();
        let (done, waiting) = listing.waiting.drain(..).partition(|waiter| waiter.bound <= began);
        listing.waiting = waiting;
        if what == Collection::LoadBalancers {
            self.stock.unread = 0;
        }
        self.listed(what, first);
        let done: Vec<Waiter> = done;
        for waiter in done {
            self.served(what, waiter.reader);
        }
        let waits =
            self.listings.get(&what).is_some_and(|one| one.in_progress.is_none() && !one.waiting.is_empty());
        if waits {
            self.list(what);
        }
    }

    /// Begins a listing for all readers that wait.
    fn list(&mut self, what: Collection) {
        let mut left = (self.model.listing)(what, self.stock, page_size(&self.cache, what));
        left.reverse();
        let began = self.world.now();
        let listing = self.listings.entry(what).or_default();
        listing.pages = left.len();
        let most = listing.waiting.iter().rev().max_by_key(|waiter| waiter.caller.class);
        let Some(caller) = most.map(|waiter| waiter.caller.clone()) else { return };
        listing.in_progress = Some(InProgress { began, left, caller, ticket: None });
        self.next_page(what);
    }

    /// Requests the next page of the listing in progress. Returns false if no page is left.
    fn next_page(&mut self, what: Collection) -> bool {
        let listing = self.listings.entry(what).or_default();
        let Some(in_progress) = &mut listing.in_progress else { return false };
        let Some(operation) = in_progress.left.pop() else { return false };
        let caller = in_progress.caller.clone();
        in_progress.ticket =
            self.world.submit(Request { operation, caller, answered: ClusterEvent::Page(what) });
        true
    }

    fn served(&mut self, what: Collection, reader: Reader) {
        match reader {
            Reader::Refresher => self.schedule(what),
            Reader::Balancer(at) => self.act(at),
            Reader::Nodes => (),
            Reader::Routes => self.end_route_batch(),
        }
    }

    pub(super) fn schedule(&mut self, what: Collection) {
        let period = self.period(what);
        let observed = self.listings.get(&what).and_then(|listing| listing.observed).unwrap_or_default();
        let at = tick_after(observed, period);
        self.world.schedule(at.max(self.world.now()), ClusterEvent::Refresh(what));
    }

    /// The refresh interval of a collection.
    pub(crate) fn period(&self, what: Collection) -> Duration {
        let buckets = self.world.report().buckets;
        let family = buckets.into_iter().find(|bucket| bucket.name == what.family());
        let rate = family.map_or(cloud_budget::BucketConfig::unconfigured().limit.rate, |one| one.rate);
        let pages = self.listings.get(&what).map_or(1, |listing| listing.pages);
        settings(&self.cache, what).period(rate, pages)
    }
}

/// Returns the next multiple of a duration.
pub(super) fn tick_after(at: Time, every: Duration) -> Time {
    let every = u64::try_from(every.as_nanos()).unwrap_or(u64::MAX).max(1);
    Time::from_nanos((at.as_nanos() / every).saturating_add(1).saturating_mul(every))
}
