//! Estimates when a queued or a new call will be sent, assuming that rates and demand do not change.

use std::time::Duration;

use crate::{
    Config, Time,
    bucket::{Bucket, Need},
    families::Families,
    queue::{Queue, Waiting},
    tree::{BucketId, PathId, Tree},
};

#[derive(Clone, Copy, Debug)]
pub(crate) struct View<'a> {
    pub(crate) config: &'a Config,
    pub(crate) tree: &'a Tree,
    pub(crate) queue: &'a Queue,
    pub(crate) families: &'a Families,
}

/// When a call will be sent, and what delays it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Forecast {
    pub(crate) at: Time,
    /// Interval at which further calls like this one would be sent.
    pub(crate) step: Duration,
    /// End of the pause that the vendor requested, if any.
    pub(crate) paused_until: Option<Time>,
    /// The bucket that delays the call the longest, and the end of that delay. If several buckets delay the call equally, this is the most
    /// specific bucket.
    pub(crate) held_by: Option<(BucketId, Time)>,
    /// Number of tokens of the bucket in `held_by` that other calls take first.
    pub(crate) ahead: u64,
}

impl View<'_> {
    /// Estimates when a call will be sent. Cost: O(leaves x buckets of the path). `p50` is the usual duration of the operation.
    pub(crate) fn forecast(&self, now: Time, waiting: &Waiting, p50: Duration) -> Forecast {
        let path = waiting.path;
        let (step, paused_until) = (Duration::ZERO, None);
        let mut worst = Forecast { at: now, step, paused_until, held_by: None, ahead: 0 };
        for (id, bucket) in self.tree.along(path) {
            let (at, step, ahead) = self.at_bucket(now, waiting, bucket, |path| self.tree.pays(path, id));
            worst.paused_until = worst.paused_until.max(bucket.paused_until());
            if at >= worst.at {
                (worst.at, worst.step) = (at, step);
            }
            if worst.held_by.is_none_or(|(_, longest)| at > longest) {
                (worst.held_by, worst.ahead) = (Some((id, at)), ahead);
            }
        }
        if let Some(most) = self.families.full(waiting.call.family) {
            let ahead = self.queue.ahead(waiting, |queued| queued == path).saturating_add(1);
            let rounds = u32::try_from(ahead.div_ceil(u64::from(most))).unwrap_or(u32::MAX);
            worst.at = worst.at.max(now + p50.saturating_mul(rounds));
        }
        worst
    }

    /// Returns the time at which the bucket can serve the call, the interval to the next call like this one, and the number of tokens that
    /// other calls take first. Those are calls of the same leaf whose turn comes earlier, and calls of other leaves in proportion to their
    /// weight.
    fn at_bucket(
        &self,
        now: Time,
        waiting: &Waiting,
        bucket: &Bucket,
        pays: impl Fn(PathId) -> bool,
    ) -> (Time, Duration, u64) {
        let (call, cost) = (&waiting.call, waiting.cost());
        let own = self.queue.ahead(waiting, &pays);
        let weight = u64::from(self.config.weights.of(call.class));
        let (mut ahead, mut weights) = (own, weight);
        for (class, tokens) in self.queue.others(call, &pays) {
            let theirs = u64::from(self.config.weights.of(class));
            ahead = ahead.saturating_add(tokens.min((own + cost).saturating_mul(theirs) / weight));
            weights += theirs;
        }
        let kept = if call.reserve { 0.0 } else { self.config.reserve };
        let interval = bucket.interval().saturating_mul(cost);
        let step = Duration::from_nanos(interval.saturating_mul(weights) / weight);
        (bucket.expected_at(now, ahead, Need { cost, kept }), step, ahead)
    }
}
