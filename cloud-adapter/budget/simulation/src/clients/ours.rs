//! A client that uses the budget, with queues that are always full.

use std::collections::BTreeMap;

use cloud_budget::{BucketReport, Class, Time};

use crate::{
    CallerAction, Client, Verdict,
    queue::{Budget, Queue, Work},
};

/// Number of calls that wait in each queue.
const BACKLOG: u32 = 16;

/// A client that uses the budget.
#[derive(Debug)]
pub struct Ours {
    budget: Budget,
    queues: Vec<Saturated>,
    /// The queue of each call in flight.
    calls: BTreeMap<u64, usize>,
}

/// A queue that is refilled whenever a call is sent.
#[derive(Debug)]
struct Saturated {
    work: Work,
    waiting: u32,
    sent: u64,
}

impl Ours {
    /// Creates one queue of urgent calls.
    #[must_use]
    pub fn new(rate: f64, burst: u32) -> Self {
        Self::with_queues(rate, burst, &[(Class::Traffic, "service-controller")])
    }

    /// Creates one queue for each class of a controller.
    #[must_use]
    pub fn with_queues(rate: f64, burst: u32, queues: &[(Class, &'static str)]) -> Self {
        let queue = |&(class, controller): &(Class, &'static str)| Saturated {
            work: Work { class, controller, reserve: class >= Class::Interactive, object: "object".into() },
            waiting: 0,
            sent: 0,
        };
        let queues = queues.iter().map(queue).collect();
        Self { budget: Budget::new(rate, burst), queues, calls: BTreeMap::new() }
    }

    /// The report of the client's bucket.
    #[must_use]
    pub fn bucket(&self, now: Time) -> Option<BucketReport> {
        self.budget.bucket(now)
    }

    /// Number of calls of one class that were sent so far.
    #[must_use]
    pub fn sent(&self, class: Class) -> u64 {
        self.queues.iter().filter(|queue| queue.work.class == class).map(|queue| queue.sent).sum()
    }

    fn fill(&mut self, now: Time) {
        for (number, queue) in self.queues.iter_mut().enumerate() {
            while queue.waiting < BACKLOG
                && let Ok(call) = self.budget.submit(now, &queue.work)
            {
                queue.waiting += 1;
                self.calls.insert(call, number);
            }
        }
    }

    fn queue(&mut self, call: u64) -> Option<&mut Saturated> {
        self.queues.get_mut(*self.calls.get(&call)?)
    }
}

impl Client for Ours {
    fn next(&mut self, now: Time) -> CallerAction {
        self.fill(now);
        let next = self.budget.next(now);
        if let CallerAction::Send(call) = next
            && let Some(queue) = self.queue(call)
        {
            queue.waiting -= 1;
            queue.sent += 1;
        }
        next
    }

    fn answered(&mut self, now: Time, call: u64, verdict: &Verdict) {
        if !self.budget.answered(now, call, verdict) {
            self.calls.remove(&call);
        } else if let Some(queue) = self.queue(call) {
            queue.waiting += 1;
        }
    }
}
