//! A token bucket in integer nanoseconds whose rate and size may change at any time. Source: the generic cell rate
//! algorithm, ITU-T I.371, as virtual scheduling.
//!
//! Never creates a token: a higher rate only fills faster from then on, and a larger burst has to be filled first. So in
//! any window calls <= largest burst in it + integral of the rate over it.

use crate::Time;

/// A slower rate counts as this one: a call a day.
const INTERVAL_MAX: u64 = 86_400 * SECOND;
const SECOND: u64 = 1_000_000_000;

/// The tokens of one bucket.
#[derive(Clone, Debug)]
pub(crate) struct Gcra {
    /// Nanoseconds from one token to the next, rounded up.
    interval: u64,
    burst: u64,
    /// When it is full again; in the past: it is.
    full_at: u64,
}

impl Gcra {
    /// A bucket that is full.
    pub(crate) fn full(rate: f64, burst: u64) -> Self {
        Self { interval: interval(rate), burst: burst.max(1), full_at: 0 }
    }

    /// Tokens that are there; below zero: the bucket owes them.
    pub(crate) fn tokens(&self, now: Time) -> f64 {
        let missing = self.full_at.saturating_sub(now.as_nanos());
        self.burst as f64 - missing as f64 / self.interval as f64
    }

    /// Nanoseconds from one token to the next.
    pub(crate) fn interval(&self) -> u64 {
        self.interval
    }

    pub(crate) fn burst(&self) -> u64 {
        self.burst
    }

    /// When one call for that many tokens may go; in the past: it may. One that is larger than the bucket waits beside the
    /// full bucket for as long as the rest takes, and leaves a debt.
    pub(crate) fn ready_at(&self, tokens: u64) -> Time {
        let missing = self.burst.saturating_sub(tokens).saturating_mul(self.interval);
        let beyond = tokens.saturating_sub(self.burst).saturating_mul(self.interval);
        Time::from_nanos(self.full_at.saturating_sub(missing).saturating_add(beyond))
    }

    /// When that many tokens, for several calls, will have come; in the past: they are there.
    pub(crate) fn all_at(&self, now: Time, tokens: u64) -> Time {
        if tokens <= self.burst {
            return self.ready_at(tokens);
        }
        let beyond = (tokens - self.burst).saturating_mul(self.interval);
        Time::from_nanos(self.full_at.max(now.as_nanos()).saturating_add(beyond))
    }

    /// Takes tokens, whether they are there or not.
    pub(crate) fn take(&mut self, now: Time, tokens: u64) {
        let from = self.full_at.max(now.as_nanos());
        self.full_at = from.saturating_add(tokens.saturating_mul(self.interval));
    }

    /// At most that many tokens are there.
    pub(crate) fn cap(&mut self, now: Time, tokens: f64) {
        let missing = (self.burst as f64 - tokens).max(0.0) * self.interval as f64;
        self.full_at = self.full_at.max(now.as_nanos().saturating_add(whole(missing.ceil())));
    }

    /// Another rate and burst. Keeps the tokens, as far as they fit.
    pub(crate) fn configure(&mut self, now: Time, rate: f64, burst: u64) {
        let (new_interval, new_burst) = (interval(rate), burst.max(1));
        if (new_interval, new_burst) == (self.interval, self.burst) {
            return;
        }
        let missing = u128::from(self.full_at.saturating_sub(now.as_nanos()));
        let missing = (missing * u128::from(new_interval)).div_ceil(u128::from(self.interval));
        let grown = u128::from(new_burst.saturating_sub(self.burst)) * u128::from(new_interval);
        let shrunk = u128::from(self.burst.saturating_sub(new_burst)) * u128::from(new_interval);
        let missing = u64::try_from((missing + grown).saturating_sub(shrunk)).unwrap_or(u64::MAX);
        self.interval = new_interval;
        self.burst = new_burst;
        self.full_at = now.as_nanos().saturating_add(missing);
    }
}

/// Rounded up, so that the rate is never exceeded.
fn interval(rate: f64) -> u64 {
    if rate > 0.0 { whole((SECOND as f64 / rate).ceil()).clamp(1, INTERVAL_MAX) } else { INTERVAL_MAX }
}

/// The whole part; 0 below zero, the largest number beyond it.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "`as` saturates, which is what is meant"
)]
pub(crate) fn whole(number: f64) -> u64 {
    number as u64
}
