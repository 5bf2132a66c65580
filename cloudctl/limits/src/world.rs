//! The scheduler, a vendor that answers after a fixed time, and the clock between them. Knows nothing of what the calls are for.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use cloud_adapter::vendor::Operation;
use cloud_budget::{Answer, Call, Class, Config, Decision, Outcome, Report, Scheduler, Ticket, Time};

use crate::tally::Tally;

/// From sending to the answer.
pub(crate) const READ: Duration = Duration::from_millis(200);
pub(crate) const WRITE: Duration = Duration::from_millis(500);

/// On whose behalf a call is made.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) class: Class,
    pub(crate) controller: &'static str,
    pub(crate) object: Arc<str>,
    /// Its waits are counted apart, too.
    pub(crate) user: bool,
    /// Nobody waits for it: it is what is listed again and again.
    pub(crate) again: bool,
}

/// A call that somebody wants to make. `news`: what its answer means.
#[derive(Clone, Debug)]
pub(crate) struct Asked<N> {
    pub(crate) operation: Operation,
    pub(crate) caller: Caller,
    pub(crate) news: N,
}

/// What happens at some moment.
#[derive(Debug)]
enum Event<N> {
    Answered(Ticket),
    /// A refused call is handed in again, as who was told to come back does.
    Again(Asked<N>, Time),
    Due(N),
}

/// The world of one run.
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
    /// Full buckets, unless it is a start: what the process before it spent is spent.
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

    /// Queues a call. `None`: it has to come back later, which it does.
    pub(crate) fn submit(&mut self, asked: Asked<N>) -> Option<Ticket> {
        self.hand_in(asked, self.now)
    }

    /// Others wait for a call as well, which stands where they would from now on.
    pub(crate) fn raise(&mut self, ticket: Ticket, caller: &Caller) {
        if let Some((asked, _)) = self.calls.get_mut(&ticket) {
            asked.caller = caller.clone();
            self.scheduler.raise(self.now, ticket, call(asked));
        }
    }

    /// Notes a moment.
    pub(crate) fn due(&mut self, at: Time, news: N) {
        self.note(at, Event::Due(news));
    }

    /// What happens next: a call has come back, or a moment that was noted has come. `None`: nothing until then.
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
                    let answer = Answer { outcome: Outcome::Answered, latency, hint: None };
                    self.scheduler.answered(self.now, ticket, answer);
                    return Some(asked.news);
                }
            }
        }
    }

    /// Sends what may be sent now; returns when the scheduler wants to be asked again.
    fn send(&mut self) -> Option<Time> {
        loop {
            match self.scheduler.next(self.now) {
                // A scheduler that wants to be asked again at once would be asked for ever.
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

/// As the adapter hands calls in. They have no deadline: work that a request does not live to see goes on without it.
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
