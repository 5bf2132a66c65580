//! A model of a vendor: a token bucket, the responses when the bucket is empty, and another client that uses the bucket.

use std::time::Duration;

use cloud_budget::{Hint, Time};

use crate::pace::Pace;

#[derive(Clone, Debug)]
pub(crate) struct Vendor {
    bucket: Pace,
    /// Duration for which the vendor refuses all calls after a throttle. Calls during this time do not prolong it.
    lockout: Option<Duration>,
    locked_until: Time,
    retry_after: bool,
    headers: bool,
    foreign: Option<Foreign>,
}

/// Another client of the account, which calls at regular intervals and ignores the answers.
#[derive(Clone, Debug)]
struct Foreign {
    every: Duration,
    next: Time,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Verdict {
    pub(crate) throttled: bool,
    /// `Retry-After` in whole seconds, if the vendor states it.
    pub(crate) retry_after: Option<Duration>,
    pub(crate) hint: Option<Hint>,
}

impl Vendor {
    /// Creates a vendor with `rate` calls per second and a burst of 10, neither of which the vendor reports.
    pub(crate) fn new(rate: f64) -> Self {
        Self::with_bucket(Pace::new(rate, 10.0))
    }

    /// Makes the vendor refuse all calls for this long after a throttle.
    pub(crate) fn with_lockout(self, lockout: Duration) -> Self {
        Self { lockout: Some(lockout), ..self }
    }

    pub(crate) fn with_retry_after(self) -> Self {
        Self { retry_after: true, ..self }
    }

    /// Makes the vendor report the rate-limit headers with each answer.
    pub(crate) fn with_headers(self) -> Self {
        Self { headers: true, ..self }
    }

    pub(crate) fn with_foreign(self, rate: f64) -> Self {
        let every = Duration::from_secs_f64(1.0 / rate);
        Self { foreign: Some(Foreign { every, next: Time::ZERO }), ..self }
    }

    pub(crate) fn rate(&self) -> f64 {
        self.bucket.rate
    }

    pub(crate) fn set_rate(&mut self, now: Time, rate: f64) {
        self.bucket.tick(now);
        self.bucket.rate = rate;
    }

    pub(crate) fn call(&mut self, now: Time) -> Verdict {
        self.others(now);
        let locked = now < self.locked_until;
        let throttled = locked || !self.bucket.take(now);
        if throttled
            && !locked
            && let Some(lockout) = self.lockout
        {
            self.locked_until = now + lockout;
        }
        let retry_after = (throttled && self.retry_after)
            .then(|| whole_seconds(self.locked_until.since(now).max(self.bucket.wait())));
        Verdict { throttled, retry_after, hint: self.headers.then(|| self.hint()) }
    }

    fn with_bucket(bucket: Pace) -> Self {
        let (lockout, locked_until) = (None, Time::ZERO);
        Self { bucket, lockout, locked_until, retry_after: false, headers: false, foreign: None }
    }

    fn others(&mut self, now: Time) {
        while let Some(foreign) = &mut self.foreign
            && foreign.next <= now
        {
            self.bucket.take(foreign.next);
            foreign.next = foreign.next + foreign.every;
        }
        self.bucket.tick(now);
    }

    fn hint(&self) -> Hint {
        let missing = self.bucket.burst - self.bucket.tokens;
        Hint {
            bucket: None,
            remaining: whole(self.bucket.tokens),
            limit: Some(whole(self.bucket.burst)),
            reset: Some(whole_seconds(Duration::from_secs_f64(missing / self.bucket.rate))),
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "tokens are few and not negative"
)]
fn whole(tokens: f64) -> u64 {
    tokens.max(0.0) as u64
}

/// Rounds up to whole seconds, as headers do.
fn whole_seconds(time: Duration) -> Duration {
    Duration::from_secs(time.as_secs() + u64::from(time.subsec_nanos() > 0))
}
