//! What the vendor's own count tells about others that spend of the same limit: people, other clusters, other tools.

use std::time::Duration;

use crate::{Hint, Time};

/// The shortest time that is measured: over less, calls under way and rounded headers are all that one sees.
const SPAN: Duration = Duration::from_secs(5);
/// How much a new measurement counts against all before it.
const SMOOTHING: f64 = 0.5;
/// A measurement older than this says nothing any more.
const FORGOTTEN: Duration = Duration::from_mins(1);
/// Vendors round the time of the reset to seconds.
const ROUNDING: Duration = Duration::from_secs(1);

/// The vendor's count, followed from hint to hint.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct VendorCount {
    /// Where the running measurement began.
    began: Option<Reading>,
    foreign_rate: f64,
}

#[derive(Clone, Copy, Debug)]
struct Reading {
    at: Time,
    remaining: f64,
    limit: Option<f64>,
    resets_at: Option<Time>,
    /// Our own calls so far.
    sent: u64,
}

impl VendorCount {
    pub(super) fn tick(&mut self, now: Time) {
        if self.began.is_some_and(|began| now.since(began.at) >= FORGOTTEN) {
            *self = Self::default();
        }
    }

    /// Takes a hint in. `ceiling`: calls a second that a bucket of the vendor's gets back.
    pub(super) fn told(&mut self, now: Time, hint: &Hint, sent: u64, ceiling: f64) {
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

    /// Calls a second that others spend.
    pub(super) fn foreign_rate(&self) -> f64 {
        self.foreign_rate
    }
}

impl Reading {
    /// What would remain by `later` if nobody but us called. `None`: a new window has begun in between.
    ///
    /// A window keeps its end, so nothing comes back within it. A bucket's end (when it is full again) moves along with
    /// time, and it gets back what is configured, as long as it is not full.
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

/// A count of calls as a number to reckon with.
#[expect(clippy::cast_precision_loss, reason = "exact below 2^53, and nobody counts more calls")]
pub(super) fn count(calls: u64) -> f64 {
    calls as f64
}
