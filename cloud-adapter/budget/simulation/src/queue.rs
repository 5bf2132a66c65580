//! Queues in which calls wait: the budget, or one plain queue.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use cloud_budget::{
    Adaptive, BucketConfig, BucketReport, Call, CallResult, Class, Config, Decision, Outcome, RateLimit,
    Scheduler, Ticket, Time,
};

use crate::{CallerAction, Verdict, pace::Pace};

/// The family of all calls in this module, which has the only bucket.
const FAMILY: &str = "compute";

/// A call to submit.
#[derive(Clone, Debug)]
pub struct Work {
    /// Class of the call.
    pub class: Class,
    /// The controller that makes the call.
    pub controller: &'static str,
    /// Whether the call may use the burst reserve.
    pub reserve: bool,
    /// The object of the call.
    pub object: Arc<str>,
}

/// A queue for calls.
pub trait Queue {
    /// Queues a call. Returns its ticket, or the time at which to retry.
    fn submit(&mut self, now: Time, work: &Work) -> Result<u64, Duration>;
    /// Returns the next action.
    fn next(&mut self, now: Time) -> CallerAction;
    /// Reports that a call has returned. Returns whether the call is queued once more.
    fn answered(&mut self, now: Time, call: u64, verdict: &Verdict) -> bool;
}

/// A queue that uses the budget.
#[derive(Debug)]
pub struct Budget {
    scheduler: Scheduler,
    sent: BTreeMap<u64, Time>,
    refused: u64,
}

impl Budget {
    /// Creates a budget with one bucket and default settings.
    #[must_use]
    pub fn new(rate: f64, burst: u32) -> Self {
        let limit = RateLimit { rate, burst };
        let bucket = BucketConfig { parent: None, limit, adaptive: Some(Adaptive::default()) };
        let buckets = BTreeMap::from([(FAMILY.to_owned(), bucket)]);
        let concurrency = BTreeMap::from([(FAMILY.to_owned(), 16)]);
        let config = Config { buckets, concurrency, ..Config::default() };
        Self { scheduler: Scheduler::new(config, Time::ZERO), sent: BTreeMap::new(), refused: 0 }
    }

    /// The report of the bucket.
    #[must_use]
    pub fn bucket(&self, now: Time) -> Option<BucketReport> {
        self.scheduler.report(now).buckets.into_iter().find(|bucket| bucket.name == FAMILY)
    }

    /// Number of calls that were queued and then refused. It is 0 if no call has a deadline.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused
    }
}

impl Queue for Budget {
    fn submit(&mut self, now: Time, work: &Work) -> Result<u64, Duration> {
        let call = Call {
            family: FAMILY,
            operation: "call",
            class: work.class,
            controller: work.controller,
            reserve: work.reserve,
            namespace: "".into(),
            object: Arc::clone(&work.object),
            cost: 1,
            deadline: None,
            self_check: false,
        };
        match self.scheduler.submit(now, call) {
            Ok(Ticket(call)) => Ok(call),
            Err(refusal) => Err(refusal.retry_after),
        }
    }

    fn next(&mut self, now: Time) -> CallerAction {
        loop {
            match self.scheduler.next(now) {
                Decision::Send { ticket, .. } => {
                    self.sent.insert(ticket.0, now);
                    return CallerAction::Send(ticket.0);
                }
                Decision::Refuse(..) => self.refused += 1,
                Decision::Wait(until) => return CallerAction::Wait(until),
            }
        }
    }

    fn answered(&mut self, now: Time, call: u64, verdict: &Verdict) -> bool {
        let outcome = match verdict {
            Verdict { throttled: true, retry_after, .. } => {
                Outcome::Throttled { retry_after: *retry_after, bucket: None }
            }
            Verdict { .. } => Outcome::Answered,
        };
        let latency = self.sent.remove(&call).map_or(Duration::ZERO, |sent| now.since(sent));
        let answer = CallResult { outcome, latency, hint: verdict.hint };
        self.scheduler.answered(now, Ticket(call), answer) == cloud_budget::AfterCall::Again
    }
}

/// One queue for all calls, in front of one bucket.
#[derive(Debug)]
pub struct Fifo {
    pace: Pace,
    calls: VecDeque<u64>,
    last: u64,
}

impl Fifo {
    /// Creates a queue whose bucket has this rate and burst.
    #[must_use]
    pub fn new(rate: f64, burst: u32) -> Self {
        Self { pace: Pace::new(rate, f64::from(burst)), calls: VecDeque::new(), last: 0 }
    }
}

impl Queue for Fifo {
    fn submit(&mut self, _: Time, _: &Work) -> Result<u64, Duration> {
        self.last += 1;
        self.calls.push_back(self.last);
        Ok(self.last)
    }

    fn next(&mut self, now: Time) -> CallerAction {
        if self.calls.is_empty() {
            return CallerAction::Wait(None);
        }
        if !self.pace.take(now) {
            return CallerAction::Wait(Some(now + self.pace.wait()));
        }
        self.calls.pop_front().map_or(CallerAction::Wait(None), CallerAction::Send)
    }

    fn answered(&mut self, _: Time, _: u64, _: &Verdict) -> bool {
        false
    }
}
