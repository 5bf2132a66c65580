//! Drives the scheduler: hands calls in, and sends each when it is told to, never otherwise.
//!
//! A call that was sent is followed to its end, also if nobody waits for it any more: its answer says something of the
//! vendor's limits. One that still waits is taken back when nobody waits for it.

use std::{
    collections::{BTreeMap, HashMap},
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use cloud_budget::{
    BudgetWait, Call, Config, Decision, Next, Outcome, QueueReport, Refusal, Report, Scheduler, Ticket, Time,
};
use futures::FutureExt as _;
use tokio::{
    sync::{Notify, oneshot},
    task::JoinSet,
    time::Instant,
};
use tokio_util::task::TaskTracker;

use super::{
    Purpose, VendorResponse,
    flight::{Flight, Job, Landed},
    trace, translate,
};
use crate::driver::VendorError;

/// Leave to send one request. Only the dispatcher makes it, one for each time that the scheduler says so.
#[derive(Debug)]
pub(super) struct Permit(());

/// What becomes of a call.
pub(super) type Answer = Result<VendorResponse, VendorError>;

/// The scheduler, and the calls that wait for it.
#[derive(Debug)]
pub(super) struct Dispatcher {
    shared: Arc<Shared>,
    /// Ends with the dispatcher.
    _clock: JoinSet<()>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    flight: Flight,
    /// Moments of the scheduler are told from here.
    began: Instant,
    /// The time of the next decision has changed.
    rescheduled: Notify,
    flights: TaskTracker,
}

#[derive(Debug)]
struct State {
    scheduler: Scheduler,
    /// Boxed: a table that grows holds places for twice as many.
    waiting: HashMap<Ticket, (Call, Box<Job>)>,
    /// When the scheduler wants to be asked again.
    next: Option<Time>,
    /// Nothing is sent, and nothing waits: another replica leads, or may soon.
    halted: bool,
}

impl Dispatcher {
    /// Sends nothing by itself.
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

    /// Queues a call. It is sent when its turn comes, unless what is returned is dropped before.
    ///
    /// # Errors
    /// The scheduler's refusals.
    pub(super) fn submit(
        &self,
        call: Call,
        make: impl FnOnce(oneshot::Sender<Answer>) -> Job,
    ) -> Result<Waiting<'_>, VendorError> {
        let (told, answer) = oneshot::channel();
        let shared = &self.shared;
        let ticket = shared.hand_in(move |state, now| {
            if state.halted {
                return Err(translate::halted());
            }
            let submitted = state.scheduler.submit(now, call.clone());
            let ticket = submitted.map_err(|refusal| shared.refused(&call, refusal, None))?;
            state.waiting.insert(ticket, (call, Box::new(make(told))));
            Ok(ticket)
        })?;
        shared.note_wait(ticket);
        Ok(Waiting { shared, ticket, answer, answered: false })
    }

    /// Changes the scheduler, and lets it decide anew.
    pub(super) fn change(&self, change: impl FnOnce(&mut Scheduler, Time)) {
        self.shared.hand_in(|state, now| change(&mut state.scheduler, now));
    }

    /// Sends until then.
    pub(super) fn allow_until(&self, until: Instant) {
        let until = self.shared.time(until);
        self.shared.hand_in(|state, _now| {
            state.halted = false;
            state.scheduler.allow_until(Some(until));
        });
    }

    /// Sends nothing any more and refuses what waits. What was sent is followed to its end.
    pub(super) fn halt(&self) {
        self.shared.hand_in(|state, now| {
            state.halted = true;
            state.scheduler.allow_until(Some(now));
            let waiting: BTreeMap<_, _> = std::mem::take(&mut state.waiting).into_iter().collect();
            for (ticket, (_call, job)) in waiting {
                state.scheduler.cancel(ticket);
                job.tell(Err(translate::halted()));
            }
        });
    }

    /// Until every call that was sent has come back. Only one that sends nothing any more comes to that end for good.
    pub(super) async fn landed(&self) {
        self.shared.flights.close();
        self.shared.flights.wait().await;
    }

    /// How everything stands, and at what time.
    pub(super) fn report(&self) -> (Time, Report) {
        self.shared.report()
    }

    /// What a call waits for, if that is its budget.
    pub(super) fn wait(&self, ticket: Ticket) -> Option<BudgetWait> {
        self.shared.with(|state, now| state.scheduler.wait(now, ticket))
    }

    /// What waits for which budget, by whose it is.
    pub(super) fn queues(&self) -> Vec<QueueReport> {
        self.shared.queues()
    }

    /// Reads the report for as long as the dispatcher is there.
    pub(super) fn reporter(&self) -> impl Fn() -> Option<(Time, Report)> + Send + Sync + 'static {
        let shared = Arc::downgrade(&self.shared);
        move || Some(shared.upgrade()?.report())
    }

    /// The same for what waits.
    pub(super) fn queue_reporter(&self) -> impl Fn() -> Vec<QueueReport> + Send + Sync + 'static {
        let shared = Arc::downgrade(&self.shared);
        move || shared.upgrade().map(|shared| shared.queues()).unwrap_or_default()
    }

    /// The scheduler's name for an instant.
    pub(super) fn time(&self, at: Instant) -> Time {
        self.shared.time(at)
    }

    /// The instant that the scheduler means.
    pub(super) fn instant(&self, time: Time) -> Instant {
        self.shared.instant(time)
    }
}

impl Shared {
    /// Tells the scheduler something, and carries out what it decides thereupon.
    fn hand_in<R>(self: &Arc<Self>, tell: impl FnOnce(&mut State, Time) -> R) -> R {
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
                // A defect of the driver must not keep the call's place among those in flight.
                let flight = AssertUnwindSafe(shared.flight.send(Permit(()), &job, waited)).catch_unwind();
                let landed = flight.await.unwrap_or_else(|_panic| Flight::broken(job.operation));
                shared.came_back((ticket, call, job), landed);
            });
        }
    }

    /// Tells the scheduler what came of a call, and whoever waits for it, unless it is sent once more.
    fn came_back(self: &Arc<Self>, (ticket, call, mut job): (Ticket, Call, Box<Job>), landed: Landed) {
        let Landed { result, answer, sent } = landed;
        job.sent = sent;
        if answer.outcome == Outcome::Unauthorized && !call.self_check {
            self.flight.rejected.notify_one();
        }
        self.hand_in(|state, now| match (state.scheduler.answered(now, ticket, answer), result) {
            (Next::Again, result) if state.halted => {
                state.scheduler.cancel(ticket);
                job.tell(result);
            }
            (Next::Again, result) => {
                job.throttled = result.err();
                state.waiting.insert(ticket, (call, job));
            }
            (Next::Done, result) => job.tell(result),
        });
    }

    fn refused(&self, call: &Call, refusal: Refusal, throttled: Option<VendorError>) -> VendorError {
        self.flight.metrics.shed(refusal.reason, call.class, call.controller);
        translate::refused(refusal, throttled)
    }

    /// Lets the scheduler decide when the time has come. Never ends.
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
                () = due => self.hand_in(|_, _| ()),
                () = self.rescheduled.notified() => (),
            }
        }
    }

    fn report(&self) -> (Time, Report) {
        self.with(|state, now| (now, state.scheduler.report(now)))
    }

    /// Has the trace say what a call waits for that was just handed in.
    fn note_wait(&self, ticket: Ticket) {
        self.with(|state, now| {
            let Some((_call, job)) = state.waiting.get(&ticket) else { return };
            if let Some(wait) = trace::told(&job.span).then(|| state.scheduler.wait(now, ticket)).flatten() {
                trace::waits(&job.span, &wait);
            }
        });
    }

    /// Looks at the state. Whoever changes it hands something in.
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

/// A call that waits for its turn, or for the vendor. Dropped before its turn, it is never sent.
#[derive(Debug)]
pub(super) struct Waiting<'a> {
    shared: &'a Arc<Shared>,
    ticket: Ticket,
    answer: oneshot::Receiver<Answer>,
    answered: bool,
}

impl Waiting<'_> {
    /// Its name at the scheduler.
    pub(super) fn ticket(&self) -> Ticket {
        self.ticket
    }

    /// What came of it. To be asked for until it is told, and no more.
    ///
    /// # Errors
    /// The scheduler's refusals, and what `flight` makes of the vendor's answer.
    pub(super) async fn answer(&mut self) -> Answer {
        let answer = (&mut self.answer).await;
        self.answered = true;
        answer.unwrap_or_else(|_| Err(VendorError::nonsense("the dispatcher has ended")))
    }

    /// Others wait for it, too: it is theirs from now on.
    pub(super) fn raise(&self, call: Call, purpose: Purpose) {
        self.shared.hand_in(|state, now| {
            let moved = state.scheduler.raise(now, self.ticket, call.clone());
            if let Some((queued, job)) = state.waiting.get_mut(&self.ticket).filter(|_| moved) {
                (*queued, job.purpose) = (call, purpose);
            }
        });
    }

    /// Whether its answer comes too late for one who waits until then: before when it is not expected, and the refusal.
    pub(super) fn late(&self, deadline: Instant) -> Option<(Instant, VendorError)> {
        let deadline = self.shared.time(deadline);
        self.shared.hand_in(|state, now| {
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
        self.shared.hand_in(|state, _now| {
            state.scheduler.cancel(self.ticket);
            state.waiting.remove(&self.ticket);
        });
    }
}
