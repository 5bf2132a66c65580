//! Decides which calls are refused, before or while they are queued, and when their callers may retry.

use std::{sync::Arc, time::Duration};

use super::Scheduler;
use crate::{
    BreakerState, Decision, Mode, Refusal, RefusalReason, Ticket, Time,
    chance::jitter,
    forecast::Forecast,
    queue::{Capacity, Waiting},
};

const RETRY_MIN: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_hours(1);
/// Factor by which retry times are spaced more widely than the rate requires, to leave space for unexpected calls.
const HEADROOM: f64 = 1.25;
/// Maximum jitter as a share of the delay, so that callers refused together do not retry together.
const JITTER: f64 = 0.2;
/// Number of recorded retry times above which past retry times are removed.
const RETRY_TIMES_MAX: usize = 1024;

impl Scheduler {
    /// Makes space in the queue for a call, or refuses the call.
    pub(super) fn admit(&mut self, now: Time, waiting: &Waiting) -> Result<(), Refusal> {
        let call = &waiting.call;
        let rejected = !call.self_check && !self.credentials.admits(now, false);
        if rejected || self.families.open_until(now, call.family).is_some() {
            return Err(self.refusal(now, waiting, RefusalReason::BreakerOpen));
        }
        let limits = self.config.queue;
        let victim = match self.queue.capacity(call, &limits) {
            Capacity::Free => None,
            Capacity::Of(victim) => Some(victim),
            Capacity::None => return Err(self.refusal(now, waiting, RefusalReason::QueueFull)),
        };
        if let Some(reason) = self.too_late(now, waiting) {
            return Err(self.refusal(now, waiting, reason));
        }
        if let Some(victim) = victim.and_then(|ticket| self.queue.remove(ticket)) {
            let refusal = self.refusal(now, &victim, RefusalReason::QueueFull);
            if self.config.mode == Mode::Enforce {
                self.shed.push_back((victim.ticket, refusal));
            }
        }
        Ok(())
    }

    /// Returns why a call would be too late. `None`: the call would be in time.
    fn too_late(&self, now: Time, waiting: &Waiting) -> Option<RefusalReason> {
        let deadline = waiting.call.deadline?;
        let latency = self.latency(now, &waiting.call);
        let forecast = self.foreseen(now, waiting);
        let reason = match forecast.paused_until {
            Some(until) if until >= deadline => RefusalReason::Throttled,
            Some(_) | None => RefusalReason::Budget,
        };
        (forecast.at + latency.p95 > deadline || self.is_late(now, &waiting.call)).then_some(reason)
    }

    /// Drops a call that is too late. `None`: the call was only a copy in shadow mode.
    pub(super) fn expire(&mut self, now: Time, ticket: Ticket) -> Option<Decision> {
        let waiting = self.queue.remove(ticket)?;
        if self.config.mode == Mode::Shadow {
            return None;
        }
        let call = &waiting.call;
        let open = self.families.open_until(now, call.family).is_some();
        let reason = if open || !self.credentials.admits(now, call.self_check) {
            RefusalReason::BreakerOpen
        } else if self.tree.along(waiting.path).any(|(_, bucket)| bucket.paused_until().is_some()) {
            RefusalReason::Throttled
        } else {
            RefusalReason::Budget
        };
        let refusal = self.refusal(now, &waiting, reason);
        Some(Decision::Refuse(ticket, refusal))
    }

    pub(super) fn refusal(&mut self, now: Time, waiting: &Waiting, reason: RefusalReason) -> Refusal {
        let family = waiting.call.family;
        let rejected = reason == RefusalReason::BreakerOpen && !self.credentials.admits(now, false);
        let reason = if rejected { RefusalReason::Rejected } else { reason };
        let forecast = self.foreseen(now, waiting);
        let wait = match reason {
            RefusalReason::BreakerOpen | RefusalReason::Rejected => {
                let family = self.families.open_until(now, family);
                let until = family.max(self.credentials_open_until(now));
                until.map_or(Duration::ZERO, |until| until.since(now))
            }
            RefusalReason::Budget | RefusalReason::QueueFull | RefusalReason::Throttled => {
                self.promise(now, waiting, &forecast).since(now).min(RETRY_MAX)
            }
        };
        let seconds = wait.as_secs_f64();
        let slow = self.latency(now, &waiting.call).p95;
        let message = match reason {
            // The request has too little time left; a larger budget would not help.
            RefusalReason::Budget if wait < slow => format!(
                "the request has no time left for a call to {family}, which takes about {:.1} s",
                slow.as_secs_f64()
            ),
            RefusalReason::Budget => match self.budget_wait(now, &forecast, now + wait) {
                Some(wait) => wait.to_string(),
                None => format!("waits for the call budget of bucket {family}: about {} s", seconds.ceil()),
            },
            RefusalReason::QueueFull => format!("too many calls wait for the call budget of bucket {family}"),
            RefusalReason::Rejected => "the vendor rejects the credentials".to_owned(),
            RefusalReason::BreakerOpen => {
                format!("calls to {family} are suspended because too many of them failed")
            }
            RefusalReason::Throttled => format!("the vendor asked for a pause of calls to {family}"),
        };
        let retry_after = wait.mul_f64(1.0 + JITTER * jitter(waiting.ticket)).max(RETRY_MIN);
        Refusal { reason, message, retry_after }
    }

    /// Time at which to retry. Refused callers of the same leaf, namespace and path get successive times, because their retries must not
    /// arrive together.
    fn promise(&mut self, now: Time, waiting: &Waiting, forecast: &Forecast) -> Time {
        let call = &waiting.call;
        if self.promised.len() >= RETRY_TIMES_MAX {
            self.promised.retain(|_, at| *at > now);
        }
        let turns = u32::try_from(self.queue.namespaces(call)).unwrap_or(u32::MAX);
        let step = forecast.step.saturating_mul(turns).mul_f64(HEADROOM);
        let key = ((call.class, call.controller), Arc::clone(&call.namespace), waiting.path);
        let promised = self.promised.entry(key).or_default();
        let at = forecast.at.max(*promised);
        *promised = (at + step).min(now + RETRY_MAX);
        at
    }

    /// Time before which no self-check is sent, while the credentials are rejected.
    pub(super) fn credentials_open_until(&self, now: Time) -> Option<Time> {
        match self.credentials.state(now) {
            BreakerState::Open { retry_at } => Some(retry_at),
            BreakerState::Closed | BreakerState::HalfOpen => None,
        }
    }
}
