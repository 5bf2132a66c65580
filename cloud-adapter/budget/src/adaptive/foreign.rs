//! Estimates from the vendor's own count how much of the limit other clients use: users, other clusters, other tools.

use std::time::Duration;

use crate::{Hint, Time};

/// Shortest interval that is measured. In shorter intervals, calls in flight and rounded headers distort the result.
const SPAN: Duration = Duration::from_secs(5);
/// Weight of a new measurement relative to all earlier ones.
const SMOOTHING: f64 = 0.5;
/// Age at which a measurement is discarded.
const FORGOTTEN: Duration = Duration::from_mins(1);
/// Rounding error of the reset time, which vendors round to seconds.
const ROUNDING: Duration = Duration::from_secs(1);

/// The vendor's count, followed from one hint to the next.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct VendorCount {
    began: Option<Reading>,
    foreign_rate: f64,
}

#[derive(Clone, Copy, Debug)]
struct Reading {
    at: Time,
    remaining: f64,
    limit: Option<f64>,
    resets_at: Option<Time>,
    /// Number of calls that this client has sent so far.
    sent: u64,
}

impl VendorCount {
    pub(super) fn tick(&mut self, now: Time) {
        if self.began.is_some_and(|began| now.since(began.at) >= FORGOTTEN) {
            *self = Self::default();
        }
    }

    /// Adds a hint. `ceiling` is the number of calls per second that the vendor's bucket regains.
    pub(super) fn observe(&mut self, now: Time, hint: &Hint, sent: u64, ceiling: f64) {
        let reading = Reading {
            at: now,
            remaining: count(hint.remaining),
            limit: hint.limit.map(count),
            resets_at: hint.reset.map(|reset| now + reset),
            sent,
        };
        let Some(began) = self.began else {
            self.began = Some(reading);
            return;
        };
        let span = now.since(began.at);
        if span < SPAN {
            return;
        }
        self.began = Some(reading);
        if let Some(expected) = began.expected(&reading, ceiling) {
            let measured = ((expected - reading.remaining) / span.as_secs_f64()).max(0.0);
            self.foreign_rate += SMOOTHING * (measured - self.foreign_rate);
        }
    }

    pub(super) fn foreign_rate(&self) -> f64 {
        self.foreign_rate
    }
}

impl Reading {
    /// Number of calls that would remain at `later` if no other client made calls. `None`: a new window began in between.
    ///
    /// A window has a fixed end, and the vendor adds no calls before that end. A bucket instead regains calls at the configured rate, so
    /// the time at which it is full moves.
    fn expected(&self, later: &Self, ceiling: f64) -> Option<f64> {
        let span = later.at.since(self.at);
        let moved = match (self.resets_at, later.resets_at) {
            (Some(before), Some(after)) => after.since(before),
            _ => Duration::ZERO,
        };
        let own = count(later.sent.saturating_sub(self.sent));
        if moved <= span / 2 {
            return Some(self.remaining - own);
        }
        let full = self.limit.filter(|_| moved <= span + ROUNDING)?;
        Some((self.remaining + ceiling * span.as_secs_f64()).min(full) - own)
    }
}

#[expect(clippy::cast_precision_loss, reason = "exact below 2^53, which no count of calls reaches")]
pub(super) fn count(calls: u64) -> f64 {
    calls as f64
}
