//! The scheduler, a vendor that answers after a fixed time, and the clock that connects them. This module does not depend on the purpose of
//! the calls.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use cloud_adapter::vendor::Operation;
use cloud_budget::{Call, CallResult, Class, Config, Decision, Outcome, Report, Scheduler, Ticket, Time};

use crate::limits::tally::{Caller, Tally};

/// Latency of a read and of a write.
pub(crate) const READ: Duration = Duration::from_millis(200);
pub(crate) const WRITE: Duration = Duration::from_millis(500);

#[derive(Clone, Debug)]
pub(crate) struct Request<E> {
    pub(crate) operation: Operation,
    pub(crate) caller: Caller,
    /// The event that the answer causes.
    pub(crate) answered: E,
}

#[derive(Debug)]
enum Event<E> {
    Answered(Ticket),
    /// A refused call is submitted again, after the delay that the scheduler named.
    Retry(Request<E>, Time),
    Timer(E),
}

#[derive(Debug)]
pub(crate) struct World<E> {
    scheduler: Scheduler,
    now: Time,
    events: BTreeMap<(Time, u64), Event<E>>,
    last: u64,
    calls: BTreeMap<Ticket, (Request<E>, Time)>,
    pub(crate) tally: Tally,
}

impl<E: Clone> World<E> {
    /// Creates a run with full buckets. At a start, the buckets are empty, because the previous process may have used their tokens.
    pub(crate) fn new(config: Config, starts: bool) -> Self {
        let mut scheduler = Scheduler::new(config, Time::ZERO);
        if starts {
            scheduler.empty(Time::ZERO);
        }
        let (events, calls) = (BTreeMap::new(), BTreeMap::new());
        Self { scheduler, now: Time::ZERO, events, last: 0, calls, tally: Tally::default() }
    }

    pub(crate) fn now(&self) -> Time {
        self.now
    }

    pub(crate) fn report(&self) -> Report {
        self.scheduler.report(self.now)
    }

    /// Queues a call. Returns `None` if the call was refused, and is retried later.
    pub(crate) fn submit(&mut self, request: Request<E>) -> Option<Ticket> {
        self.enqueue(request, self.now)
    }

    /// Gives a queued call the priority of another caller that now waits for the same call.
    pub(crate) fn raise(&mut self, ticket: Ticket, caller: &Caller) {
        if let Some((request, _)) = self.calls.get_mut(&ticket) {
            request.caller = caller.clone();
            self.scheduler.raise(self.now, ticket, call(request));
        }
    }

    pub(crate) fn schedule(&mut self, at: Time, event: E) {
        self.push(at, Event::Timer(event));
    }

    /// Returns the next event: an answered call or a timer. `None`: no event happens before `until`.
    pub(crate) fn next(&mut self, until: Time) -> Option<E> {
        loop {
            let wake = self.send();
            let scheduled = self.events.first_key_value().map(|((at, _), _)| *at);
            let Some(at) = wake.into_iter().chain(scheduled).min().filter(|at| *at <= until) else {
                self.now = until;
                return None;
            };
            self.now = self.now.max(at);
            if scheduled != Some(at) {
                continue;
            }
            match self.events.pop_first()?.1 {
                Event::Timer(event) => return Some(event),
                Event::Retry(request, since) => {
                    self.enqueue(request, since);
                }
                Event::Answered(ticket) => {
                    let (request, _) = self.calls.remove(&ticket)?;
                    let latency = latency(request.operation);
                    let answer = CallResult { outcome: Outcome::Answered, latency, hint: None };
                    self.scheduler.answered(self.now, ticket, answer);
                    return Some(request.answered);
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
                    let Some((request, since)) = self.calls.get(&ticket) else { continue };
                    let latency = latency(request.operation);
                    self.tally.sent(request.operation, &request.caller, self.now.since(*since), latency);
                    self.push(self.now + latency, Event::Answered(ticket));
                }
                Decision::Refuse(ticket, refusal) => {
                    if let Some((request, since)) = self.calls.remove(&ticket) {
                        self.retry_later(request, since, refusal.retry_after);
                    }
                }
            }
        }
    }

    fn enqueue(&mut self, request: Request<E>, since: Time) -> Option<Ticket> {
        match self.scheduler.submit(self.now, call(&request)) {
            Ok(ticket) => {
                self.calls.insert(ticket, (request, since));
                Some(ticket)
            }
            Err(refusal) => {
                self.retry_later(request, since, refusal.retry_after);
                None
            }
        }
    }

    fn retry_later(&mut self, request: Request<E>, since: Time, later: Duration) {
        self.tally.refused += 1;
        self.push(self.now + later, Event::Retry(request, since));
    }

    fn push(&mut self, at: Time, event: Event<E>) {
        self.last += 1;
        self.events.insert((at, self.last), event);
    }
}

fn latency(operation: Operation) -> Duration {
    if operation.write { WRITE } else { READ }
}

/// Builds a call as the adapter does. The call has no deadline, because the adapter continues its work after a request has ended.
fn call<E>(request: &Request<E>) -> Call {
    let Caller { class, controller, object, .. } = &request.caller;
    let urgent = *class == Class::Interactive && *controller == "service-controller";
    Call {
        family: request.operation.family.word(),
        operation: request.operation.name,
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
