//! A rate that somebody once wrote into a configuration. A throttled call is sent again in its turn.

use cloud_budget::Time;

use crate::{Client, Next, Verdict, pace::Pace};

/// A static limiter.
#[derive(Debug)]
pub struct Fixed(Pace);

impl Fixed {
    /// So many calls a second, and so many at once.
    #[must_use]
    pub fn new(rate: f64, burst: f64) -> Self {
        Self(Pace::new(rate, burst))
    }
}

impl Client for Fixed {
    fn next(&mut self, now: Time) -> Next {
        if self.0.take(now) { Next::Send(0) } else { Next::Wait(Some(now + self.0.wait())) }
    }

    fn answered(&mut self, _: Time, _: u64, _: &Verdict) {}
}
