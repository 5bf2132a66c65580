//! When a call would be sent that waits, or that would if it queued now. An estimate: it takes rates and demand to stay as they are.

use std::time::Duration;

use crate::{
    Config, Time,
    bucket::{Bucket, Need},
    families::Families,
    queue::{Queue, Waiting},
    tree::{BucketId, PathId, Tree},
};

/// Everything that a forecast looks at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View<'a> {
    pub(crate) config: &'a Config,
    pub(crate) tree: &'a Tree,
    pub(crate) queue: &'a Queue,
    pub(crate) families: &'a Families,
}

/// What is expected of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Forecast {
    /// When it would be sent.
    pub(crate) at: Time,
    /// How much later one more like it would be.
    pub(crate) step: Duration,
    /// Until when the vendor wants no such call, if it asked for a pause.
    pub(crate) paused_until: Option<Time>,
    /// The bucket that keeps it the longest, and until when; the narrowest of those that do equally.
    pub(crate) held_by: Option<(BucketId, Time)>,
    /// Tokens of that bucket which go to others before.
    pub(crate) ahead: u64,
}

impl View<'_> {
    /// Cost: O(leaves x buckets of the path). `p50`: how long the operation usually takes.
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

    /// What goes before: the own leaf's calls whose turn comes first, and what the others may spend meanwhile by weight.
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
