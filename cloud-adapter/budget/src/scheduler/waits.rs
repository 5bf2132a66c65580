//! Reports for status pages which calls wait for which bucket, and for how long. This module does not send, refuse or reorder calls.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    time::Duration,
};

use super::Scheduler;
use crate::{
    BudgetWait, Class, Mode, QueueReport, Ticket, Time,
    forecast::Forecast,
    queue::Waiting,
    tree::{BucketId, PathId},
};

/// The calls of one leaf that take tokens from the same buckets: their number, and the oldest of them.
type Alike<'a> = BTreeMap<(PathId, Class, &'static str), (u64, &'a Waiting)>;

impl Scheduler {
    /// The bucket that a call waits for. `None`: the call is not queued, or something else delays it, such as a pause requested by the
    /// vendor, a circuit breaker, or the limit of calls in flight.
    ///
    /// Cost: O(leaves x buckets of the call), and O(objects of its leaf).
    pub fn wait(&mut self, now: Time, ticket: Ticket) -> Option<BudgetWait> {
        self.tree.tick(now, self.config.reserve);
        let waiting = self.queue.get(ticket).filter(|_| self.config.mode == Mode::Enforce)?;
        let rests = self.families.open_until(now, waiting.call.family).is_some()
            || !self.credentials.admits(now, waiting.call.self_check);
        let forecast = self.foreseen(now, waiting);
        let pauses = forecast.paused_until.is_some_and(|until| until > now);
        let (_, paid_at) = forecast.held_by?;
        if rests || pauses || paid_at <= now || forecast.at > paid_at {
            return None;
        }
        self.budget_wait(now, &forecast, forecast.at)
    }

    /// Queued calls by the bucket that delays them, by class and by controller.
    ///
    /// Cost: O(queued calls).
    pub fn queues(&mut self, now: Time) -> Vec<QueueReport> {
        self.tree.tick(now, self.config.reserve);
        let mut alike = Alike::new();
        for waiting in self.queue.waiting() {
            let key = (waiting.path, waiting.call.class, waiting.call.controller);
            match alike.entry(key) {
                Entry::Vacant(entry) => {
                    entry.insert((1, waiting));
                }
                Entry::Occupied(mut entry) => {
                    let (queued, oldest) = entry.get_mut();
                    *queued += 1;
                    if (waiting.since, waiting.ticket) < (oldest.since, oldest.ticket) {
                        *oldest = waiting;
                    }
                }
            }
        }
        let mut queues: BTreeMap<(&str, Class, &'static str), (u64, Duration)> = BTreeMap::new();
        for ((path, class, controller), (queued, oldest)) in alike {
            let held_by = self.foreseen(now, oldest).held_by.map(|(id, _)| id);
            let bucket = held_by.or_else(|| self.tree.at(path)?.buckets.first().copied());
            let Some(bucket) = bucket.and_then(|id| self.tree.get(id)) else { continue };
            let sum = queues.entry((&bucket.name, class, controller)).or_default();
            sum.0 += queued;
            sum.1 = sum.1.max(now.since(oldest.since));
        }
        let report = |((bucket, class, controller), (queued, oldest)): ((&str, Class, &'static str), _)| {
            QueueReport { bucket: bucket.to_owned(), class, controller, queued, oldest }
        };
        queues.into_iter().map(report).collect()
    }

    /// Describes the wait of a call that will be sent at `at`.
    pub(super) fn budget_wait(&self, now: Time, forecast: &Forecast, at: Time) -> Option<BudgetWait> {
        let (id, _): (BucketId, Time) = forecast.held_by?;
        let bucket = self.tree.get(id)?;
        let report = bucket.report(now, 0);
        Some(BudgetWait {
            bucket: report.name,
            ahead: forecast.ahead,
            rate: report.rate,
            about: at.since(now),
        })
    }

    pub(super) fn foreseen(&self, now: Time, waiting: &Waiting) -> Forecast {
        self.view().forecast(now, waiting, self.latency(now, &waiting.call).p50)
    }
}
