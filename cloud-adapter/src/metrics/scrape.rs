//! Metrics of state: buckets, queues, breakers and ages. The state is read at each scrape, so that no gauge is outdated.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use cloud_budget::{BreakerState, BucketReport, LeafReport, QueueReport, Report, Time};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric},
    metrics::{counter::ConstCounter, gauge::ConstGauge},
    registry::Unit,
};

type Budget = Box<dyn Fn() -> Option<(Time, Report)> + Send + Sync>;
type Queues = Box<dyn Fn() -> Vec<QueueReport> + Send + Sync>;
type Age = Box<dyn Fn() -> SnapshotAge + Send + Sync>;

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct SnapshotAge {
    /// The age of the listing. `None`: there is no listing yet.
    pub(crate) age: Option<Duration>,
    /// The maximum age of the listing. `None`: the listing is not refreshed, because there are no watches.
    pub(crate) target: Option<Duration>,
}

/// Clones share the sources.
#[derive(Clone, Default)]
pub(super) struct Sources(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    budget: Option<Budget>,
    queues: Option<Queues>,
    ages: Vec<(&'static str, Age)>,
}

impl fmt::Debug for Sources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sources")
    }
}

impl Sources {
    pub(super) fn set_budget(&self, budget: Budget) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).budget = Some(budget);
    }

    pub(super) fn set_queues(&self, queues: Queues) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).queues = Some(queues);
    }

    pub(super) fn add_age(&self, collection: &'static str, age: Age) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).ages.push((collection, age));
    }
}

impl Collector for Sources {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut page = Page(&mut encoder);
        page.ages(&inner.ages.iter().map(|(collection, age)| (*collection, age())).collect::<Vec<_>>())?;
        let Some((now, report)) = inner.budget.as_ref().and_then(|budget| budget()) else { return Ok(()) };
        page.buckets(&report.buckets, now)?;
        page.queues(&report.leaves)?;
        let queues = inner.queues.as_ref().map(|queues| queues()).unwrap_or_default();
        page.oldest(&report, &queues)?;
        page.breakers(&report)
    }
}

struct Page<'a, 'b>(&'a mut DescriptorEncoder<'b>);

impl Page<'_, '_> {
    /// Writes one metric: its name, help and unit, and a row for each set of labels.
    fn rows<L: EncodeLabelSet, M: EncodeMetric>(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        rows: impl IntoIterator<Item = (L, M)>,
    ) -> fmt::Result {
        let mut rows = rows.into_iter().peekable();
        let Some((_, first)) = rows.peek() else { return Ok(()) };
        let mut metric = self.0.encode_descriptor(name, help, unit, first.metric_type())?;
        rows.try_for_each(|(labels, value)| value.encode(metric.encode_family(&labels)?))
    }

    fn ages(&mut self, ages: &[(&'static str, SnapshotAge)]) -> fmt::Result {
        let mut gauges = |name: &str, help: &str, value: fn(&SnapshotAge) -> Option<Duration>| {
            let rows = ages.iter().filter_map(|(collection, one)| {
                Some(([("collection", *collection)], ConstGauge::new(value(one)?.as_secs_f64())))
            });
            self.rows(name, help, Some(&Unit::Seconds), rows)
        };
        gauges("snapshot_age", "Age of the last listing", |one| one.age)?;
        gauges("snapshot_target_age", "Target interval between listings while there are watches", |one| {
            one.target
        })
    }

    fn buckets(&mut self, buckets: &[BucketReport], now: Time) -> fmt::Result {
        let mut gauges = |name: &str, help: &str, unit, value: &dyn Fn(&BucketReport) -> Option<f64>| {
            let rows = buckets.iter().filter_map(|one| Some((bucket(one), ConstGauge::new(value(one)?))));
            self.rows(name, help, unit, rows)
        };
        gauges("bucket_rate", "Current rate in calls a second", None, &|one| Some(one.rate))?;
        gauges("bucket_ceiling", "Configured rate in calls a second", None, &|one| Some(one.ceiling))?;
        gauges("bucket_tokens", "Calls that may be sent at once now", None, &|one| Some(one.tokens))?;
        let paused = |one: &BucketReport| Some(one.paused_until?.since(now).as_secs_f64());
        gauges("bucket_paused", "Time until calls are sent again", Some(&Unit::Seconds), &|one| {
            Some(paused(one).unwrap_or_default())
        })?;
        gauges("bucket_knee", "Calls a second when the vendor last throttled", None, &|one| one.knee)?;
        let help = "Rate in calls a second that other clients use of the same account";
        gauges("bucket_foreign_rate", help, None, &|one| Some(one.foreign_rate))?;
        let throttled = buckets.iter().flat_map(|one| {
            [("status", one.throttled), ("header", one.corrected)].map(|(source, count)| {
                ([("bucket", one.name.as_str()), ("source", source)], ConstCounter::new(count))
            })
        });
        self.rows("vendor_throttled", "Requests of the vendor to slow down, by source", None, throttled)?;
        let delayed = buckets.iter().map(|one| (bucket(one), ConstCounter::new(one.would_delay)));
        self.rows(
            "bucket_would_delay",
            "Shadow mode: calls that the limits would have delayed",
            None,
            delayed,
        )?;
        let delays = |one: &BucketReport| ConstCounter::new(one.would_delay_for.as_secs_f64());
        let delays = buckets.iter().map(|one| (bucket(one), delays(one)));
        self.rows("bucket_would_delay", "Shadow mode: total of these delays", Some(&Unit::Seconds), delays)
    }

    fn queues(&mut self, leaves: &[LeafReport]) -> fmt::Result {
        let rows = leaves.iter().map(|leaf| {
            let labels = [("class", leaf.class.word()), ("controller", leaf.controller)];
            (labels, ConstGauge::new(leaf.queued))
        });
        self.rows("queue_depth", "Vendor calls waiting in the queue", None, rows)
    }

    /// A queue that was used earlier still has a row for each bucket, so that the value 0 is exported for an empty queue.
    fn oldest(&mut self, report: &Report, queues: &[QueueReport]) -> fmt::Result {
        let rows = report.buckets.iter().flat_map(|bucket| {
            report.leaves.iter().map(move |leaf| {
                let (class, controller) = (leaf.class, leaf.controller);
                let it = |one: &&QueueReport| {
                    one.bucket == bucket.name && one.class == class && one.controller == controller
                };
                let oldest = queues.iter().find(it).map_or(Duration::ZERO, |one| one.oldest);
                let labels =
                    [("bucket", bucket.name.as_str()), ("class", class.word()), ("controller", controller)];
                (labels, ConstGauge::new(oldest.as_secs_f64()))
            })
        });
        let help = "Age of the oldest queued call, by the bucket that blocks it";
        self.rows("queue_oldest", help, Some(&Unit::Seconds), rows)
    }

    fn breakers(&mut self, report: &Report) -> fmt::Result {
        let families = report.breakers.iter().map(|(family, state)| (family.as_str(), *state));
        let credentials = report.credentials.map(|state| ("credentials", state));
        let rows = families
            .chain(credentials)
            .map(|(family, state)| ([("family", family)], ConstGauge::new(number(state))));
        self.rows("breaker_state", "0: calls pass, 1: one at a time, 2: none", None, rows)
    }
}

fn bucket(report: &BucketReport) -> [(&'static str, &str); 1] {
    [("bucket", report.name.as_str())]
}

const fn number(state: BreakerState) -> u32 {
    match state {
        BreakerState::Closed => 0,
        BreakerState::HalfOpen => 1,
        BreakerState::Open { .. } => 2,
    }
}
