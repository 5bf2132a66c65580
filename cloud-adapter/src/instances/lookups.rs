//! Look-ups by ID. Requests that arrive at nearly the same time share a batch. A request for IDs that are already being looked up waits for
//! that result. No ID is looked up with a vendor call of its own.
//!
//! A shared look-up in progress is a "flight". It continues as long as any caller waits for it.

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

/// The assumed number of pages of a listing, before the first listing. If a look-up needs more batches than that, the adapter lists
/// instead, because a listing is then cheaper.
const PAGES: usize = 8;

/// The requested IDs: the vendor's ID for each provider ID.
pub(crate) type Wanted = BTreeMap<String, String>;

#[derive(Debug)]
pub(crate) struct FlightResults {
    /// The time at which the first vendor call began.
    pub(crate) asked: Instant,
    /// The results by provider ID. `error` contains the reason for missing IDs.
    pub(crate) found: BTreeMap<String, LookupResult>,
    pub(crate) error: Option<VendorError>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum LookupResult {
    Found(Arc<Instance>),
    /// The vendor reported that this ID does not exist.
    Gone,
    /// A complete listing lacks this ID, and the vendor cannot look up by ID.
    NotListed,
    /// The vendor's answer does not mention this ID.
    Unsaid,
}

type Flight = Shared<BoxFuture<'static, Arc<FlightResults>>>;

/// A flight for which a caller waits, together with the registration of that caller.
struct Joined {
    flight: Flight,
    waiter: Waiter,
}

/// Maps a provider ID to the vendor's ID, if the instance belongs to this cloud.
type Locate = Box<dyn Fn(&str) -> Option<String> + Send + Sync>;

pub(crate) struct LookUps<S> {
    source: Arc<S>,
    snapshot: Arc<Snapshot<Instance>>,
    metrics: Metrics,
    locate: Locate,
    /// Maximum number of IDs per vendor call.
    batch: usize,
    window: Mutex<BatchWindow>,
    batches: Mutex<Vec<Batch>>,
    /// The counter of flights. Each flight uses it to select different witnesses.
    round: AtomicUsize,
}

/// IDs that are looked up together, and the callers that wait for them.
struct Batch {
    gathering: Arc<Gathering>,
    flight: WeakShared<BoxFuture<'static, Arc<FlightResults>>>,
}

struct Gathering {
    order: Mutex<Order>,
    /// The waiting callers, which determine priority and deadline before and after sending.
    waiters: Arc<Waiters>,
    /// Notified when the batch is full. Then it is useless to wait for further IDs.
    full: Notify,
}

struct Order {
    wanted: Wanted,
    /// The session of the most urgent caller that joined before the batch was sent. The vendor calls are charged to this session.
    session: Session,
    opened: Instant,
    joined: Instant,
    /// The time at which the batch was sent. Until then, further callers may join.
    asked: Option<Instant>,
}

impl<S> fmt::Debug for LookUps<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LookUps").field("batch", &self.batch).finish_non_exhaustive()
    }
}

impl<S: Collection<Instance> + InstanceLookup + Send + Sync + 'static> LookUps<S> {
    /// `batch` is the maximum number of IDs per vendor call. `locate` maps a provider ID to the vendor's ID, if the instance belongs to
    /// this cloud.
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
            round: AtomicUsize::new(0),
        }
    }

    pub(crate) fn configure(&self, window: BatchWindow) {
        *self.window.lock().unwrap_or_else(PoisonError::into_inner) = window;
    }

    /// Looks up IDs with vendor calls that began at `bound` or later. If `bound` is `None`, calls that are in progress also count.
    ///
    /// Cost: one vendor call per batch, shared with concurrent callers. If a listing is cheaper, the cost is one listing, and one batch for
    /// the IDs that the listing lacks.
    ///
    /// Returns the error of a vendor call if any requested ID remained without an answer.
    pub(crate) async fn get(
        self: &Arc<Self>,
        wanted: Wanted,
        bound: Option<Instant>,
        session: &Session,
    ) -> Result<Vec<Arc<FlightResults>>, VendorError> {
        let ids: Vec<String> = wanted.keys().cloned().collect();
        // For fairness, each request is queued separately, under the name of its first ID.
        let session = &session.about(ids.first().map_or("", String::as_str));
        let landed =
            futures::future::try_join_all(self.join(wanted, bound, session).into_iter().map(Joined::landed));
        let answers = match session.own_deadline() {
            None => landed.await,
            Some(deadline) => timeout_at(deadline, landed).await.unwrap_or_else(|_elapsed| {
                let text = "the instances cannot be looked up before the deadline";
                Err(session.late(Instance::FAMILY, text))
            }),
        }?;
        let answered = |id: &String| answers.iter().any(|one| one.found.contains_key(id));
        match answers.iter().find_map(|one| one.error.clone()) {
            Some(error) if !ids.iter().all(answered) => Err(error),
            Some(_) | None => Ok(answers),
        }
    }

    /// Joins open batches and flights, and opens a batch for the remaining IDs.
    fn join(self: &Arc<Self>, mut wanted: Wanted, bound: Option<Instant>, session: &Session) -> Vec<Joined> {
        let mut batches = self.batches.lock().unwrap_or_else(PoisonError::into_inner);
        batches.retain(|batch| batch.flight.upgrade().is_some());
        let mut flights = Vec::new();
        for batch in batches.iter() {
            let Some(flight) = batch.flight.upgrade() else { continue };
            if let Some(kind) = batch.gathering.join(&mut wanted, bound, session, self.full()) {
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

    /// Returns the number of IDs at which a batch is closed: as many as fit into the vendor calls of one listing. With more IDs, a listing
    /// is cheaper anyway.
    fn full(&self) -> usize {
        self.batch.saturating_mul(self.snapshot.pages().unwrap_or(1).max(1))
    }
}

impl Joined {
    /// Waits for the result. Returns an error if the result will be too late for this caller.
    async fn landed(mut self) -> Result<Arc<FlightResults>, VendorError> {
        tokio::select! {
            biased;
            answers = self.flight => Ok(answers),
            error = self.waiter.refused() => Err(error),
        }
    }
}

impl Order {
    /// Charges the calls to this session if its caller is more urgent than the caller of the current session.
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

    /// Moves all IDs from `wanted` to the batch if the batch is not sent yet. If the batch was sent at `bound` or later, removes the IDs
    /// that the batch answers. Returns how joining saves a vendor call; `None`: joining saves no call.
    fn join(
        &self,
        wanted: &mut Wanted,
        bound: Option<Instant>,
        session: &Session,
        full: usize,
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

    /// Closes the batch as soon as no ID has joined for `idle`, `max` has passed, or the batch is full.
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
