//! A plain token bucket, as the model vendor has one and the clients that are not ours.

use std::time::Duration;

use cloud_budget::Time;

/// Tokens that come back at a rate, up to a burst.
#[derive(Clone, Debug)]
pub(crate) struct Pace {
    pub(crate) rate: f64,
    pub(crate) burst: f64,
    pub(crate) tokens: f64,
    at: Time,
}

/// Less than this of a token is missing only because numbers are rounded.
const DUST: f64 = 1e-6;

impl Pace {
    /// A full one.
    pub(crate) fn new(rate: f64, burst: f64) -> Self {
        Self { rate, burst, tokens: burst, at: Time::ZERO }
    }

    pub(crate) fn tick(&mut self, now: Time) {
        self.tokens = (self.tokens + self.rate * now.since(self.at).as_secs_f64()).min(self.burst);
        self.at = self.at.max(now);
    }

    /// Takes a token, if there is one.
    pub(crate) fn take(&mut self, now: Time) -> bool {
        self.tick(now);
        let there = self.tokens >= 1.0 - DUST;
        if there {
            self.tokens -= 1.0;
        }
        there
    }

    /// How long until there is a token, as of the last tick.
    pub(crate) fn wait(&self) -> Duration {
        Duration::from_secs_f64(((1.0 - self.tokens) / self.rate).max(0.0)) + Duration::from_nanos(1)
    }
}
