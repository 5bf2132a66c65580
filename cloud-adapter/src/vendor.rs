//! The only access to the vendor: every request goes through [`Session::call`], which queues, counts, sends and classifies it.
//!
//! Calls are not retried. The only exception is a throttled call, which is sent once more after the vendor's pause. [`cloud_budget`]
//! decides which calls wait and in which sequence, and no call is sent without its permission.

mod audit;
mod classify;
mod dispatch;
mod error;
mod headers;
mod job;
mod meter;
mod position;
mod priority;
mod report;
mod scrub;
#[cfg(test)]
pub(crate) mod tests;
mod trace;
mod translate;
pub(crate) mod urgency;
mod waiters;
mod writes;

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use cloud_api_proto::v1alpha1::Priority;
use cloud_budget::{Call, Config, Deadlines};
use tokio::{
    sync::{Notify, watch},
    time::Instant,
};

pub(crate) use self::error::shown;
pub(crate) use self::{
    audit::object,
    position::QueuePosition,
    report::{CREDENTIALS, HeldUp},
    waiters::{Waiter, Waiters},
    writes::Write,
};
pub use self::{
    classify::Classify,
    error::{Fault, VendorError},
    meter::Meter,
};
use self::{
    dispatch::{Dispatcher, Flight, Transport, Waiting, Wire},
    job::Job,
    priority::{PriorityChange, RaisedPriority},
    trace::Sent,
    writes::Writes,
};
pub use crate::operation::{Family, Operation};
use crate::{
    auth::{Caller, Role},
    metrics::Metrics,
};

/// Maximum waiting time of a shared call if no waiter has a deadline. Equals the default of the longest deadline of a request.
const WAITED_MAX: Duration = Duration::from_mins(1);
/// Interval at which a shared call is checked for waiters whose deadlines pass before its expected time. The expected time changes when
/// other calls overtake the call, or when the vendor requests a pause.
const WAITERS_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// A request that a driver makes to the vendor.
pub type VendorRequest = http::Request<Bytes>;
/// An answer of the vendor that was read completely.
pub type VendorResponse = http::Response<Bytes>;

/// The vendor's HTTP API behind the budget. One per process.
#[derive(Debug)]
pub struct Vendor {
    dispatcher: Dispatcher,
    /// Notified when the vendor rejects the credentials of a call that is not a self-check.
    rejected: Arc<Notify>,
    deadlines: Mutex<Deadlines>,
    writes: Writes,
}

impl Vendor {
    /// Creates the client. Opens no connection yet. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// Returns an error if the TLS library cannot be set up.
    pub fn new(
        limits: &Config,
        classify: Arc<dyn Classify>,
        metrics: &Metrics,
    ) -> Result<Self, reqwest::Error> {
        Self::trusting(None, limits, classify, metrics)
    }

    /// Creates the client. If `ca` is set, its PEM certificates are trusted in place of the system's CAs.
    ///
    /// # Errors
    /// Returns an error if the TLS library cannot be set up, or a certificate cannot be read.
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

    /// Creates a session for vendor calls with this purpose, such as those of one request.
    #[must_use]
    pub fn session(self: &Arc<Self>, purpose: Purpose) -> Session {
        self.metered(purpose, Arc::default())
    }

    /// Creates a session that adds its vendor calls to the count of an existing meter.
    pub(crate) fn metered(self: &Arc<Self>, purpose: Purpose, meter: Arc<Meter>) -> Session {
        let vendor = Arc::clone(self);
        Session { vendor, purpose, meter, self_check: false, waiters: None, raised: None, position: None }
    }

    /// Creates a session for self-checks. Their calls are sent even while rejected credentials stop all other calls. The caller passes the
    /// result to [`Self::self_check`], unless the adapter does not use the credentials yet.
    #[must_use]
    pub(crate) fn self_checking(self: &Arc<Self>) -> Session {
        let purpose = Purpose::own(Priority::Lifecycle, "self-check");
        Session { self_check: true, ..self.session(purpose) }
    }

    /// Queued calls keep their position.
    pub(crate) fn configure(&self, limits: &Config) {
        *self.deadlines.lock().unwrap_or_else(PoisonError::into_inner) = limits.deadline;
        self.dispatcher.change(|scheduler, now| scheduler.configure(now, limits.clone()));
    }

    pub(crate) fn deadlines(&self) -> Deadlines {
        *self.deadlines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forbids sending requests at or after this instant. The limit is checked for each request.
    pub(crate) fn allow_until(&self, until: Instant) {
        self.dispatcher.allow_until(until);
    }

    /// Stops sending and refuses queued calls, because another replica leads, or may lead soon. [`Self::allow_until`] allows sending again.
    pub(crate) fn halt(&self) {
        self.dispatcher.halt();
    }

    /// Waits after [`Self::halt`] until all sent calls have ended, including calls without waiters.
    pub(crate) async fn landed(&self) {
        self.dispatcher.landed().await;
    }

    /// Empties all buckets, because another replica may have just used their tokens.
    pub(crate) fn start_empty(&self) {
        self.dispatcher.change(|scheduler, now| scheduler.empty(now));
    }

    /// Records the result of a self-check. If it failed because of the credentials, only self-checks are sent until a self-check succeeds.
    pub(crate) fn self_check(&self, passed: bool) {
        self.dispatcher.change(|scheduler, now| scheduler.self_check(now, passed));
    }

    pub(crate) async fn rejected(&self) {
        self.rejected.notified().await;
    }
}

/// The caller, priority and object of vendor calls.
#[derive(Clone, Debug)]
pub struct Purpose {
    /// The priority of the calls.
    pub priority: Priority,
    /// Time after which the caller no longer needs the answers. `None`: the calls are the adapter's own work.
    pub deadline: Option<Instant>,
    /// Request ID, which appears in the log of each call.
    pub request_id: String,
    /// The caller, in whose queue the calls wait.
    pub caller: Caller,
    /// The namespace of the object. Namespaces in one queue take turns. Empty: cluster-scoped.
    pub namespace: Arc<str>,
    /// The object, such as `Service shop/web`. Objects in one namespace take turns. Appears in the log of writes.
    pub object: Arc<str>,
}

impl Purpose {
    /// Returns the purpose of calls that the adapter makes on its own behalf. `what` describes the work.
    #[must_use]
    pub fn own(priority: Priority, what: &str) -> Self {
        let caller = Caller { role: Role::Adapter, subject: Arc::from("adapter") };
        let (request_id, object) = (what.to_owned(), Arc::from(what));
        Self { priority, deadline: None, request_id, caller, namespace: Arc::from(""), object }
    }
}

/// The vendor calls of one request, which are counted together and charged to the shared budget.
#[derive(Clone, Debug)]
pub struct Session {
    vendor: Arc<Vendor>,
    purpose: Purpose,
    meter: Arc<Meter>,
    self_check: bool,
    /// The callers that wait for shared work. They determine the purpose and the deadline of its calls.
    waiters: Option<Arc<Waiters>>,
    /// The priority that further waiters request. It only raises the priority of the calls. The other fields of their purpose stay
    /// unchanged.
    raised: Option<RaisedPriority>,
    /// The queue position of the current call, for reports.
    position: Option<QueuePosition>,
}

impl Session {
    /// Queues a request. The future waits until the request is sent, and reads the whole answer. If the future is dropped before sending,
    /// the request is never sent.
    ///
    /// Cost: one vendor call; two if the vendor throttles the first one; none if the scheduler refuses the call.
    ///
    /// # Errors
    /// Returns the driver's classification of the answer. Errors before sending: [`Fault::Budget`], [`Fault::QueueFull`],
    /// [`Fault::Throttled`] and, while the circuit breaker is open, [`Fault::Unavailable`]. A failed connection is also
    /// [`Fault::Unavailable`]. A write whose answer was lost is [`Fault::OutcomeUnknown`].
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
        let mut changes = self.priority_changes();
        let until = Instant::now() + WAITED_MAX;
        // The call is submitted outside of the future, because thousands of futures may wait, and each would reserve memory for its
        // request.
        let submitted = self.submit(operation, until, request);
        async move {
            let mut waiting = submitted?;
            let _position = self.position.as_ref().map(|position| position.call(waiting.ticket()));
            loop {
                if let Some(waiters) = &self.waiters {
                    waiters.refuse_late(|deadline| waiting.late(deadline));
                }
                tokio::select! {
                    biased;
                    answer = waiting.answer() => return answer,
                    () = changes.next() => {
                        let (call, purpose) = self.on_behalf(operation, until);
                        waiting.raise(call, purpose);
                    }
                    () = tokio::time::sleep(WAITERS_CHECK_INTERVAL), if self.waiters.is_some() => (),
                }
            }
        }
    }

    fn submit(
        &self,
        operation: Operation,
        until: Instant,
        request: VendorRequest,
    ) -> Result<Waiting<'_>, VendorError> {
        let (call, purpose) = self.on_behalf(operation, until);
        let meter = Arc::clone(&self.meter);
        let (span, sent) = (trace::begin(operation, &purpose.object), Sent::default());
        let refused = span.clone();
        let job = |reply| Job { operation, request, purpose, meter, throttled: None, span, sent, reply };
        let submitted = self.vendor.dispatcher.submit(call, job);
        submitted.inspect_err(|error| trace::end(&refused, &Sent::default(), Some(error)))
    }

    fn priority_changes(&self) -> PriorityChange {
        PriorityChange::new(self.waiters.as_ref().map(|waiters| waiters.subscribe()), self.raised.as_ref())
    }

    /// Returns the call for the scheduler, and its current purpose. Shared work gets the deadline `until` if no waiter has a deadline.
    /// Shared work has no namespace, because in the first waiter's namespace the other waiters would wait behind all calls of that
    /// namespace.
    fn on_behalf(&self, operation: Operation, until: Instant) -> (Call, Purpose) {
        let mut purpose = self.payer();
        if self.waiters.is_some() {
            purpose.deadline = purpose.deadline.or(Some(until));
            purpose.namespace = Arc::from("");
        }
        let deadline = purpose.deadline.map(|deadline| self.vendor.dispatcher.time(deadline));
        (translate::call(operation, &purpose, self.self_check, deadline), purpose)
    }

    /// Returns the current purpose of the calls. The purpose of shared work comes from its waiters.
    fn payer(&self) -> Purpose {
        let payer = self.waiters.as_ref().and_then(|waiters| waiters.payer());
        let payer = payer.unwrap_or_else(|| self.purpose.clone());
        match &self.raised {
            Some(raised) => raised.raise(payer),
            None => payer,
        }
    }

    /// A session with the same budget and meter but without a deadline, for shared work.
    #[must_use]
    pub(crate) fn patient(&self) -> Self {
        Self { purpose: Purpose { deadline: None, ..self.purpose.clone() }, ..self.clone() }
    }

    /// A session with the same budget and meter, for work that these waiters share.
    #[must_use]
    pub(crate) fn shared(&self, waiters: &Arc<Waiters>) -> Self {
        let position = Some(waiters.position().clone());
        let mut session = Self { waiters: Some(Arc::clone(waiters)), raised: None, position, ..self.clone() };
        session.purpose = session.payer();
        session
    }

    /// Returns a session whose calls follow the priority that other waiters request. `class` is the class of the work.
    #[must_use]
    pub(crate) fn with_priority(self, priority: watch::Receiver<Priority>, class: Option<Priority>) -> Self {
        Self { raised: Some(RaisedPriority::new(priority, class)), ..self }
    }

    pub(crate) fn with_position(self, position: &QueuePosition) -> Self {
        Self { position: Some(position.clone()), ..self }
    }

    /// The caller's deadline, if the work is not shared; the waiters of shared work have separate deadlines.
    pub(crate) fn own_deadline(&self) -> Option<Instant> {
        self.purpose.deadline.filter(|_| self.waiters.is_none())
    }

    /// A session for calls about one object.
    #[must_use]
    pub fn about(&self, object: impl Into<Arc<str>>) -> Self {
        Self { purpose: Purpose { object: object.into(), ..self.purpose.clone() }, ..self.clone() }
    }

    /// Returns the error for shared work that will miss the caller's deadline. If the vendor requested a pause, the error names the pause
    /// as the cause, else the adapter's budget.
    pub(crate) fn late(&self, family: Family, message: impl Into<String>) -> VendorError {
        match self.vendor.paused_until(family) {
            None => VendorError::new(Fault::Budget, message),
            Some(until) => VendorError {
                retry_after: Some(until.saturating_duration_since(Instant::now())),
                ..VendorError::new(Fault::Throttled, message)
            },
        }
    }

    /// The caller, priority and object of the calls.
    #[must_use]
    pub fn purpose(&self) -> &Purpose {
        &self.purpose
    }

    /// The cost of the calls that were made so far.
    #[must_use]
    pub fn meter(&self) -> &Meter {
        &self.meter
    }
}
