//! A client that uses the budget.

use std::{collections::BTreeMap, time::Duration};

use cloud_budget::{
    Adaptive, AfterCall, BucketConfig, BucketReport, Call, CallResult, Class, Config, Decision, Outcome,
    RateLimit, Scheduler, Ticket, Time,
};

use crate::{CallerAction, Client, Verdict};

/// The family of all calls, which has the only bucket.
const FAMILY: &str = "compute";
/// Number of calls that wait in the queue of [`Saturated`].
const BACKLOG: u32 = 16;

/// A budget with one bucket and default settings.
#[derive(Debug)]
pub(crate) struct Budget {
    scheduler: Scheduler,
    sent: BTreeMap<Ticket, Time>,
}

impl Budget {
    pub(crate) fn new(rate: f64, burst: u32) -> Self {
        let limit = RateLimit { rate, burst };
        let bucket = BucketConfig { parent: None, limit, adaptive: Some(Adaptive::default()) };
        let buckets = BTreeMap::from([(FAMILY.to_owned(), bucket)]);
        let concurrency = BTreeMap::from([(FAMILY.to_owned(), 16)]);
        let config = Config { buckets, concurrency, ..Config::default() };
        Self { scheduler: Scheduler::new(config, Time::ZERO), sent: BTreeMap::new() }
    }

    /// Queues a call. Returns false if the budget refuses the call.
    pub(crate) fn submit(&mut self, now: Time, object: &str) -> bool {
        let call = Call {
            family: FAMILY,
            operation: "call",
            class: Class::Traffic,
            controller: "service-controller",
            reserve: true,
            namespace: "".into(),
            object: object.into(),
            cost: 1,
            deadline: None,
            self_check: false,
        };
        self.scheduler.submit(now, call).is_ok()
    }

    pub(crate) fn next(&mut self, now: Time) -> CallerAction {
        loop {
            match self.scheduler.next(now) {
                Decision::Send { ticket, .. } => {
                    self.sent.insert(ticket, now);
                    return CallerAction::Send(ticket.0);
                }
                Decision::Refuse(..) => (),
                Decision::Wait(until) => return CallerAction::Wait(until),
            }
        }
    }

    pub(crate) fn answered(&mut self, now: Time, call: u64, verdict: &Verdict) -> AfterCall {
        let outcome = if verdict.throttled {
            Outcome::Throttled { retry_after: verdict.retry_after, bucket: None }
        } else {
            Outcome::Answered
        };
        let ticket = Ticket(call);
        let latency = self.sent.remove(&ticket).map_or(Duration::ZERO, |sent| now.since(sent));
        self.scheduler.answered(now, ticket, CallResult { outcome, latency, hint: verdict.hint })
    }
}

/// A client whose queue is refilled whenever a call is sent.
#[derive(Debug)]
pub(crate) struct Saturated {
    budget: Budget,
    waiting: u32,
}

impl Saturated {
    pub(crate) fn new(rate: f64, burst: u32) -> Self {
        Self { budget: Budget::new(rate, burst), waiting: 0 }
    }

    pub(crate) fn bucket(&self, now: Time) -> Option<BucketReport> {
        self.budget.scheduler.report(now).buckets.into_iter().find(|bucket| bucket.name == FAMILY)
    }
}

impl Client for Saturated {
    fn next(&mut self, now: Time) -> CallerAction {
        while self.waiting < BACKLOG && self.budget.submit(now, "object") {
            self.waiting += 1;
        }
        let next = self.budget.next(now);
        self.waiting -= u32::from(matches!(next, CallerAction::Send(_)));
        next
    }

    fn answered(&mut self, now: Time, call: u64, verdict: &Verdict) {
        let after = self.budget.answered(now, call, verdict);
        self.waiting += u32::from(after == AfterCall::Again);
    }
}
