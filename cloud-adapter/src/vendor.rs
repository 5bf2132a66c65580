//! The one way to the vendor: every request passes [`Session::call`], which waits for its turn, counts, sends and classifies.
//!
//! Retries nothing, except that a call that the vendor throttles is sent once more when the vendor's pause is over. What
//! waits, and in which order, is decided by [`cloud_budget`]; nothing here sends without its leave.

mod audit;
mod dispatch;
mod flight;
mod hurry;
mod meter;
mod operation;
mod place;
mod report;
mod scrub;
#[cfg(test)]
pub(crate) mod tests;
mod trace;
mod translate;
mod waiters;
mod wire;
mod writes;

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use cloud_adapter_security::{Caller, Role};
use cloud_api_proto::v1alpha1::Priority;
use cloud_budget::{Call, Config, Deadlines};
use tokio::{
    sync::{Notify, watch},
    time::Instant,
};

pub(crate) use self::{
    audit::object,
    place::Place,
    report::{CREDENTIALS, HeldUp},
    waiters::{Waiter, Waiters},
    writes::Write,
};
use self::{
    dispatch::{Dispatcher, Permit, Waiting},
    flight::{Flight, Job},
    hurry::{Hurry, News},
    trace::Sent,
    wire::{Transport, Wire},
    writes::Writes,
};
pub use self::{
    meter::Meter,
    operation::{Family, Operation},
};
use crate::{
    driver::{Classify, Fault, VendorError},
    metrics::Metrics,
};

/// A shared call waits for its turn no longer, if nobody who waits for it has a deadline. Source: the longest deadline of a request,
/// budgets, section 3.
const WAITED_MAX: Duration = Duration::from_mins(1);
/// How often it is foreseen anew for whom a shared call comes too late: others may go before it, or the vendor may want a pause.
const FORESEEN: Duration = Duration::from_secs(1);

/// What a driver sends.
pub type VendorRequest = http::Request<Bytes>;
/// What the vendor answers, read completely.
pub type VendorResponse = http::Response<Bytes>;

/// The vendor's HTTP API behind the budget. One per process.
#[derive(Debug)]
pub struct Vendor {
    dispatcher: Dispatcher,
    /// The vendor has rejected the credentials of a call that was no self-check.
    rejected: Arc<Notify>,
    deadlines: Mutex<Deadlines>,
    writes: Writes,
}

impl Vendor {
    /// Opens no connection yet. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// If the TLS library cannot be set up.
    pub fn new(
        limits: &Config,
        classify: Arc<dyn Classify>,
        metrics: &Metrics,
    ) -> Result<Self, reqwest::Error> {
        Self::trusting(None, limits, classify, metrics)
    }

    /// The same that trusts these PEM certificates in place of the system's, if there are any.
    ///
    /// # Errors
    /// If the TLS library cannot be set up, or a certificate cannot be read.
    pub fn trusting(
        ca: Option<&[u8]>,
        limits: &Config,
        classify: Arc<dyn Classify>,
        metrics: &Metrics,
    ) -> Result<Self, reqwest::Error> {
        Ok(Self::over(Box::new(Wire::new(ca)?), limits, classify, metrics))
    }

    fn over(
        wire: Box<dyn Transport>,
        limits: &Config,
        classify: Arc<dyn Classify>,
        metrics: &Metrics,
    ) -> Self {
        let rejected = Arc::new(Notify::new());
        let writes = Writes::default();
        let flight = Flight {
            wire,
            classify,
            metrics: metrics.clone(),
            rejected: Arc::clone(&rejected),
            writes: writes.clone(),
        };
        let dispatcher = Dispatcher::new(limits.clone(), flight);
        metrics.read_budget(dispatcher.reporter());
        metrics.read_queues(dispatcher.queue_reporter());
        Self { dispatcher, rejected, deadlines: Mutex::new(limits.deadline), writes }
    }

    /// Begins the vendor calls of one request.
    #[must_use]
    pub fn session(self: &Arc<Self>, purpose: Purpose) -> Session {
        self.metered(purpose, Arc::default())
    }

    /// The same, counted on a meter that is there already.
    pub(crate) fn metered(self: &Arc<Self>, purpose: Purpose, meter: Arc<Meter>) -> Session {
        let vendor = Arc::clone(self);
        Session { vendor, purpose, meter, self_check: false, waiters: None, hurry: None, place: None }
    }

    /// For finding out whether credentials are good: its calls pass while all others are stopped because they are not. What they
    /// find is told to [`Self::self_check`], unless it is about credentials that are not in force.
    #[must_use]
    pub(crate) fn self_checking(self: &Arc<Self>) -> Session {
        let purpose = Purpose::own(Priority::Lifecycle, "self-check");
        Session { self_check: true, ..self.session(purpose) }
    }

    /// Takes other limits over. What waits keeps its place.
    pub(crate) fn configure(&self, limits: &Config) {
        *self.deadlines.lock().unwrap_or_else(PoisonError::into_inner) = limits.deadline;
        self.dispatcher.change(|scheduler, now| scheduler.configure(now, limits.clone()));
    }

    /// How long requests may take.
    pub(crate) fn deadlines(&self) -> Deadlines {
        *self.deadlines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// No request is sent at or after that instant; looked at for each one.
    pub(crate) fn allow_until(&self, until: Instant) {
        self.dispatcher.allow_until(until);
    }

    /// Sends nothing any more and refuses what waits, until it is allowed again: another replica leads, or may soon.
    pub(crate) fn halt(&self) {
        self.dispatcher.halt();
    }

    /// After [`Self::halt`]: until the vendor has answered all that was sent, also what nobody waits for any more.
    pub(crate) async fn landed(&self) {
        self.dispatcher.landed().await;
    }

    /// Begins with empty buckets: another replica may have spent their tokens just now.
    pub(crate) fn start_empty(&self) {
        self.dispatcher.change(|scheduler, now| scheduler.empty(now));
    }

    /// A self-check has ended. While the last one failed over the credentials, nothing but self-checks is sent.
    pub(crate) fn self_check(&self, passed: bool) {
        self.dispatcher.change(|scheduler, now| scheduler.self_check(now, passed));
    }

    /// Until the vendor rejects the credentials of a call.
    pub(crate) async fn rejected(&self) {
        self.rejected.notified().await;
    }
}

/// On whose behalf calls are made.
#[derive(Clone, Debug)]
pub struct Purpose {
    /// How urgent they are.
    pub priority: Priority,
    /// When their answers are of no use any more. `None`: the work belongs to the adapter.
    pub deadline: Option<Instant>,
    /// Appears in the log beside each call.
    pub request_id: String,
    /// Who asked: the queue that its calls stand in.
    pub caller: Caller,
    /// In whose name: the namespace of what it is about; namespaces of one queue take turns. Empty: the cluster's.
    pub namespace: Arc<str>,
    /// What it is about, such as `Service shop/web`: objects of one namespace take turns. Appears in the log of writes.
    pub object: Arc<str>,
}

impl Purpose {
    /// Work that the adapter does for itself.
    #[must_use]
    pub fn own(priority: Priority, what: &str) -> Self {
        let caller = Caller { role: Role::Adapter, subject: Arc::from("adapter") };
        let (request_id, object) = (what.to_owned(), Arc::from(what));
        Self { priority, deadline: None, request_id, caller, namespace: Arc::from(""), object }
    }
}

/// The vendor calls of one request: counted together, paid from the shared budget.
#[derive(Clone, Debug)]
pub struct Session {
    vendor: Arc<Vendor>,
    purpose: Purpose,
    meter: Arc<Meter>,
    self_check: bool,
    /// Those for whom its work is done, if it is shared: they decide in whose name, and for how long.
    waiters: Option<Arc<Waiters>>,
    /// Those who came to wait for its work: it stays in its name, and goes as fast as they ask.
    hurry: Option<Hurry>,
    /// Where those look who want to know what its work waits for.
    place: Option<Place>,
}

impl Session {
    /// Puts a request in the queue; the future waits for its turn, sends it and reads the whole answer. Dropped while it waits, it is
    /// never sent.
    ///
    /// Cost: one vendor call; two if the vendor throttles the first; none if it is refused.
    ///
    /// # Errors
    /// What the driver's table makes of the answer; before sending [`Fault::Budget`], [`Fault::QueueFull`],
    /// [`Fault::Throttled`] and, while the vendor is given a rest, [`Fault::Unavailable`]; [`Fault::Unavailable`] if no
    /// connection came about; for a write whose answer was lost [`Fault::OutcomeUnknown`].
    ///
    /// [`Fault::Budget`]: crate::driver::Fault::Budget
    /// [`Fault::QueueFull`]: crate::driver::Fault::QueueFull
    /// [`Fault::Throttled`]: crate::driver::Fault::Throttled
    /// [`Fault::Unavailable`]: crate::driver::Fault::Unavailable
    /// [`Fault::OutcomeUnknown`]: crate::driver::Fault::OutcomeUnknown
    pub fn call(
        &self,
        operation: Operation,
        request: VendorRequest,
    ) -> impl Future<Output = Result<VendorResponse, VendorError>> + Send {
        let mut news = self.news();
        let until = Instant::now() + WAITED_MAX;
        // Handed in before there is a future: thousands wait, and none with room for what it has handed in.
        let submitted = self.submit((operation, until), request);
        async move {
            let mut waiting = submitted?;
            let _stands = self.place.as_ref().map(|place| place.call(waiting.ticket()));
            loop {
                if let Some(waiters) = &self.waiters {
                    waiters.send_away(|deadline| waiting.late(deadline));
                }
                tokio::select! {
                    biased;
                    answer = waiting.answer() => return answer,
                    () = news.next() => {
                        let (call, purpose) = self.on_behalf(operation, until);
                        waiting.raise(call, purpose);
                    }
                    () = tokio::time::sleep(FORESEEN), if self.waiters.is_some() => (),
                }
            }
        }
    }

    fn submit(
        &self,
        (operation, until): (Operation, Instant),
        request: VendorRequest,
    ) -> Result<Waiting<'_>, VendorError> {
        let (call, purpose) = self.on_behalf(operation, until);
        let meter = Arc::clone(&self.meter);
        let (span, sent) = (trace::begin(operation, &purpose.object), Sent::default());
        let refused = span.clone();
        let job = |told| Job { operation, request, purpose, meter, throttled: None, span, sent, told };
        let submitted = self.vendor.dispatcher.submit(call, job);
        submitted.inspect_err(|error| trace::end(&refused, &Sent::default(), Some(error)))
    }

    /// What happens to its work from now on.
    fn news(&self) -> News {
        News::new(self.waiters.as_ref().map(|waiters| waiters.subscribe()), self.hurry.as_ref())
    }

    /// A call as the scheduler sees it now, and in whose name. What is shared is of no use after `until` unless a caller says so, and is
    /// of no namespace: others must not wait behind all calls of the one that came first.
    fn on_behalf(&self, operation: Operation, until: Instant) -> (Call, Purpose) {
        let mut purpose = self.payer();
        if self.waiters.is_some() {
            purpose.deadline = purpose.deadline.or(Some(until));
            purpose.namespace = Arc::from("");
        }
        let deadline = purpose.deadline.map(|deadline| self.vendor.dispatcher.time(deadline));
        (translate::call(operation, &purpose, (self.self_check, deadline)), purpose)
    }

    /// In whose name it is done now.
    fn payer(&self) -> Purpose {
        let payer = self.waiters.as_ref().and_then(|waiters| waiters.payer());
        let payer = payer.unwrap_or_else(|| self.purpose.clone());
        match &self.hurry {
            Some(hurry) => hurry.raise(payer),
            None => payer,
        }
    }

    /// The same budget and meter, for work that is shared: one caller's deadline is not everybody's.
    #[must_use]
    pub(crate) fn patient(&self) -> Self {
        Self { purpose: Purpose { deadline: None, ..self.purpose.clone() }, ..self.clone() }
    }

    /// The same budget and meter, for work that is shared by all these.
    #[must_use]
    pub(crate) fn shared(&self, waiters: &Arc<Waiters>) -> Self {
        let place = Some(waiters.place().clone());
        let mut session = Self { waiters: Some(Arc::clone(waiters)), hurry: None, place, ..self.clone() };
        session.purpose = session.payer();
        session
    }

    /// The same, for work that others come to wait for: as urgent as is `asked` now, for work of this class.
    #[must_use]
    pub(crate) fn hurried(self, asked: watch::Receiver<Priority>, class: Option<Priority>) -> Self {
        Self { hurry: Some(Hurry::new(asked, class)), ..self }
    }

    /// The same, for work of which others want to know what it waits for: they look there.
    pub(crate) fn standing_at(self, place: &Place) -> Self {
        Self { place: Some(place.clone()), ..self }
    }

    /// When its answer is of no use any more to who waits for it alone; those who share its work have deadlines of their own.
    pub(crate) fn own_deadline(&self) -> Option<Instant> {
        self.purpose.deadline.filter(|_| self.waiters.is_none())
    }

    /// The same, for calls about one object.
    #[must_use]
    pub fn about(&self, object: impl Into<Arc<str>>) -> Self {
        Self { purpose: Purpose { object: object.into(), ..self.purpose.clone() }, ..self.clone() }
    }

    /// Why work of a family that is shared is not done before the caller's deadline: the vendor's pause, if there is one, else our budget.
    pub(crate) fn late(&self, family: Family, message: impl Into<String>) -> VendorError {
        match self.vendor.paused_until(family) {
            None => VendorError::new(Fault::Budget, message),
            Some(until) => VendorError {
                retry_after: Some(until.saturating_duration_since(Instant::now())),
                ..VendorError::new(Fault::Throttled, message)
            },
        }
    }

    /// On whose behalf calls are made.
    #[must_use]
    pub fn purpose(&self) -> &Purpose {
        &self.purpose
    }

    /// What the calls so far cost.
    #[must_use]
    pub fn meter(&self) -> &Meter {
        &self.meter
    }
}
