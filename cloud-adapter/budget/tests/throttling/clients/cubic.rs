//! The rate limiter of the AWS SDKs' adaptive retry mode: CUBIC with beta 0.7 and scale 0.4 over a measured rate. Source: "Retry behavior"
//! in the AWS SDKs and tools reference guide, and the SDKs' description of this mode.

use cloud_budget::Time;

use crate::{CallerAction, Client, Verdict, pace::Pace};

const BETA: f64 = 0.7;
const SCALE: f64 = 0.4;
/// Weight of the last half second in the measured rate.
const SMOOTHING: f64 = 0.8;
/// Lowest rate, in calls per second.
const FLOOR: f64 = 0.5;

/// A client with CUBIC. Until the first throttle, only the ceiling limits the rate.
#[derive(Debug)]
pub(crate) struct Cubic {
    pace: Pace,
    ceiling: f64,
    /// The rate at the last throttle, and the time of that throttle.
    last_max: f64,
    throttled_at: Option<Time>,
    /// Number of calls in the current half second, the number of that half second, and the measured rate.
    calls: f64,
    half_second: f64,
    measured: f64,
}

impl Cubic {
    /// Creates a limiter with this maximum rate, and with this burst before the first throttle.
    pub(crate) fn new(ceiling: f64, burst: f64) -> Self {
        Self {
            pace: Pace::new(ceiling, burst),
            ceiling,
            last_max: 0.0,
            throttled_at: None,
            calls: 0.0,
            half_second: 0.0,
            measured: 0.0,
        }
    }

    fn measure(&mut self, now: Time) {
        let half_second = (now.since(Time::ZERO).as_secs_f64() * 2.0).floor() / 2.0;
        self.calls += 1.0;
        if half_second > self.half_second {
            let rate = self.calls / (half_second - self.half_second);
            self.measured = rate * SMOOTHING + self.measured * (1.0 - SMOOTHING);
            (self.calls, self.half_second) = (0.0, half_second);
        }
    }

    /// The rate after an answer. `None`: there has been no throttle yet.
    fn calculate(&mut self, now: Time, throttled: bool) -> Option<f64> {
        if throttled {
            let rate = match self.throttled_at {
                Some(_) => self.measured.min(self.pace.rate),
                None => self.measured,
            };
            self.last_max = rate;
            self.throttled_at = Some(now);
            return Some(rate * BETA);
        }
        let elapsed = now.since(self.throttled_at?).as_secs_f64();
        let window = (self.last_max * (1.0 - BETA) / SCALE).cbrt();
        Some(SCALE * (elapsed - window).powi(3) + self.last_max)
    }
}

impl Client for Cubic {
    fn next(&mut self, now: Time) -> CallerAction {
        if self.pace.take(now) {
            CallerAction::Send(0)
        } else {
            CallerAction::Wait(Some(now + self.pace.wait()))
        }
    }

    fn answered(&mut self, now: Time, _: u64, verdict: &Verdict) {
        self.measure(now);
        if let Some(calculated) = self.calculate(now, verdict.throttled) {
            self.pace.tick(now);
            self.pace.rate = calculated.min(2.0 * self.measured).clamp(FLOOR, self.ceiling);
            self.pace.burst = self.pace.rate.max(1.0);
            self.pace.tokens = self.pace.tokens.min(self.pace.burst);
        }
    }
}
