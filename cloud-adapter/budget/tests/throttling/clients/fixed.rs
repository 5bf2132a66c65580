//! A static rate, as a user would configure it. A throttled call is queued again.

use cloud_budget::Time;

use crate::{CallerAction, Client, Verdict, pace::Pace};

#[derive(Debug)]
pub(crate) struct Fixed(Pace);

impl Fixed {
    pub(crate) fn new(rate: f64, burst: f64) -> Self {
        Self(Pace::new(rate, burst))
    }
}

impl Client for Fixed {
    fn next(&mut self, now: Time) -> CallerAction {
        if self.0.take(now) { CallerAction::Send(0) } else { CallerAction::Wait(Some(now + self.0.wait())) }
    }

    fn answered(&mut self, _: Time, _: u64, _: &Verdict) {}
}
