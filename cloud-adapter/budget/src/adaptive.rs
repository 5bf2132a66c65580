//! A rate that follows the vendor: it falls when the vendor throttles, remembers where that was (the knee), comes back to
//! just below it, and only now and then looks whether more is allowed. Additive increase, multiplicative decrease with a
//! memory: a saturated client that only ever climbs runs into the limit several times a minute.
//!
//! It holds no tokens and queues nothing: the bucket that it belongs to does.

mod foreign;
#[cfg(test)]
mod tests;

use std::time::Duration;

use self::foreign::VendorCount;
use crate::{Adaptive, Hint, Time};

/// Part of the ceiling that comes back each second below the knee.
const RECOVERY: f64 = 0.02;
/// Part of the ceiling that is added each second beyond the plateau: slow, since each mistake is a throttle.
const EXPLORATION: f64 = 0.002;
/// Where the plateau lies, as part of the knee.
const PLATEAU: f64 = 0.9;
/// A rate of so many times the knee without a throttle disproves it: the vendor allows more than it did, and recovery goes on.
/// Exploration alone would take 8 minutes from the floor to the ceiling. Below it a vendor's burst may hide that its rate is
/// exceeded already.
const DISPROVED: f64 = 1.5;
/// The first plateau, and the longest: each exploration that met a throttle doubles the next one.
const PLATEAU_FIRST: Duration = Duration::from_mins(1);
const PLATEAU_MAX: Duration = Duration::from_mins(10);
/// Part of the burst while a knee is known: a whole one would run into it at once.
const BURST: f64 = 0.25;
/// The longest pause that a vendor may ask for, and the longest that we take without being asked.
const ASKED_PAUSE_MAX: Duration = Duration::from_mins(15);
const OWN_PAUSE_MAX: Duration = Duration::from_mins(1);
/// Part of a pause that chance may add, so that clients that were throttled together do not come back together.
const JITTER: f64 = 0.2;

/// The adaptive rate of one bucket.
#[derive(Clone, Debug)]
pub(crate) struct Follower {
    /// Calls a second that are configured.
    ceiling: f64,
    /// `None`: pauses are kept, the rate stays.
    adaptive: Option<Adaptive>,
    /// Calls a second, before what others spend is taken off.
    rate: f64,
    /// The rate at which throttling was met last.
    knee: Option<f64>,
    climb: Climb,
    /// How long the next plateau lasts.
    plateau: Duration,
    pass: Pass,
    /// Throttles since the last success.
    throttles: u32,
    vendor: VendorCount,
    /// The last tick.
    at: Time,
}

/// How the rate changes by itself.
#[derive(Clone, Copy, Debug)]
enum Climb {
    /// It does not: it is the ceiling.
    Done,
    /// Back to just below the knee.
    Recovering,
    /// Just below the knee.
    Plateau { until: Time },
    /// Slowly beyond.
    Exploring,
}

/// Whether calls pass. Everything but `Open` is one episode of throttling, in which the rate does not climb.
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
            climb: Climb::Done,
            plateau: PLATEAU_FIRST,
            pass: Pass::Open,
            throttles: 0,
            vendor: VendorCount::default(),
            at: Time::ZERO,
        }
    }

    /// Calls a second that are granted, as of the last tick: above 0, at most the ceiling.
    pub(crate) fn rate(&self) -> f64 {
        match self.adaptive {
            Some(adaptive) => (self.rate - self.vendor.foreign_rate()).max(adaptive.floor).min(self.ceiling),
            None => self.ceiling,
        }
    }

    /// Lets time pass: pauses end, the rate climbs. How often it is called does not change where it arrives.
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

    /// A call was throttled. `jitter`: chance, 0 to 1. True for the first of an episode: the bucket is to be emptied.
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
            // It was sent before the pause and says nothing new, unless the vendor now asks for more.
            Pass::Paused { until } => {
                let asked = retry_after.map_or(until, |asked| now + asked_pause(asked, jitter));
                self.pass = Pass::Paused { until: until.max(asked) };
                false
            }
        }
    }

    /// A call was answered. Ends an episode, unless the pause still lasts: then the call was sent before it.
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

    /// Nothing is sent until then, as of the last tick.
    pub(crate) fn paused_until(&self) -> Option<Time> {
        match self.pass {
            Pass::Paused { until } => Some(until),
            Pass::Open | Pass::Probing => None,
        }
    }

    /// Whether a pause is over and no call has been answered since: one call at a time, as of the last tick.
    pub(crate) fn probing(&self) -> bool {
        matches!(self.pass, Pass::Probing)
    }

    /// Part of the configured burst that may be used.
    pub(crate) fn burst_share(&self) -> f64 {
        if self.knee.is_some() { BURST } else { 1.0 }
    }

    /// The rate at which throttling was met last, until a rate well above it, or the ceiling, was reached without.
    pub(crate) fn knee(&self) -> Option<f64> {
        self.knee
    }

    /// The vendor told its own count; `sent`: calls of this bucket so far. Tokens may be at most what this returns: what
    /// remains, less `free_floor` of the limit. It is below zero if the count already is below that floor, though never
    /// by more than comes back until the vendor's count begins anew.
    pub(crate) fn hint(&mut self, now: Time, hint: &Hint, free_floor: f64, sent: u64) -> f64 {
        self.tick(now);
        self.vendor.told(now, hint, sent, self.ceiling);
        let remaining = foreign::count(hint.remaining);
        let kept = free_floor * hint.limit.map_or(remaining, foreign::count);
        let comes_back = hint.reset.unwrap_or_default().as_secs_f64() * self.rate();
        (remaining - kept).max(-comes_back)
    }

    /// Calls a second that others spend of the same limit, as the vendor's count tells; 0 if it tells none.
    pub(crate) fn foreign_rate(&self) -> f64 {
        self.vendor.foreign_rate()
    }

    /// Takes other settings over. Pauses go on, and so does the climb below a knee.
    pub(crate) fn configure(&mut self, ceiling: f64, adaptive: Option<Adaptive>) {
        self.ceiling = ceiling;
        self.adaptive = adaptive;
        let above = matches!(self.climb, Climb::Done) || self.rate >= ceiling;
        if above || adaptive.is_none() {
            self.forget();
        }
    }

    /// What the first throttle of an episode does to the rate.
    fn slow_down(&mut self) {
        let Some(adaptive) = self.adaptive else { return };
        if matches!(self.climb, Climb::Exploring) {
            self.plateau = (self.plateau * 2).min(PLATEAU_MAX);
        }
        self.knee = Some(self.knee.map_or(self.rate, |knee| f64::midpoint(knee, self.rate)));
        self.rate = (self.rate * adaptive.decrease).max(adaptive.floor).min(self.ceiling);
        self.climb = Climb::Recovering;
    }

    fn pause(&mut self, now: Time, retry_after: Option<Duration>, jitter: f64) {
        let own = Duration::from_secs(1 << self.throttles.min(6)).min(OWN_PAUSE_MAX);
        self.throttles = self.throttles.saturating_add(1);
        let pause = retry_after.map_or(own, |asked| asked_pause(asked, jitter));
        self.pass = Pass::Paused { until: now + pause };
    }

    /// Recovery, plateau and exploration from one moment to another, through as many of them as fit.
    fn climb(&mut self, mut from: Time, now: Time) {
        while from < now {
            match self.climb {
                Climb::Done => return,
                Climb::Recovering => {
                    let target = self.knee.map_or(self.ceiling, |knee| (knee * PLATEAU).min(self.ceiling));
                    from = self.raise(RECOVERY, target, from, now);
                    if self.rate >= target {
                        self.climb = Climb::Plateau { until: from + self.plateau };
                    }
                }
                Climb::Plateau { until } if until > now => return,
                Climb::Plateau { until } => {
                    from = until;
                    self.climb = Climb::Exploring;
                }
                Climb::Exploring => {
                    let target = self.knee.map_or(self.ceiling, |knee| (knee * DISPROVED).min(self.ceiling));
                    from = self.raise(EXPLORATION, target, from, now);
                    if self.rate >= target {
                        self.knee = None;
                        self.climb = Climb::Recovering;
                    }
                }
            }
            if self.rate >= self.ceiling {
                self.forget();
            }
        }
    }

    /// Raises the rate, `share` of the ceiling a second, until `now` or until it is `target`; returns when that was.
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

    /// The ceiling holds: nothing is known of a knee any more.
    fn forget(&mut self) {
        self.rate = self.ceiling;
        self.knee = None;
        self.climb = Climb::Done;
        self.plateau = PLATEAU_FIRST;
    }
}

/// What the vendor asked for, never less, and some chance on top.
fn asked_pause(asked: Duration, jitter: f64) -> Duration {
    let asked = asked.min(ASKED_PAUSE_MAX);
    (asked + asked.mul_f64(JITTER * jitter.clamp(0.0, 1.0))).min(ASKED_PAUSE_MAX)
}
