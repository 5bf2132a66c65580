//! Calls shared by several callers: what changes when another caller joins a queued call.

use super::Scheduler;
use crate::{Call, Mode, Refusal, RefusalReason, Ticket, Time, queue::Waiting};

impl Scheduler {
    /// Adds another caller to a call. `call` has the new namespace, class and deadline; the vendor request is the same.
    ///
    /// A queued call moves to the end of the queue of the new namespace and class if it would be sent earlier from there. In this case, the
    /// method returns true. Otherwise the call keeps its place, and only the deadline changes. For a call in flight, the change applies
    /// only if the call is sent again.
    ///
    /// Cost: the same as [`Self::submit`].
    pub fn raise(&mut self, now: Time, ticket: Ticket, call: Call) -> bool {
        self.tree.tick(now, self.config.reserve);
        let latency = self.latency(now, &call);
        let Some(queued) = self.queue.get(ticket) else {
            if let Some(flight) = self.flights.get_mut(&ticket) {
                flight.call = call;
            }
            return false;
        };
        let (deadline, expiry) = (call.deadline, call.deadline.map(|deadline| deadline - latency.p50));
        let raised = Waiting { call, expiry, ..queued.clone() };
        let at = |waiting: &Waiting| self.view().forecast(now, waiting, latency.p50).at;
        let sooner = at(&raised) < at(queued) && self.queue.has_capacity(&raised.call, &self.config.queue);
        if sooner {
            self.queue.remove(ticket);
            self.queue.push_back(raised);
        } else {
            self.queue.extend(ticket, deadline, expiry);
        }
        sooner
    }

    /// Whether a queued call will be too late for a caller that waits until `deadline`. If so, returns the earliest expected time of the
    /// answer, and the refusal for all callers whose deadline is before that time. `None`: the call is expected in time, or is in flight.
    ///
    /// Cost: O(leaves x buckets of the call), and O(objects of its leaf).
    pub fn late(&mut self, now: Time, ticket: Ticket, deadline: Time) -> Option<(Time, Refusal)> {
        let queued = self.queue.get(ticket).filter(|_| self.config.mode == Mode::Enforce)?;
        let waiting =
            Waiting { call: Call { deadline: Some(deadline), ..queued.call.clone() }, ..queued.clone() };
        self.tree.tick(now, self.config.reserve);
        let latency = self.latency(now, &waiting.call);
        let forecast = self.view().forecast(now, &waiting, latency.p50);
        let rest = self.families.open_until(now, waiting.call.family);
        let rest = rest.max(self.credentials_open_until(now).filter(|_| !waiting.call.self_check));
        let (expected, reason) = match (rest, forecast.paused_until) {
            (Some(rest), _) if rest >= deadline => (rest, RefusalReason::BreakerOpen),
            (_, Some(until)) if until >= deadline => (forecast.at + latency.p95, RefusalReason::Throttled),
            _ => (forecast.at + latency.p95, RefusalReason::Budget),
        };
        (expected > deadline).then(|| (expected, self.refusal(now, &waiting, reason)))
    }
}
