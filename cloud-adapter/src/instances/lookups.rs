//! Look-ups by ID, gathered: requests that come close together share a batch, and who asks for what is being asked already waits for
//! that answer. Never one vendor call an ID.
//!
//! A flight belongs to all who wait for it: it goes on as long as one of them does.

mod flight;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, PoisonError, atomic::AtomicUsize},
};

use cloud_api_proto::v1alpha1::Instance;
use futures::{
    FutureExt as _,
    future::{BoxFuture, Shared, WeakShared},
};
use tokio::{
    sync::Notify,
    time::{Instant, timeout_at},
};

use crate::{
    config::BatchWindow,
    driver::{Collection, InstanceLookup, Item as _, VendorError},
    metrics::{Coalesced, Metrics},
    snapshot::Snapshot,
    vendor::{Session, Waiter, Waiters},
};

/// What a listing is taken to cost before there was one: more batches than that are not made.
const PAGES: usize = 8;

/// What is asked for: vendor IDs by provider ID.
pub(crate) type Wanted = BTreeMap<String, String>;

/// What came of a flight.
#[derive(Debug)]
pub(crate) struct Answers {
    /// When the first vendor call began.
    pub(crate) asked: Instant,
    /// By provider ID. What is missing here was not answered: `error` says why.
    pub(crate) found: BTreeMap<String, Answer>,
    pub(crate) error: Option<VendorError>,
}

/// What the vendor said of one instance.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Answer {
    Found(Arc<Instance>),
    /// There is none of this very ID.
    Gone,
    /// A complete listing does not have it, and the vendor cannot be asked for one ID.
    NotListed,
    /// The vendor answered, and said nothing of it.
    Unsaid,
}

type Flight = Shared<BoxFuture<'static, Arc<Answers>>>;

/// A flight, and a place among those who wait for it.
struct Joined {
    flight: Flight,
    waiter: Waiter,
}

/// From a provider ID to the vendor's, if it is one of this cloud.
type Locate = Box<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// Looks instances up by ID.
pub(crate) struct LookUps<S> {
    source: Arc<S>,
    snapshot: Arc<Snapshot<Instance>>,
    metrics: Metrics,
    /// From a provider ID to the vendor's.
    locate: Locate,
    /// IDs in one vendor call.
    batch: usize,
    window: Mutex<BatchWindow>,
    batches: Mutex<Vec<Batch>>,
    /// Turns with each flight, so that witnesses take turns.
    turn: AtomicUsize,
}

/// IDs that are asked for together, and who asks.
struct Batch {
    gathering: Arc<Gathering>,
    flight: WeakShared<BoxFuture<'static, Arc<Answers>>>,
}

struct Gathering {
    order: Mutex<Order>,
    /// In whose name it is asked, before it was sent and after.
    waiters: Arc<Waiters>,
    /// Nothing is won by waiting for more.
    full: Notify,
}

struct Order {
    wanted: Wanted,
    /// Counts what it costs. That of the most urgent who joined before it was sent.
    session: Session,
    opened: Instant,
    joined: Instant,
    /// When it was sent; until then others may join.
    asked: Option<Instant>,
}

impl<S> fmt::Debug for LookUps<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LookUps").field("batch", &self.batch).finish_non_exhaustive()
    }
}

impl<S: Collection<Instance> + InstanceLookup + Send + Sync + 'static> LookUps<S> {
    /// `batch`: IDs in one vendor call. `locate`: from a provider ID to the vendor's, if it is one of this cloud.
    pub(crate) fn new(
        source: Arc<S>,
        snapshot: Arc<Snapshot<Instance>>,
        metrics: Metrics,
        batch: usize,
        locate: impl Fn(&str) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        Self {
            source,
            snapshot,
            metrics,
            locate: Box::new(locate),
            batch: batch.max(1),
            window: Mutex::default(),
            batches: Mutex::default(),
            turn: AtomicUsize::new(0),
        }
    }

    /// Goes by other settings from now on.
    pub(crate) fn configure(&self, window: BatchWindow) {
        *self.window.lock().unwrap_or_else(PoisonError::into_inner) = window;
    }

    /// Asks the vendor, in calls that began at `bound` or later; `None` also takes answers that are under way.
    ///
    /// Cost: one vendor call a batch, shared with all who ask at about the same time; or one listing and a batch of what it misses, where
    /// that is less.
    ///
    /// # Errors
    /// Those of the vendor calls, if something of what is wanted was not answered.
    pub(crate) async fn get(
        self: &Arc<Self>,
        wanted: Wanted,
        bound: Option<Instant>,
        session: &Session,
    ) -> Result<Vec<Arc<Answers>>, VendorError> {
        let ids: Vec<String> = wanted.keys().cloned().collect();
        // Requests take turns, and have places of their own in the queue: each is named by the first that it asks for.
        let session = &session.about(ids.first().map_or("", String::as_str));
        let landed =
            futures::future::try_join_all(self.join(wanted, bound, session).into_iter().map(Joined::landed));
        let answers = match session.own_deadline() {
            None => landed.await,
            Some(deadline) => timeout_at(deadline, landed).await.unwrap_or_else(|_elapsed| {
                let text = "the instances are not looked up before the deadline";
                Err(session.late(Instance::FAMILY, text))
            }),
        }?;
        let answered = |id: &String| answers.iter().any(|one| one.found.contains_key(id));
        match answers.iter().find_map(|one| one.error.clone()) {
            Some(error) if !ids.iter().all(answered) => Err(error),
            Some(_) | None => Ok(answers),
        }
    }

    /// Joins what is gathered or under way, and opens a batch for the rest.
    fn join(self: &Arc<Self>, mut wanted: Wanted, bound: Option<Instant>, session: &Session) -> Vec<Joined> {
        let mut batches = self.batches.lock().unwrap_or_else(PoisonError::into_inner);
        batches.retain(|batch| batch.flight.upgrade().is_some());
        let mut flights = Vec::new();
        for batch in batches.iter() {
            let Some(flight) = batch.flight.upgrade() else { continue };
            if let Some(kind) = batch.gathering.join(&mut wanted, bound, (session, self.full())) {
                session.meter().coalesced();
                self.metrics.coalesced(Instance::COLLECTION, kind);
                flights.push(Joined { flight, waiter: batch.gathering.waiters.join(session) });
            }
        }
        if !wanted.is_empty() {
            let gathering = Arc::new(Gathering::open(wanted, session, self.full()));
            let waiter = gathering.waiters.join(session);
            let flight = Arc::clone(self).fly(Arc::clone(&gathering)).boxed().shared();
            if let Some(weak) = flight.downgrade() {
                batches.push(Batch { gathering, flight: weak });
            }
            flights.push(Joined { flight, waiter });
        }
        flights
    }

    /// So many IDs that no other that joins would change what is done: one vendor call, or the listing that is cheaper than many.
    fn full(&self) -> usize {
        self.batch.saturating_mul(self.snapshot.pages().unwrap_or(1).max(1))
    }
}

impl Joined {
    /// What came of it, or that it comes too late for this one.
    async fn landed(mut self) -> Result<Arc<Answers>, VendorError> {
        tokio::select! {
            biased;
            answers = self.flight => Ok(answers),
            error = self.waiter.refused() => Err(error),
        }
    }
}

impl Order {
    /// The most urgent pays.
    fn paid_by(&mut self, session: &Session) {
        if session.purpose().priority > self.session.purpose().priority {
            self.session = session.clone();
        }
    }
}

impl Gathering {
    fn open(wanted: Wanted, session: &Session, full: usize) -> Self {
        let now = Instant::now();
        let order = Order { wanted, session: session.clone(), opened: now, joined: now, asked: None };
        let gathering = Self { order: Mutex::new(order), waiters: Arc::default(), full: Notify::new() };
        gathering.close_if(full);
        gathering
    }

    /// Takes off `wanted` what this batch is going to answer, or answers at `bound` or later. How that saves a call; `None`: it does not.
    fn join(
        &self,
        wanted: &mut Wanted,
        bound: Option<Instant>,
        (session, full): (&Session, usize),
    ) -> Option<Coalesced> {
        let mut order = self.order.lock().unwrap_or_else(PoisonError::into_inner);
        if wanted.is_empty() {
            return None;
        }
        let Some(asked) = order.asked else {
            order.wanted.append(wanted);
            order.joined = Instant::now();
            order.paid_by(session);
            drop(order);
            self.close_if(full);
            return Some(Coalesced::Batch);
        };
        let before = wanted.len();
        if bound.is_none_or(|bound| asked >= bound) {
            wanted.retain(|id, _| !order.wanted.contains_key(id));
        }
        (wanted.len() < before).then_some(Coalesced::SingleFlight)
    }

    fn close_if(&self, full: usize) {
        if self.order.lock().unwrap_or_else(PoisonError::into_inner).wanted.len() >= full {
            self.full.notify_one();
        }
    }

    /// Waits until nobody joins for a while, or for long enough, or until it is full. From then on nobody can join.
    async fn close(&self, window: BatchWindow) -> (Wanted, Session, Instant) {
        let mut full = false;
        loop {
            let due = {
                let mut order = self.order.lock().unwrap_or_else(PoisonError::into_inner);
                let (now, due) =
                    (Instant::now(), (order.joined + window.idle).min(order.opened + window.max));
                if full || due <= now {
                    order.asked = Some(now);
                    return (order.wanted.clone(), order.session.shared(&self.waiters), now);
                }
                due
            };
            full = timeout_at(due, self.full.notified()).await.is_ok();
        }
    }
}
