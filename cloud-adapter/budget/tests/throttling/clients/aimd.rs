//! Additive increase, multiplicative decrease (AIMD) without memory. This client runs into the limit repeatedly.

use cloud_budget::Time;

use crate::{CallerAction, Client, Verdict, pace::Pace};

/// Factor by which a throttle reduces the rate.
const DECREASE: f64 = 0.7;
/// Share of the ceiling that is regained each second.
const INCREASE: f64 = 0.02;
/// Lowest rate, in calls per second.
const FLOOR: f64 = 0.2;

#[derive(Debug)]
pub(crate) struct Aimd {
    pace: Pace,
    ceiling: f64,
    at: Time,
}

impl Aimd {
    pub(crate) fn new(ceiling: f64, burst: f64) -> Self {
        Self { pace: Pace::new(ceiling, burst), ceiling, at: Time::ZERO }
    }

    fn climb(&mut self, now: Time) {
        self.pace.tick(now);
        let more = INCREASE * self.ceiling * now.since(self.at).as_secs_f64();
        self.pace.rate = (self.pace.rate + more).min(self.ceiling);
        self.at = now;
    }
}

impl Client for Aimd {
    fn next(&mut self, now: Time) -> CallerAction {
        self.climb(now);
        if self.pace.take(now) {
            CallerAction::Send(0)
        } else {
            CallerAction::Wait(Some(now + self.pace.wait()))
        }
    }

    fn answered(&mut self, now: Time, _: u64, verdict: &Verdict) {
        self.climb(now);
        if verdict.throttled {
            self.pace.rate = (self.pace.rate * DECREASE).max(FLOOR);
            self.pace.tokens = self.pace.tokens.min(0.0);
        }
    }
}
