//! One token bucket per family, in integer nanoseconds (GCRA arithmetic), on tokio's clock so that tests can pause it.
//!
//! Deliberately first come, first served: priorities and fairness are the scheduler's, which takes this place.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use cloud_api_proto::v1alpha1::Budget;
use cloud_budget::RateLimit;
use tokio::time::Instant;

use super::operation::Family;
use crate::driver::{Fault, VendorError};

/// What a family may spend.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BucketLimits {
    /// Calls a second, above 0.
    pub rate: f64,
    /// Calls at once after a rest, at least 1.
    pub burst: u32,
}

impl Default for BucketLimits {
    /// For a family without configuration: slow, and never "unlimited".
    fn default() -> Self {
        Self { rate: 5.0, burst: 10 }
    }
}

/// The buckets of all families.
#[derive(Debug)]
pub struct Buckets(Mutex<BTreeMap<Family, Bucket>>);

#[derive(Debug)]
struct Bucket {
    limits: BucketLimits,
    /// Time that one call takes off the bucket.
    interval: Duration,
    /// When the bucket would be full again ("theoretical arrival time"); in the past: it is full.
    full_at: Instant,
    calls: u64,
    throttled: u64,
    waiting: u64,
}

impl Buckets {
    /// A full bucket for each family; those that are not named get the default limits.
    #[must_use]
    pub fn new(limits: &cloud_budget::Config) -> Self {
        let now = Instant::now();
        let limit = |family: Family| limits.buckets.get(family.word()).map(|bucket| bucket.limit);
        let limit = |family| limit(family).map(|RateLimit { rate, burst }| BucketLimits { rate, burst });
        let bucket = |family| Bucket::new(limit(family).unwrap_or_default(), now);
        Self(Mutex::new(Family::ALL.map(|family| (family, bucket(family))).into()))
    }

    /// Waits for a token. Returns how long it took.
    ///
    /// # Errors
    /// [`Fault::Budget`], at once and without taking a token, if the token would come after the deadline.
    pub async fn admit(&self, family: Family, deadline: Option<Instant>) -> Result<Duration, VendorError> {
        let now = Instant::now();
        let at = self.with(family, |bucket| bucket.reserve(now, deadline))?;
        if at > now {
            let _waiting = Waiting::new(self, family);
            tokio::time::sleep_until(at).await;
        }
        self.with(family, |bucket| bucket.calls += 1);
        Ok(at.saturating_duration_since(now))
    }

    /// Notes that the vendor throttled a call.
    pub fn throttled(&self, family: Family) {
        self.with(family, |bucket| bucket.throttled += 1);
    }

    /// All buckets, for reports.
    #[must_use]
    pub fn report(&self) -> Vec<Budget> {
        let now = Instant::now();
        let buckets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        buckets.iter().map(|(family, bucket)| bucket.report(*family, now)).collect()
    }

    fn with<R>(&self, family: Family, act: impl FnOnce(&mut Bucket) -> R) -> R {
        let mut buckets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        act(buckets.entry(family).or_insert_with(|| Bucket::new(BucketLimits::default(), Instant::now())))
    }
}

impl Bucket {
    fn new(limits: BucketLimits, now: Instant) -> Self {
        let interval = Duration::from_secs_f64(1.0 / limits.rate.max(0.001));
        Self { limits, interval, full_at: now, calls: 0, throttled: 0, waiting: 0 }
    }

    /// Takes a token and says when it may be spent.
    fn reserve(&mut self, now: Instant, deadline: Option<Instant>) -> Result<Instant, VendorError> {
        let credit = self.interval * self.limits.burst.saturating_sub(1);
        let full_at = self.full_at.max(now);
        let at = full_at.checked_sub(credit).unwrap_or(now).max(now);
        if deadline.is_some_and(|deadline| at > deadline) {
            let mut error = VendorError::new(
                Fault::Budget,
                format!("the budget of {} calls a second is spent", self.limits.rate),
            );
            error.retry_after = Some(at.saturating_duration_since(now));
            return Err(error);
        }
        self.full_at = full_at + self.interval;
        Ok(at)
    }

    fn report(&self, family: Family, now: Instant) -> Budget {
        let missing = self.full_at.saturating_duration_since(now).as_secs_f64() * self.limits.rate;
        Budget {
            bucket: family.word().to_owned(),
            rate: self.limits.rate,
            ceiling: self.limits.rate,
            tokens: (f64::from(self.limits.burst) - missing).max(0.0),
            queued: self.waiting,
            paused_until: None,
            calls_total: self.calls,
            throttled_total: self.throttled,
        }
    }
}

/// Counts a waiting call for as long as it waits, also if nobody waits for it any more.
struct Waiting<'a>(&'a Buckets, Family);

impl<'a> Waiting<'a> {
    fn new(buckets: &'a Buckets, family: Family) -> Self {
        buckets.with(family, |bucket| bucket.waiting += 1);
        Self(buckets, family)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.with(self.1, |bucket| bucket.waiting = bucket.waiting.saturating_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buckets(rate: f64, burst: u32) -> Buckets {
        let limit = RateLimit { rate, burst };
        let bucket = cloud_budget::BucketConfig { limit, ..cloud_budget::BucketConfig::unconfigured() };
        let buckets = BTreeMap::from([("compute".to_owned(), bucket)]);
        Buckets::new(&cloud_budget::Config { buckets, ..cloud_budget::Config::default() })
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_goes_at_once_and_the_rest_at_the_rate() {
        let buckets = buckets(10.0, 3);
        let started = Instant::now();
        let mut sent = Vec::new();
        for _ in 0..6 {
            buckets.admit(Family::Compute, None).await.expect("no deadline");
            sent.push(started.elapsed().as_millis());
        }
        assert_eq!(sent, [0, 0, 0, 100, 200, 300]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_would_be_late_is_refused_at_once_and_takes_no_token() {
        let buckets = buckets(1.0, 1);
        buckets.admit(Family::Compute, None).await.expect("the first is free");
        let soon = Instant::now() + Duration::from_millis(10);
        let refused = buckets.admit(Family::Compute, Some(soon)).await.expect_err("too late");
        assert_eq!(refused.fault, Fault::Budget);
        assert_eq!(refused.retry_after, Some(Duration::from_secs(1)));
        let waited = buckets.admit(Family::Compute, None).await.expect("no deadline");
        assert_eq!(waited, Duration::from_secs(1), "the refused call took nothing");
    }

    #[tokio::test(start_paused = true)]
    async fn families_do_not_wait_for_each_other() {
        let buckets = buckets(1.0, 1);
        buckets.admit(Family::Compute, None).await.expect("free");
        assert_eq!(buckets.admit(Family::Network, None).await, Ok(Duration::ZERO));
    }
}
