//! The scheduler, a vendor that answers after a fixed time, and the clock that connects them. This module does not depend on the purpose of
//! the calls.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use cloud_adapter::vendor::Operation;
use cloud_budget::{Call, CallResult, Class, Config, Decision, Outcome, Report, Scheduler, Ticket, Time};

use crate::limits::tally::Tally;

/// Latency of a read and of a write.
pub(crate) const READ: Duration = Duration::from_millis(200);
pub(crate) const WRITE: Duration = Duration::from_millis(500);

/// The caller of a vendor call.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) class: Class,
    pub(crate) controller: &'static str,
    pub(crate) object: Arc<str>,
    /// Whether the waits of these calls are also counted separately, as waits of users.
    pub(crate) user: bool,
    /// Whether the call belongs to a periodic listing, which nothing waits for.
    pub(crate) again: bool,
}

/// A requested call. `news` tells the model what the answer means.
#[derive(Clone, Debug)]
pub(crate) struct Asked<N> {
    pub(crate) operation: Operation,
    pub(crate) caller: Caller,
    pub(crate) news: N,
}

/// An event at a certain time.
#[derive(Debug)]
enum Event<N> {
    Answered(Ticket),
    /// A refused call is submitted again, after the delay that the scheduler named.
    Again(Asked<N>, Time),
    Due(N),
}

/// The simulated world of one run.
#[derive(Debug)]
pub(crate) struct World<N> {
    scheduler: Scheduler,
    now: Time,
    agenda: BTreeMap<(Time, u64), Event<N>>,
    last: u64,
    calls: BTreeMap<Ticket, (Asked<N>, Time)>,
    pub(crate) tally: Tally,
}

impl<N: Clone> World<N> {
    /// Begins with full buckets; at a start with empty ones, because the previous process may have used them up.
    pub(crate) fn new(config: Config, starts: bool) -> Self {
        let mut scheduler = Scheduler::new(config, Time::ZERO);
        if starts {
            scheduler.empty(Time::ZERO);
        }
        let (agenda, calls) = (BTreeMap::new(), BTreeMap::new());
        Self { scheduler, now: Time::ZERO, agenda, last: 0, calls, tally: Tally::default() }
    }

    pub(crate) fn now(&self) -> Time {
        self.now
    }

    pub(crate) fn report(&self) -> Report {
        self.scheduler.report(self.now)
    }

    /// Queues a call. Returns `None` if the call was refused, and is retried later.
    pub(crate) fn submit(&mut self, asked: Asked<N>) -> Option<Ticket> {
        self.hand_in(asked, self.now)
    }

    /// Gives a queued call the priority of another caller that now waits for the same call.
    pub(crate) fn raise(&mut self, ticket: Ticket, caller: &Caller) {
        if let Some((asked, _)) = self.calls.get_mut(&ticket) {
            asked.caller = caller.clone();
            self.scheduler.raise(self.now, ticket, call(asked));
        }
    }

    /// Schedules a timer.
    pub(crate) fn due(&mut self, at: Time, news: N) {
        self.note(at, Event::Due(news));
    }

    /// Returns the next event: an answered call or a timer. `None`: nothing more happens until then.
    pub(crate) fn next(&mut self, until: Time) -> Option<N> {
        loop {
            let wake = self.send();
            let noted = self.agenda.first_key_value().map(|((at, _), _)| *at);
            let Some(at) = wake.into_iter().chain(noted).min().filter(|at| *at <= until) else {
                self.now = until;
                return None;
            };
            self.now = self.now.max(at);
            if noted != Some(at) {
                continue;
            }
            match self.agenda.pop_first()?.1 {
                Event::Due(news) => return Some(news),
                Event::Again(asked, since) => {
                    self.hand_in(asked, since);
                }
                Event::Answered(ticket) => {
                    let (asked, _) = self.calls.remove(&ticket)?;
                    let latency = latency(asked.operation);
                    let answer = CallResult { outcome: Outcome::Answered, latency, hint: None };
                    self.scheduler.answered(self.now, ticket, answer);
                    return Some(asked.news);
                }
            }
        }
    }

    /// Sends the calls that may be sent now. Returns the time at which the scheduler must be asked again.
    fn send(&mut self) -> Option<Time> {
        loop {
            match self.scheduler.next(self.now) {
                // Prevents an endless loop if the scheduler asks to be called again at once.
                Decision::Wait(wake) => return wake.map(|at| at.max(self.now + Duration::from_nanos(1))),
                Decision::Send { ticket, .. } => {
                    let Some((asked, since)) = self.calls.get(&ticket) else { continue };
                    let latency = latency(asked.operation);
                    self.tally.sent(asked.operation, &asked.caller, (self.now.since(*since), latency));
                    self.note(self.now + latency, Event::Answered(ticket));
                }
                Decision::Refuse(ticket, refusal) => {
                    if let Some((asked, since)) = self.calls.remove(&ticket) {
                        self.come_back((asked, since), refusal.retry_after);
                    }
                }
            }
        }
    }

    fn hand_in(&mut self, asked: Asked<N>, since: Time) -> Option<Ticket> {
        match self.scheduler.submit(self.now, call(&asked)) {
            Ok(ticket) => {
                self.calls.insert(ticket, (asked, since));
                Some(ticket)
            }
            Err(refusal) => {
                self.come_back((asked, since), refusal.retry_after);
                None
            }
        }
    }

    fn come_back(&mut self, (asked, since): (Asked<N>, Time), later: Duration) {
        self.tally.refused += 1;
        self.note(self.now + later, Event::Again(asked, since));
    }

    fn note(&mut self, at: Time, event: Event<N>) {
        self.last += 1;
        self.agenda.insert((at, self.last), event);
    }
}

fn latency(operation: Operation) -> Duration {
    if operation.write { WRITE } else { READ }
}

/// Builds a call as the adapter does. The call has no deadline, because the adapter continues its work after a request has ended.
fn call<N>(asked: &Asked<N>) -> Call {
    let Caller { class, controller, object, .. } = &asked.caller;
    let urgent = *class == Class::Interactive && *controller == "service-controller";
    Call {
        family: asked.operation.family.word(),
        operation: asked.operation.name,
        class: *class,
        controller,
        reserve: *class == Class::Traffic || urgent,
        namespace: Arc::from(""),
        object: Arc::clone(object),
        cost: 1,
        deadline: None,
        self_check: false,
    }
}
