//! The last ten minutes of the budgets, in steps of five seconds. This module is pure: the caller passes the time.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use cloud_budget::{BucketReport, Time};
use telemetry::report::BucketSample;

pub(super) const STEP: Duration = Duration::from_secs(5);
/// The age at which steps are dropped.
const KEPT: Duration = Duration::from_mins(10);

#[derive(Debug, Default)]
pub(super) struct History(BTreeMap<String, Ring>);

#[derive(Debug, Default)]
struct Ring {
    /// The total number of calls at the end of the last step.
    calls: u64,
    /// The steps, the newest first.
    steps: VecDeque<StepSample>,
}

#[derive(Debug)]
struct StepSample {
    ended: Time,
    calls: u64,
    queued: u64,
    rate: f64,
}

impl History {
    /// The caller must call this once per step, with all buckets.
    pub(super) fn note(&mut self, now: Time, buckets: &[BucketReport]) {
        self.0.retain(|name, _| buckets.iter().any(|bucket| bucket.name == *name));
        for BucketReport { name, calls, queued, rate, .. } in buckets {
            let ring = self.0.entry(name.clone()).or_default();
            let before = std::mem::replace(&mut ring.calls, *calls);
            let past =
                StepSample { ended: now, calls: calls.saturating_sub(before), queued: *queued, rate: *rate };
            ring.steps.push_front(past);
            while ring.steps.back().is_some_and(|oldest| now.since(oldest.ended) >= KEPT) {
                ring.steps.pop_back();
            }
        }
    }

    /// Returns the steps of a bucket, the newest first.
    pub(super) fn of(&self, bucket: &str, now: Time) -> Vec<BucketSample> {
        let Some(ring) = self.0.get(bucket) else { return Vec::new() };
        let sample = |StepSample { ended, calls, queued, rate }: &StepSample| BucketSample {
            seconds_ago: now.since(*ended).as_secs(),
            calls: *calls,
            queued: *queued,
            rate: *rate,
        };
        ring.steps.iter().map(sample).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time::ZERO + Duration::from_secs(seconds)
    }

    fn bucket(name: &str, calls: u64, queued: u64) -> BucketReport {
        BucketReport {
            name: name.to_owned(),
            rate: 5.0,
            ceiling: 5.0,
            tokens: 0.0,
            knee: None,
            paused_until: None,
            foreign_rate: 0.0,
            queued,
            calls,
            throttled: 0,
            corrected: 0,
            would_delay: 0,
            would_delay_for: Duration::ZERO,
        }
    }

    #[test]
    fn a_step_holds_the_calls_since_the_one_before() {
        let mut history = History::default();
        history.note(at(5), &[bucket("a", 7, 3)]);
        history.note(at(10), &[bucket("a", 32, 9), bucket("b", 2, 0)]);
        let step = |seconds_ago, calls, queued| BucketSample { seconds_ago, calls, queued, rate: 5.0 };
        assert_eq!(history.of("a", at(12)), [step(2, 25, 9), step(7, 7, 3)]);
        assert_eq!(history.of("b", at(12)), [step(2, 2, 0)]);
        assert_eq!(history.of("c", at(12)), []);
    }

    #[test]
    fn history_keeps_ten_minutes_of_current_buckets() {
        let mut history = History::default();
        for number in 1..=500 {
            history.note(at(5 * number), &[bucket("a", number, 0), bucket("b", number, 0)]);
        }
        let steps = history.of("a", at(2_500));
        assert_eq!(steps.len(), 120);
        assert_eq!(steps.last().map(|step| step.seconds_ago), Some(595));
        history.note(at(2_505), &[bucket("a", 500, 0)]);
        assert_eq!(history.of("b", at(2_505)), []);
        history.note(at(10_000), &[bucket("a", 500, 0)]);
        assert_eq!(history.of("a", at(10_000)).len(), 1, "no step from before the suspension is left");
    }
}
