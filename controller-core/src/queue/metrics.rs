//! The `workqueue_*` metrics, under the names that dashboards for Kubernetes controllers use.

use std::fmt;

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric as _},
    metrics::{
        counter::{ConstCounter, Counter},
        gauge::ConstGauge,
        histogram::{Histogram, exponential_buckets},
    },
};
use tokio::time::Instant;

use super::{Key, Queue};
use crate::metrics::Registry;

#[derive(Debug)]
pub(super) struct Metrics {
    pub(super) retries: Counter,
    pub(super) panics: Counter,
    /// Seconds between the addition of a key and the start of its reconcile.
    pub(super) waited: Histogram,
    /// Seconds per reconcile.
    pub(super) worked: Histogram,
}

impl Default for Metrics {
    fn default() -> Self {
        // The buckets reach from 1 ms to 262 s, since a reconcile may wait for the cloud.
        let buckets = || exponential_buckets(0.001, 4.0, 10);
        Self {
            retries: Counter::default(),
            panics: Counter::default(),
            waited: Histogram::new(buckets()),
            worked: Histogram::new(buckets()),
        }
    }
}

pub(super) fn register<K: Key + fmt::Debug>(queue: &Queue<K>, registry: &mut Registry) {
    let metrics = &queue.inner.metrics;
    let registry = registry
        .sub_registry_with_prefix("workqueue")
        .sub_registry_with_label(("name".into(), queue.inner.name.into()));
    registry.register("retries", "Keys that were queued again after a failure", metrics.retries.clone());
    registry.register(
        "panics",
        "Reconciles that panicked because of a bug; the key is retried",
        metrics.panics.clone(),
    );
    let help = "How long a key waited until a worker took it";
    registry.register("queue_duration_seconds", help, metrics.waited.clone());
    registry.register("work_duration_seconds", "How long a reconcile of a key took", metrics.worked.clone());
    registry.register_collector(Box::new(Sizes(queue.clone())));
}

/// The gauges that are computed at each scrape, so that none of them is out of date.
#[derive(Debug)]
struct Sizes<K>(Queue<K>);

impl<K: Key + fmt::Debug> Collector for Sizes<K> {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let now = Instant::now();
        let (adds, depth, running): (u64, usize, Vec<f64>) = {
            let state = self.0.state();
            let running = state.running().map(|began| now.duration_since(began).as_secs_f64()).collect();
            (state.n_adds(), state.depth(), running)
        };
        // `sum` is not used here, because it returns -0.0 for an empty list.
        let unfinished = running.iter().fold(0.0, |sum, seconds| sum + seconds);
        let longest = running.iter().copied().fold(0.0, f64::max);
        let depth = i64::try_from(depth).unwrap_or(i64::MAX);
        let gauges = [
            ("unfinished_work_seconds", "Total time spent so far on the keys in progress", unfinished),
            (
                "longest_running_processor_seconds",
                "Time spent so far on the slowest key in progress",
                longest,
            ),
        ];
        let gauge = ConstGauge::new(depth);
        let kind = gauge.metric_type();
        gauge.encode(encoder.encode_descriptor("depth", "Keys that wait for a worker", None, kind)?)?;
        let adds = ConstCounter::new(adds);
        adds.encode(encoder.encode_descriptor("adds", "Keys added", None, adds.metric_type())?)?;
        for (name, help, value) in gauges {
            let gauge = ConstGauge::new(value);
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)?;
        }
        Ok(())
    }
}
