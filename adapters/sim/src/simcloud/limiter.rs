//! Token buckets. Each bucket is stored as the time at which it will be full again (GCRA), in whole nanoseconds.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Moment;
use super::operation::Family;
use super::settings::{LimitedBy, RateLimit};

#[derive(Debug, Default)]
pub(super) struct Limiter {
    full_at: BTreeMap<LimitedBy, Moment>,
}

/// The content of the rate-limit headers. It describes the tightest bucket of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Standing {
    pub(super) limit: u32,
    /// The number of calls that may still be made at once.
    pub(super) remaining: u32,
    /// Time until the bucket is full.
    pub(super) reset: Duration,
    /// Time to wait. `None`: the call is permitted.
    pub(super) retry_after: Option<Duration>,
}

impl Limiter {
    /// Takes one token from each bucket that applies to the family. Takes no token if one of the buckets is empty.
    ///
    /// Returns `None` if no limit is set.
    pub(super) fn take(
        &mut self,
        limits: &BTreeMap<LimitedBy, RateLimit>,
        family: Family,
        now: Moment,
    ) -> Option<Standing> {
        let buckets = LimitedBy::of(family).into_iter().filter_map(|by| Some((by, *limits.get(&by)?)));
        let asked: Vec<_> = buckets
            .map(|(by, limit)| {
                let full_at = self.full_at.get(&by).copied().unwrap_or_default().max(now);
                (by, limit, full_at)
            })
            .collect();
        let wait = asked.iter().filter_map(|(_, limit, full_at)| wait(*limit, *full_at, now)).max();
        let standings = asked.iter().map(|&(by, limit, mut full_at)| {
            if wait.is_none() {
                full_at = full_at.saturating_add(interval(limit));
                self.full_at.insert(by, full_at);
            }
            standing(limit, full_at.saturating_sub(now), wait)
        });
        standings.min_by_key(|standing| standing.remaining)
    }
}

/// Returns the time in which one token is added.
fn interval(limit: RateLimit) -> Duration {
    Duration::try_from_secs_f64(limit.rate.recip()).unwrap_or(Duration::MAX)
}

fn wait(limit: RateLimit, full_at: Moment, now: Moment) -> Option<Duration> {
    let interval = interval(limit);
    let needed = full_at.saturating_add(interval).saturating_sub(now);
    needed.checked_sub(interval.saturating_mul(limit.burst)).filter(|wait| !wait.is_zero())
}

fn standing(limit: RateLimit, missing: Duration, retry_after: Option<Duration>) -> Standing {
    let interval = interval(limit);
    let free = interval.saturating_mul(limit.burst).saturating_sub(missing);
    let remaining = free.as_nanos().checked_div(interval.as_nanos()).unwrap_or_default();
    Standing {
        limit: limit.burst,
        remaining: u32::try_from(remaining).unwrap_or(u32::MAX),
        reset: missing,
        retry_after,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bucket_allows_burst_then_rate() {
        let limits = BTreeMap::from([(LimitedBy::Compute, RateLimit { rate: 4.0, burst: 3 })]);
        let mut limiter = Limiter::default();
        let mut passed = 0;
        for ms in 0..2000 {
            let standing = limiter.take(&limits, Family::Compute, Duration::from_millis(ms)).unwrap();
            passed += u32::from(standing.retry_after.is_none());
        }
        assert_eq!(passed, 3 + 4 * 2 - 1, "a burst of 3, then one call every 250 ms");
        assert_eq!(limiter.take(&limits, Family::Network, Duration::ZERO), None, "not limited");
    }

    #[test]
    fn call_passes_only_after_the_full_delay() {
        let limits = BTreeMap::from([(LimitedBy::Account, RateLimit { rate: 0.5, burst: 1 })]);
        let mut limiter = Limiter::default();
        let first = limiter.take(&limits, Family::Network, Duration::ZERO).unwrap();
        assert_eq!((first.limit, first.remaining, first.retry_after), (1, 0, None));
        let wait = limiter.take(&limits, Family::Compute, Duration::ZERO).unwrap().retry_after.unwrap();
        assert_eq!(wait, Duration::from_secs(2));
        let early = wait - Duration::from_nanos(1);
        assert!(limiter.take(&limits, Family::Compute, early).unwrap().retry_after.is_some());
        assert!(limiter.take(&limits, Family::Compute, wait).unwrap().retry_after.is_none());
    }

    #[test]
    fn refused_call_takes_no_token_from_other_buckets() {
        let limits = BTreeMap::from([
            (LimitedBy::Account, RateLimit { rate: 1.0, burst: 2 }),
            (LimitedBy::Compute, RateLimit { rate: 1.0, burst: 1 }),
        ]);
        let mut limiter = Limiter::default();
        assert_eq!(limiter.take(&limits, Family::Compute, Duration::ZERO).unwrap().retry_after, None);
        assert!(limiter.take(&limits, Family::Compute, Duration::ZERO).unwrap().retry_after.is_some());
        assert_eq!(limiter.take(&limits, Family::Network, Duration::ZERO).unwrap().retry_after, None);
    }
}
