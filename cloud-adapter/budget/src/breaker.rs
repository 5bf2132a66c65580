//! Circuit breakers for a failing family and for rejected credentials. A breaker is notified only when a call is sent and when it returns.

#[cfg(test)]
mod tests;

use std::{collections::VecDeque, time::Duration};

use crate::{BreakerLimits, BreakerState, Time};

/// Number of slots into which the window is divided, so that memory use does not depend on the number of calls.
const SLOTS: u32 = 30;
/// Consecutive successes that close a half-open breaker.
const SUCCESSES: u32 = 3;
/// Interval between self-checks while the credentials are rejected. The interval is long because vendors lock accounts after repeated
/// attempts.
const CREDENTIALS_REST: Duration = Duration::from_secs(30);

#[derive(Clone, Debug)]
pub(crate) struct Breaker {
    limits: BreakerLimits,
    state: State,
    /// Number of calls in flight. A half-open breaker sends a call only after all earlier calls have returned.
    in_flight: u32,
    /// Duration of the next open period.
    rest: Duration,
}

#[derive(Clone, Debug)]
enum State {
    Closed {
        slots: VecDeque<Slot>,
    },
    /// The breaker is half-open from `until` on.
    Resting {
        until: Time,
        successes: u32,
    },
}

/// Numbers of calls that returned in one slot of the window.
#[derive(Clone, Copy, Debug)]
struct Slot {
    began: Time,
    calls: u32,
    failed: u32,
}

impl Breaker {
    pub(crate) fn new(limits: BreakerLimits) -> Self {
        Self { limits, state: State::closed(), in_flight: 0, rest: limits.open }
    }

    /// Applies new limits; a current open period continues.
    pub(crate) fn configure(&mut self, limits: BreakerLimits) {
        self.limits = limits;
        self.rest = self.rest.clamp(limits.open.min(limits.open_max), limits.open_max);
    }

    pub(crate) fn state(&self, now: Time) -> BreakerState {
        match self.state {
            State::Closed { .. } => BreakerState::Closed,
            State::Resting { until, .. } if now < until => BreakerState::Open { retry_at: until },
            State::Resting { .. } => BreakerState::HalfOpen,
        }
    }

    pub(crate) fn admits(&self, now: Time) -> bool {
        match self.state(now) {
            BreakerState::Closed => true,
            BreakerState::Open { .. } => false,
            BreakerState::HalfOpen => self.in_flight == 0,
        }
    }

    pub(crate) fn sent(&mut self) {
        self.in_flight = self.in_flight.saturating_add(1);
    }

    /// Records that a call returned. Failures are 5xx statuses, timeouts and failed connections. Throttled and refused calls are no
    /// failures, because they show that the vendor is reachable.
    pub(crate) fn record_result(&mut self, now: Time, failed: bool) {
        self.in_flight = self.in_flight.saturating_sub(1);
        match &mut self.state {
            State::Closed { slots } => {
                note(slots, &self.limits, now, failed);
                if too_many_failed(slots, &self.limits) {
                    self.open(now);
                }
            }
            // Ignored, because this call was sent before the breaker opened.
            State::Resting { until, .. } if now < *until => (),
            State::Resting { .. } if failed => self.open(now),
            State::Resting { successes, .. } => {
                *successes += 1;
                if *successes >= SUCCESSES {
                    self.state = State::closed();
                    self.rest = self.limits.open;
                }
            }
        }
    }

    fn open(&mut self, now: Time) {
        self.state = State::Resting { until: now + self.rest, successes: 0 };
        self.rest = (self.rest * 2).min(self.limits.open_max);
    }
}

impl State {
    fn closed() -> Self {
        Self::Closed { slots: VecDeque::new() }
    }
}

/// Counts a call in the current slot and drops slots that are older than the window.
fn note(slots: &mut VecDeque<Slot>, limits: &BreakerLimits, now: Time, failed: bool) {
    let width = limits.window / SLOTS;
    slots.retain(|slot| now.since(slot.began) < limits.window);
    if slots.back().is_none_or(|last| now.since(last.began) >= width) {
        slots.push_back(Slot { began: now, calls: 0, failed: 0 });
    }
    if let Some(slot) = slots.back_mut() {
        slot.calls = slot.calls.saturating_add(1);
        slot.failed = slot.failed.saturating_add(u32::from(failed));
    }
}

fn too_many_failed(slots: &VecDeque<Slot>, limits: &BreakerLimits) -> bool {
    let (calls, failed) = slots.iter().fold((0_u32, 0_u32), |(calls, failed), slot| {
        (calls.saturating_add(slot.calls), failed.saturating_add(slot.failed))
    });
    failed > 0 && calls >= limits.min_calls && f64::from(failed) >= limits.failure_ratio * f64::from(calls)
}

/// The circuit breaker of the credentials, which covers all calls of the account.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CredentialBreaker {
    /// Set while the credentials are rejected: the next self-check may be sent at this time.
    retry_at: Option<Time>,
}

impl CredentialBreaker {
    pub(crate) fn self_check(&mut self, now: Time, passed: bool) {
        self.retry_at = (!passed).then(|| now + CREDENTIALS_REST);
    }

    /// Records that a self-check was sent. While the credentials are rejected, the next self-check waits for the full interval, even if
    /// this self-check returns earlier.
    pub(crate) fn sent(&mut self, now: Time) {
        self.retry_at = self.retry_at.map(|_| now + CREDENTIALS_REST);
    }

    /// Whether a call may be sent. While the credentials are rejected, only self-checks may be sent, at long intervals.
    pub(crate) fn admits(&self, now: Time, is_self_check: bool) -> bool {
        self.retry_at.is_none_or(|retry_at| is_self_check && now >= retry_at)
    }

    pub(crate) fn state(&self, now: Time) -> BreakerState {
        match self.retry_at {
            None => BreakerState::Closed,
            Some(retry_at) if now < retry_at => BreakerState::Open { retry_at },
            Some(_) => BreakerState::HalfOpen,
        }
    }
}
