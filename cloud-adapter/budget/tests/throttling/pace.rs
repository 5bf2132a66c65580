//! A plain token bucket, for the model vendor and for clients without the budget.

use std::time::Duration;

use cloud_budget::Time;

#[derive(Clone, Debug)]
pub(crate) struct Pace {
    pub(crate) rate: f64,
    pub(crate) burst: f64,
    pub(crate) tokens: f64,
    at: Time,
}

/// Tolerance for rounding errors, as a fraction of a token.
const DUST: f64 = 1e-6;

impl Pace {
    pub(crate) fn new(rate: f64, burst: f64) -> Self {
        Self { rate, burst, tokens: burst, at: Time::ZERO }
    }

    pub(crate) fn tick(&mut self, now: Time) {
        self.tokens = (self.tokens + self.rate * now.since(self.at).as_secs_f64()).min(self.burst);
        self.at = self.at.max(now);
    }

    pub(crate) fn take(&mut self, now: Time) -> bool {
        self.tick(now);
        let there = self.tokens >= 1.0 - DUST;
        if there {
            self.tokens -= 1.0;
        }
        there
    }

    /// Time until a token is available, as of the last tick.
    pub(crate) fn wait(&self) -> Duration {
        Duration::from_secs_f64(((1.0 - self.tokens) / self.rate).max(0.0)) + Duration::from_nanos(1)
    }
}
