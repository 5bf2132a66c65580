//! Operates the scheduler: submits calls, and sends each call when the scheduler decides so.
//!
//! The dispatcher reads the answer of each sent call, even without waiters, because the answer has information about the vendor's limits. A
//! queued call is removed when its last waiter has gone.

mod flight;
mod wire;

use std::{
    collections::{BTreeMap, HashMap},
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use cloud_budget::{
    AfterCall, BudgetWait, Call, Config, Decision, Outcome, QueueReport, Refusal, Report, Scheduler, Ticket,
    Time,
};
use futures::FutureExt as _;
use tokio::{
    sync::{Notify, oneshot},
    task::JoinSet,
    time::Instant,
};
use tokio_util::task::TaskTracker;

use self::flight::SendResult;
pub(super) use self::{
    flight::Flight,
    wire::{Transport, Wire},
};
use super::error::VendorError;
use super::{Purpose, VendorResponse, job::Job, trace, translate};

/// The permission to send one request. Only the dispatcher creates it, once per decision of the scheduler, so that no other module can send a
/// request.
#[derive(Debug)]
pub(super) struct Permit(());

pub(super) type CallResult = Result<VendorResponse, VendorError>;

#[derive(Debug)]
pub(super) struct Dispatcher {
    shared: Arc<Shared>,
    /// The timer task, which is aborted when the dispatcher is dropped.
    _clock: JoinSet<()>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    flight: Flight,
    /// The instant at which the scheduler's time is zero.
    began: Instant,
    /// Notified when the time of the next decision has changed.
    rescheduled: Notify,
    flights: TaskTracker,
}

#[derive(Debug)]
struct State {
    scheduler: Scheduler,
    /// The queued calls, keyed by ticket. Jobs are boxed, because a growing table reserves space for twice as many entries.
    waiting: HashMap<Ticket, (Call, Box<Job>)>,
    next: Option<Time>,
    /// Whether sending and queueing are stopped, because another replica leads, or may lead soon.
    halted: bool,
}

impl Dispatcher {
    pub(super) fn new(config: Config, flight: Flight) -> Self {
        let scheduler = Scheduler::new(config, Time::ZERO);
        let state = State { scheduler, waiting: HashMap::new(), next: None, halted: false };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            flight,
            began: Instant::now(),
            rescheduled: Notify::new(),
            flights: TaskTracker::new(),
        });
        let mut clock = JoinSet::new();
        clock.spawn(Arc::clone(&shared).keep_time());
        Self { shared, _clock: clock }
    }

    /// Queues a call. The call is sent when the scheduler decides so, unless the returned value is dropped earlier.
    ///
    /// Returns the scheduler's refusal.
    pub(super) fn submit(
        &self,
        call: Call,
        make: impl FnOnce(oneshot::Sender<CallResult>) -> Job,
    ) -> Result<Waiting<'_>, VendorError> {
        let (reply, answer) = oneshot::channel();
        let shared = &self.shared;
        let ticket = shared.apply(move |state, now| {
            if state.halted {
                return Err(translate::halted());
            }
            let submitted = state.scheduler.submit(now, call.clone());
            let ticket = submitted.map_err(|refusal| shared.refused(&call, refusal, None))?;
            state.waiting.insert(ticket, (call, Box::new(make(reply))));
            Ok(ticket)
        })?;
        shared.note_wait(ticket);
        Ok(Waiting { shared, ticket, answer, answered: false })
    }

    /// Applies a change to the scheduler, and lets it decide again.
    pub(super) fn change(&self, change: impl FnOnce(&mut Scheduler, Time)) {
        self.shared.apply(|state, now| change(&mut state.scheduler, now));
    }

    pub(super) fn allow_until(&self, until: Instant) {
        let until = self.shared.time(until);
        self.shared.apply(|state, _now| {
            state.halted = false;
            state.scheduler.allow_until(Some(until));
        });
    }

    /// Stops sending, and refuses queued calls. The answers of sent calls are still read.
    pub(super) fn halt(&self) {
        self.shared.apply(|state, now| {
            state.halted = true;
            state.scheduler.allow_until(Some(now));
            let waiting: BTreeMap<_, _> = std::mem::take(&mut state.waiting).into_iter().collect();
            for (ticket, (_call, job)) in waiting {
                state.scheduler.cancel(ticket);
                job.tell(Err(translate::halted()));
            }
        });
    }

    /// Waits until all sent calls have ended. Useful only after halting, because otherwise new calls may be sent.
    pub(super) async fn landed(&self) {
        self.shared.flights.close();
        self.shared.flights.wait().await;
    }

    pub(super) fn report(&self) -> (Time, Report) {
        self.shared.report()
    }

    /// The budget that a call waits for, if any.
    pub(super) fn wait(&self, ticket: Ticket) -> Option<BudgetWait> {
        self.shared.with(|state, now| state.scheduler.wait(now, ticket))
    }

    pub(super) fn queues(&self) -> Vec<QueueReport> {
        self.shared.queues()
    }

    /// Returns a function that reports the scheduler's state as long as the dispatcher exists.
    pub(super) fn reporter(&self) -> impl Fn() -> Option<(Time, Report)> + Send + Sync + 'static {
        let shared = Arc::downgrade(&self.shared);
        move || Some(shared.upgrade()?.report())
    }

    pub(super) fn queue_reporter(&self) -> impl Fn() -> Vec<QueueReport> + Send + Sync + 'static {
        let shared = Arc::downgrade(&self.shared);
        move || shared.upgrade().map(|shared| shared.queues()).unwrap_or_default()
    }

    pub(super) fn time(&self, at: Instant) -> Time {
        self.shared.time(at)
    }

    pub(super) fn instant(&self, time: Time) -> Instant {
        self.shared.instant(time)
    }
}

impl Shared {
    /// Applies a change to the scheduler, and executes the decisions that follow.
    fn apply<R>(self: &Arc<Self>, tell: impl FnOnce(&mut State, Time) -> R) -> R {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.time(Instant::now());
        let result = tell(&mut state, now);
        let next = loop {
            match state.scheduler.next(now) {
                Decision::Send { ticket, waited } => self.send(&mut state, ticket, waited),
                Decision::Refuse(ticket, refusal) => {
                    if let Some((call, job)) = state.waiting.remove(&ticket) {
                        let error = self.refused(&call, refusal, job.throttled.clone());
                        job.tell(Err(error));
                    }
                }
                Decision::Wait(next) => break next,
            }
        };
        if next != state.next {
            state.next = next;
            self.rescheduled.notify_one();
        }
        result
    }

    fn send(self: &Arc<Self>, state: &mut State, ticket: Ticket, waited: Duration) {
        if let Some((call, job)) = state.waiting.remove(&ticket) {
            let shared = Arc::clone(self);
            self.flights.spawn(async move {
                // If the driver panics, the call must still free its place among the calls in flight.
                let flight = AssertUnwindSafe(shared.flight.send(Permit(()), &job, waited)).catch_unwind();
                let landed = flight.await.unwrap_or_else(|_panic| Flight::broken(job.operation));
                shared.complete(ticket, call, job, landed);
            });
        }
    }

    /// Passes the result of a call to the scheduler. The waiter also gets the result, unless the call is sent once more.
    fn complete(self: &Arc<Self>, ticket: Ticket, call: Call, mut job: Box<Job>, landed: SendResult) {
        let SendResult { result, answer, sent } = landed;
        job.sent = sent;
        if answer.outcome == Outcome::Unauthorized && !call.self_check {
            self.flight.rejected.notify_one();
        }
        self.apply(|state, now| match (state.scheduler.answered(now, ticket, answer), result) {
            (AfterCall::Again, result) if state.halted => {
                state.scheduler.cancel(ticket);
                job.tell(result);
            }
            (AfterCall::Again, result) => {
                job.throttled = result.err();
                state.waiting.insert(ticket, (call, job));
            }
            (AfterCall::Done, result) => job.tell(result),
        });
    }

    fn refused(&self, call: &Call, refusal: Refusal, throttled: Option<VendorError>) -> VendorError {
        self.flight.metrics.shed(refusal.reason, call.class, call.controller);
        translate::refused(refusal, throttled)
    }

    /// Lets the scheduler decide whenever a decision is due. Never ends.
    async fn keep_time(self: Arc<Self>) {
        loop {
            let next = self.state.lock().unwrap_or_else(PoisonError::into_inner).next;
            let due = async {
                match next {
                    Some(next) => tokio::time::sleep_until(self.instant(next)).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = due => self.apply(|_, _| ()),
                () = self.rescheduled.notified() => (),
            }
        }
    }

    fn report(&self) -> (Time, Report) {
        self.with(|state, now| (now, state.scheduler.report(now)))
    }

    /// Records in the trace what a newly queued call waits for.
    fn note_wait(&self, ticket: Ticket) {
        self.with(|state, now| {
            let Some((_call, job)) = state.waiting.get(&ticket) else { return };
            if let Some(wait) = trace::sampled(&job.span).then(|| state.scheduler.wait(now, ticket)).flatten()
            {
                trace::waits(&job.span, &wait);
            }
        });
    }

    /// Reads the state without letting the scheduler decide. Use `apply` for changes.
    fn with<R>(&self, look: impl FnOnce(&mut State, Time) -> R) -> R {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.time(Instant::now());
        look(&mut state, now)
    }

    fn queues(&self) -> Vec<QueueReport> {
        self.with(|state, now| state.scheduler.queues(now))
    }

    fn time(&self, at: Instant) -> Time {
        Time::ZERO + at.saturating_duration_since(self.began)
    }

    fn instant(&self, time: Time) -> Instant {
        self.began + time.since(Time::ZERO)
    }
}

/// A queued or sent call. If this value is dropped while the call is queued, the call is never sent.
#[derive(Debug)]
pub(super) struct Waiting<'a> {
    shared: &'a Arc<Shared>,
    ticket: Ticket,
    answer: oneshot::Receiver<CallResult>,
    answered: bool,
}

impl Waiting<'_> {
    pub(super) fn ticket(&self) -> Ticket {
        self.ticket
    }

    /// Must not be called again after the result was returned.
    ///
    /// Returns the scheduler's refusal, or the classified error in the vendor's answer.
    pub(super) async fn answer(&mut self) -> CallResult {
        let answer = (&mut self.answer).await;
        self.answered = true;
        answer.unwrap_or_else(|_| Err(VendorError::nonsense("the dispatcher has ended")))
    }

    /// Updates the priority and the purpose after other waiters have joined.
    pub(super) fn raise(&self, call: Call, purpose: Purpose) {
        self.shared.apply(|state, now| {
            let moved = state.scheduler.raise(now, self.ticket, call.clone());
            if let Some((queued, job)) = state.waiting.get_mut(&self.ticket).filter(|_| moved) {
                (*queued, job.purpose) = (call, purpose);
            }
        });
    }

    /// Checks whether the answer will miss this deadline. If so, returns the earliest time at which the answer is expected, and the
    /// refusal.
    pub(super) fn late(&self, deadline: Instant) -> Option<(Instant, VendorError)> {
        let deadline = self.shared.time(deadline);
        self.shared.apply(|state, now| {
            let (expected, refusal) = state.scheduler.late(now, self.ticket, deadline)?;
            let (call, job) = state.waiting.get(&self.ticket)?;
            let error = self.shared.refused(call, refusal, job.throttled.clone());
            Some((self.shared.instant(expected), error))
        })
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if self.answered {
            return;
        }
        self.shared.apply(|state, _now| {
            state.scheduler.cancel(self.ticket);
            state.waiting.remove(&self.ticket);
        });
    }
}
