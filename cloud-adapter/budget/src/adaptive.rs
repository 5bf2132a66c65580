//! A rate that adapts to the vendor's limit. When the vendor throttles, the rate falls, and this module remembers the rate that was too
//! high (the knee). The rate then recovers to just below the knee, stays there for minutes (the plateau), and rises slowly after that to
//! test whether the limit has risen (exploration). A client without this memory would reach the limit several times a minute.
//!
//! This module holds no tokens and queues no calls; the bucket that owns the rate does both.

mod foreign;
#[cfg(test)]
mod tests;

use std::time::Duration;

use self::foreign::VendorCount;
use crate::{Adaptive, Hint, Time};

/// Share of the ceiling that the rate regains per second below the knee.
const RECOVERY: f64 = 0.02;
/// Share of the ceiling that the rate gains per second above the plateau. The rise is slow because each overshoot costs a throttled call.
const EXPLORATION: f64 = 0.002;
/// Rate of the plateau, as a fraction of the knee.
const PLATEAU: f64 = 0.9;
/// If the rate reaches this multiple of the knee without a throttle, the vendor's limit must have risen. The knee is then cleared and
/// recovery resumes. Exploration alone would take 8 minutes from the floor to the ceiling. Below this multiple, a burst allowance of the
/// vendor may hide that the limit is already exceeded.
const DISPROVED: f64 = 1.5;
/// Durations of the first and of the longest plateau. Each exploration that ends with a throttle doubles the next plateau.
const PLATEAU_FIRST: Duration = Duration::from_mins(1);
const PLATEAU_MAX: Duration = Duration::from_mins(10);
/// Share of the burst that may be used while a knee is known, because a full burst would exceed the limit at once.
const BURST: f64 = 0.25;
/// Longest pause that the vendor may request, and longest pause that the client chooses itself.
const ASKED_PAUSE_MAX: Duration = Duration::from_mins(15);
const OWN_PAUSE_MAX: Duration = Duration::from_mins(1);
/// Maximum jitter of a pause, as a share of the pause. Jitter prevents clients that were throttled together from returning together.
const JITTER: f64 = 0.2;

#[derive(Clone, Debug)]
pub(crate) struct Follower {
    ceiling: f64,
    /// `None`: the rate is fixed, but the client still pauses when the vendor requests a pause.
    adaptive: Option<Adaptive>,
    /// Calls per second before the share of other clients is subtracted.
    rate: f64,
    /// The rate at which the vendor last throttled.
    knee: Option<f64>,
    climb: RatePhase,
    plateau: Duration,
    pass: Pass,
    /// Number of throttles since the last success.
    throttles: u32,
    vendor: VendorCount,
    /// Time up to which the rate has been advanced.
    at: Time,
}

#[derive(Clone, Copy, Debug)]
enum RatePhase {
    Done,
    /// The rate returns to just below the knee.
    Recovering,
    /// The rate stays just below the knee.
    Plateau {
        until: Time,
    },
    /// The rate rises slowly above the plateau.
    Exploring,
}

/// Whether calls may be sent. All states except `Open` belong to one throttling episode; the rate does not rise during an episode.
#[derive(Clone, Copy, Debug)]
enum Pass {
    Open,
    Paused { until: Time },
    Probing,
}

impl Follower {
    pub(crate) fn new(ceiling: f64, adaptive: Option<Adaptive>) -> Self {
        Self {
            ceiling,
            adaptive,
            rate: ceiling,
            knee: None,
            climb: RatePhase::Done,
            plateau: PLATEAU_FIRST,
            pass: Pass::Open,
            throttles: 0,
            vendor: VendorCount::default(),
            at: Time::ZERO,
        }
    }

    /// Calls per second that may be sent as of the last tick: above 0 and at most the ceiling.
    pub(crate) fn rate(&self) -> f64 {
        match self.adaptive {
            Some(adaptive) => (self.rate - self.vendor.foreign_rate()).max(adaptive.floor).min(self.ceiling),
            None => self.ceiling,
        }
    }

    /// Advances to `now`: ends pauses and raises the rate. The result does not depend on how often this method is called.
    pub(crate) fn tick(&mut self, now: Time) {
        let from = self.at;
        self.at = from.max(now);
        self.vendor.tick(now);
        match self.pass {
            Pass::Open => self.climb(from, now),
            Pass::Paused { until } if now >= until => self.pass = Pass::Probing,
            Pass::Paused { .. } | Pass::Probing => (),
        }
    }

    /// Records a throttled call. `jitter` is between 0 and 1. Returns true for the first throttle of an episode, after which the caller
    /// must empty the bucket.
    pub(crate) fn throttled(&mut self, now: Time, retry_after: Option<Duration>, jitter: f64) -> bool {
        self.tick(now);
        match self.pass {
            Pass::Open => {
                self.slow_down();
                self.pause(now, retry_after, jitter);
                true
            }
            Pass::Probing => {
                self.pause(now, retry_after, jitter);
                false
            }
            // The call was sent before the pause, so its throttle adds no information unless the vendor now requests a longer pause.
            Pass::Paused { until } => {
                let asked = retry_after.map_or(until, |asked| now + asked_pause(asked, jitter));
                self.pass = Pass::Paused { until: until.max(asked) };
                false
            }
        }
    }

    /// Records an answered call, which ends the episode. During a pause the episode goes on, because the call was sent before the pause.
    pub(crate) fn succeeded(&mut self, now: Time) {
        if matches!(self.pass, Pass::Open) {
            return;
        }
        self.tick(now);
        if matches!(self.pass, Pass::Probing) {
            self.pass = Pass::Open;
            self.throttles = 0;
        }
    }

    /// End of the pause as of the last tick; no call is sent before that time.
    pub(crate) fn paused_until(&self) -> Option<Time> {
        match self.pass {
            Pass::Paused { until } => Some(until),
            Pass::Open | Pass::Probing => None,
        }
    }

    /// Whether, as of the last tick, a pause is over and no call has been answered since. In this state only one call at a time is sent.
    pub(crate) fn probing(&self) -> bool {
        matches!(self.pass, Pass::Probing)
    }

    /// Share of the configured burst that may be used now.
    pub(crate) fn burst_share(&self) -> f64 {
        if self.knee.is_some() { BURST } else { 1.0 }
    }

    /// The rate at which the vendor last throttled. Cleared when the rate, without a throttle, clearly exceeds the knee or reaches the
    /// ceiling.
    pub(crate) fn knee(&self) -> Option<f64> {
        self.knee
    }

    /// Applies the count that the vendor reported; `sent` is the number of calls of this bucket so far. Returns the maximum number of
    /// tokens that the bucket may hold: the remaining calls minus the share `free_floor` of the limit. If fewer calls remain than that
    /// share, the result is negative. The debt is at most the number of tokens that the bucket regains until the vendor resets its count.
    pub(crate) fn hint(&mut self, now: Time, hint: &Hint, free_floor: f64, sent: u64) -> f64 {
        self.tick(now);
        self.vendor.observe(now, hint, sent, self.ceiling);
        let remaining = foreign::count(hint.remaining);
        let kept = free_floor * hint.limit.map_or(remaining, foreign::count);
        let comes_back = hint.reset.unwrap_or_default().as_secs_f64() * self.rate();
        (remaining - kept).max(-comes_back)
    }

    /// Calls per second that other clients make under the same limit, derived from the vendor's count; 0 if the vendor reports no count.
    pub(crate) fn foreign_rate(&self) -> f64 {
        self.vendor.foreign_rate()
    }

    /// Applies new settings. A current pause, and a current recovery below a knee, continue.
    pub(crate) fn configure(&mut self, ceiling: f64, adaptive: Option<Adaptive>) {
        self.ceiling = ceiling;
        self.adaptive = adaptive;
        let above = matches!(self.climb, RatePhase::Done) || self.rate >= ceiling;
        if above || adaptive.is_none() {
            self.forget();
        }
    }

    /// Lowers the rate at the first throttle of an episode.
    fn slow_down(&mut self) {
        let Some(adaptive) = self.adaptive else { return };
        if matches!(self.climb, RatePhase::Exploring) {
            self.plateau = (self.plateau * 2).min(PLATEAU_MAX);
        }
        self.knee = Some(self.knee.map_or(self.rate, |knee| f64::midpoint(knee, self.rate)));
        self.rate = (self.rate * adaptive.decrease).max(adaptive.floor).min(self.ceiling);
        self.climb = RatePhase::Recovering;
    }

    fn pause(&mut self, now: Time, retry_after: Option<Duration>, jitter: f64) {
        let own = Duration::from_secs(1 << self.throttles.min(6)).min(OWN_PAUSE_MAX);
        self.throttles = self.throttles.saturating_add(1);
        let pause = retry_after.map_or(own, |asked| asked_pause(asked, jitter));
        self.pass = Pass::Paused { until: now + pause };
    }

    /// Advances recovery, plateau and exploration from `from` to `now`, through all phases that end in this time.
    fn climb(&mut self, mut from: Time, now: Time) {
        while from < now {
            match self.climb {
                RatePhase::Done => return,
                RatePhase::Recovering => {
                    let target = self.knee.map_or(self.ceiling, |knee| (knee * PLATEAU).min(self.ceiling));
                    from = self.raise(RECOVERY, target, from, now);
                    if self.rate >= target {
                        self.climb = RatePhase::Plateau { until: from + self.plateau };
                    }
                }
                RatePhase::Plateau { until } if until > now => return,
                RatePhase::Plateau { until } => {
                    from = until;
                    self.climb = RatePhase::Exploring;
                }
                RatePhase::Exploring => {
                    let target = self.knee.map_or(self.ceiling, |knee| (knee * DISPROVED).min(self.ceiling));
                    from = self.raise(EXPLORATION, target, from, now);
                    if self.rate >= target {
                        self.knee = None;
                        self.climb = RatePhase::Recovering;
                    }
                }
            }
            if self.rate >= self.ceiling {
                self.forget();
            }
        }
    }

    /// Raises the rate by `share` of the ceiling per second until `now` or until the rate reaches `target`. Returns the end of the rise.
    fn raise(&mut self, share: f64, target: f64, from: Time, now: Time) -> Time {
        let (slope, seconds) = (share * self.ceiling, now.since(from).as_secs_f64());
        let needed = (target - self.rate).max(0.0) / slope;
        if needed > seconds {
            self.rate += slope * seconds;
            return now;
        }
        self.rate = self.rate.max(target);
        (from + Duration::try_from_secs_f64(needed).unwrap_or_default()).min(now)
    }

    fn forget(&mut self) {
        self.rate = self.ceiling;
        self.knee = None;
        self.climb = RatePhase::Done;
        self.plateau = PLATEAU_FIRST;
    }
}

/// The pause that the vendor requested, plus jitter, but at most [`ASKED_PAUSE_MAX`]. The jitter only lengthens the pause.
fn asked_pause(asked: Duration, jitter: f64) -> Duration {
    let asked = asked.min(ASKED_PAUSE_MAX);
    (asked + asked.mul_f64(JITTER * jitter.clamp(0.0, 1.0))).min(ASKED_PAUSE_MAX)
}
