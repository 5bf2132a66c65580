//! A token bucket in integer nanoseconds whose rate and size may change at any time. Source: the generic cell rate algorithm (virtual
//! scheduling), ITU-T I.371.
//!
//! A change never creates tokens: a higher rate only fills the bucket faster afterwards, and a larger burst starts unfilled. So any window
//! contains at most as many calls as the largest burst in the window plus the integral of the rate over the window.

use crate::Time;

/// Lowest rate: one call per day. Slower rates are raised to this rate.
const INTERVAL_MAX: u64 = 86_400 * SECOND;
const SECOND: u64 = 1_000_000_000;

#[derive(Clone, Debug)]
pub(crate) struct Gcra {
    /// Nanoseconds between two tokens, rounded up.
    interval: u64,
    burst: u64,
    /// Time at which the bucket is full; in the past if the bucket is full now.
    full_at: u64,
}

impl Gcra {
    pub(crate) fn full(rate: f64, burst: u64) -> Self {
        Self { interval: interval(rate), burst: burst.max(1), full_at: 0 }
    }

    /// Available tokens; negative if the bucket is in debt.
    pub(crate) fn tokens(&self, now: Time) -> f64 {
        let missing = self.full_at.saturating_sub(now.as_nanos());
        self.burst as f64 - missing as f64 / self.interval as f64
    }

    pub(crate) fn interval(&self) -> u64 {
        self.interval
    }

    pub(crate) fn burst(&self) -> u64 {
        self.burst
    }

    /// Time at which a call of this cost may be sent; in the past if it may be sent now. A call that exceeds the burst waits until the
    /// bucket is full, plus the time for the excess tokens, and leaves the bucket in debt.
    pub(crate) fn ready_at(&self, tokens: u64) -> Time {
        let missing = self.burst.saturating_sub(tokens).saturating_mul(self.interval);
        let beyond = tokens.saturating_sub(self.burst).saturating_mul(self.interval);
        Time::from_nanos(self.full_at.saturating_sub(missing).saturating_add(beyond))
    }

    /// Time by which this many tokens, for several calls, will have been available; in the past if they are available now.
    pub(crate) fn all_at(&self, now: Time, tokens: u64) -> Time {
        if tokens <= self.burst {
            return self.ready_at(tokens);
        }
        let beyond = (tokens - self.burst).saturating_mul(self.interval);
        Time::from_nanos(self.full_at.max(now.as_nanos()).saturating_add(beyond))
    }

    /// Takes tokens. If not all of them are available, the bucket is then in debt.
    pub(crate) fn take(&mut self, now: Time, tokens: u64) {
        let from = self.full_at.max(now.as_nanos());
        self.full_at = from.saturating_add(tokens.saturating_mul(self.interval));
    }

    pub(crate) fn cap(&mut self, now: Time, tokens: f64) {
        let missing = (self.burst as f64 - tokens).max(0.0) * self.interval as f64;
        self.full_at = self.full_at.max(now.as_nanos().saturating_add(whole(missing.ceil())));
    }

    /// Sets the rate and burst. Tokens that exceed the new burst are dropped.
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

/// Interval between tokens, rounded up so that the rate is never exceeded.
fn interval(rate: f64) -> u64 {
    if rate > 0.0 { whole((SECOND as f64 / rate).ceil()).clamp(1, INTERVAL_MAX) } else { INTERVAL_MAX }
}

/// The whole part, clamped to the range of `u64`.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "`as` saturates, as intended here"
)]
pub(crate) fn whole(number: f64) -> u64 {
    number as u64
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::{prop, proptest};

    use super::*;

    fn at(seconds: f64) -> Time {
        Time::ZERO + Duration::from_secs_f64(seconds)
    }

    fn spend(gcra: &mut Gcra, now: Time) -> u32 {
        let mut spent = 0;
        while gcra.ready_at(1) <= now {
            gcra.take(now, 1);
            spent += 1;
        }
        spent
    }

    #[test]
    fn another_rate_keeps_the_tokens_and_another_burst_adds_none() {
        let mut gcra = Gcra::full(10.0, 20);
        gcra.take(at(0.0), 15);
        for (rate, burst, tokens) in [(1.0, 20, 5.0), (100.0, 20, 5.0), (100.0, 50, 5.0), (100.0, 3, 3.0)] {
            gcra.configure(at(0.0), rate, burst);
            let there = gcra.tokens(at(0.0));
            assert!(
                there <= tokens && there > tokens - 0.001,
                "{there} of {tokens} tokens at {rate}/s, burst {burst}"
            );
        }
        assert_eq!(spend(&mut gcra, at(0.0)), 3);
    }

    #[test]
    fn a_clock_that_jumps_fills_the_bucket_and_no_more() {
        let mut gcra = Gcra::full(10.0, 20);
        assert_eq!(spend(&mut gcra, at(0.0)), 20);
        assert_eq!(spend(&mut gcra, Time::from_nanos(u64::MAX / 2)), 20);
    }

    #[test]
    fn a_call_larger_than_the_bucket_waits_until_it_is_paid_for() {
        let mut gcra = Gcra::full(1.0, 2);
        gcra.take(at(10.0), 2);
        assert_eq!(gcra.ready_at(5), at(15.0));
        gcra.take(at(15.0), 5);
        assert_eq!(gcra.ready_at(1), at(19.0), "a debt of three tokens");
    }

    proptest! {
        /// Property P1 for one bucket: its limit holds even if rate and burst change.
        #[test]
        fn no_window_exceeds_burst_and_rate(
            steps in prop::collection::vec((0_u64..2_000_000_000, 0.2..100.0_f64, 1_u64..50, 0..4_u8), 1..200)
        ) {
            let (mut now, mut rate, mut burst) = (0, 10.0, 20);
            let mut gcra = Gcra::full(rate, burst);
            // Number of tokens that may still be spent in each window. A window begins at each step.
            let mut windows = vec![20.0_f64];
            for (pass, new_rate, new_burst, what) in steps {
                now += pass;
                for window in &mut windows {
                    *window += rate * pass as f64 / 1e9;
                }
                windows.push(burst as f64);
                if what == 0 {
                    gcra.configure(Time::from_nanos(now), new_rate, new_burst);
                    (rate, burst) = (new_rate, new_burst);
                    windows.push(burst as f64);
                } else {
                    let spent = f64::from(spend(&mut gcra, Time::from_nanos(now)));
                    windows.iter_mut().for_each(|window| *window -= spent);
                }
                assert!(windows.iter().all(|left| *left > -1e-6), "{windows:?}");
            }
        }
    }
}
