//! Metrics of this controller, in addition to those that all controllers have.

use std::{fmt, sync::Arc};

use controller_core::{
    Clock,
    leadership::Shards,
    mirror::{Mirror, ObjectName},
    start::Process,
};
use jiff::{SignedDuration, Timestamp};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric as _},
    metrics::{
        counter::Counter,
        family::Family,
        gauge::ConstGauge,
        histogram::{Histogram, exponential_buckets},
    },
};

use crate::plan::{Claim, Node, Refusal};

/// The names and buckets of the first two metrics are those of the former cloud controller manager.
#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    taint_removal_delay: Histogram,
    initial_sync_delay: Histogram,
    refusals: Family<RefusalLabels, Counter>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RefusalLabels {
    reason: &'static str,
}

impl Metrics {
    pub(crate) fn register(process: &mut Process, nodes: &Mirror<ObjectName, Node>) -> Self {
        // The buckets reach from 1 s to 1024 s.
        let buckets = || exponential_buckets(1.0, 4.0, 6);
        let metrics = Self {
            taint_removal_delay: Histogram::new(buckets()),
            initial_sync_delay: Histogram::new(buckets()),
            refusals: Family::default(),
        };
        let registry = process.registry.sub_registry_with_prefix("node_controller");
        let help = "Time between a node's creation and the removal of its uninitialized taint";
        let name = "cloud_provider_taint_removal_delay_seconds";
        registry.register(name, help, metrics.taint_removal_delay.clone());
        let help = "Time between a node's creation and its first complete sync";
        registry.register("initial_node_sync_delay_seconds", help, metrics.initial_sync_delay.clone());
        let help = "Reconciles of uninitialised nodes that had to wait, by the reason of the Event";
        process.metrics().register("node_refusals", help, metrics.refusals.clone());
        let uninitialised =
            Uninitialised { nodes: nodes.clone(), shards: process.shards.clone(), clock: process.clock };
        process.metrics().register_collector(Box::new(uninitialised));
        metrics
    }

    /// Records that a node has lost its taint.
    pub(crate) fn initialised(&self, created: Option<Timestamp>, now: Timestamp) {
        let Some(created) = created else { return };
        let delay = now.duration_since(created).as_secs_f64().max(0.0);
        self.taint_removal_delay.observe(delay);
        self.initial_sync_delay.observe(delay);
    }

    pub(crate) fn refused(&self, refusal: &Refusal) {
        self.refusals.get_or_create(&RefusalLabels { reason: refusal.reason() }).inc();
    }
}

/// The uninitialised nodes of this replica's shards, counted at each scrape.
#[derive(Debug)]
struct Uninitialised {
    nodes: Mirror<ObjectName, Node>,
    shards: Shards,
    clock: Clock,
}

impl Collector for Uninitialised {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Self { nodes, shards, clock } = self;
        let (count, oldest) = nodes.read(|nodes| {
            let ours = nodes.values().filter(|node| shards.has(&node.uid));
            waiting(ours.map(Arc::as_ref), clock.now())
        });
        let count = ConstGauge::new(i64::try_from(count).unwrap_or(i64::MAX));
        let help = "Nodes of this replica's shards that are not initialised and therefore get no pods";
        count.encode(encoder.encode_descriptor("nodes_uninitialised", help, None, count.metric_type())?)?;
        let oldest = ConstGauge::new(oldest.as_secs_f64());
        let (name, help) = (
            "nodes_uninitialised_oldest_seconds",
            "Time since the oldest uninitialised node of this \
             replica's shards was created",
        );
        oldest.encode(encoder.encode_descriptor(name, help, None, oldest.metric_type())?)
    }
}

/// Returns the number of uninitialised nodes, and the time since the oldest of them was created. Nodes with the owner label of another
/// cloud do not count.
fn waiting<'a>(nodes: impl Iterator<Item = &'a Node>, now: Timestamp) -> (usize, SignedDuration) {
    let is_another = |node: &Node| matches!(node.claim, Claim::Other { .. });
    let waiting: Vec<&Node> = nodes.filter(|node| node.is_uninitialised() && !is_another(node)).collect();
    let first = waiting.iter().filter_map(|node| node.created).min();
    (waiting.len(), first.map_or(SignedDuration::ZERO, |at| now.duration_since(at)).max(SignedDuration::ZERO))
}

#[cfg(test)]
mod tests {
    use controller_core::{
        metrics::render,
        testing::{BEGIN, FakeCloud, FakeKube, node, process},
    };
    use jiff::ToSpan as _;

    use super::*;
    use crate::{NAMES, mirror::trim_node};

    #[test]
    fn uninitialised_nodes_are_counted_from_their_creation() {
        let nodes = [
            node("works").created(BEGIN - 9.hours()),
            node("old").uninitialised().created(BEGIN - 20.minutes()),
            node("new").uninitialised().created(BEGIN),
        ];
        let nodes = nodes.map(|node| trim_node(&node.build()));
        assert_eq!(waiting(nodes.iter(), BEGIN), (2, SignedDuration::from_mins(20)));
        assert_eq!(waiting(nodes.iter().take(1), BEGIN), (0, SignedDuration::ZERO));
    }

    // Behaviour: NI17
    #[tokio::test(start_paused = true)]
    async fn delays_are_observed_under_the_former_metric_names() {
        let mut process = process(NAMES, &FakeKube::new(), &FakeCloud::new());
        let nodes = Mirror::new("nodes", process.clock);
        let metrics = Metrics::register(&mut process, &nodes);
        metrics.initialised(Some(BEGIN), BEGIN + 5.seconds());
        metrics.initialised(None, BEGIN);
        metrics.refused(&Refusal::Foreign);
        let text = render(&process.registry).expect("text");
        for line in [
            "node_controller_cloud_provider_taint_removal_delay_seconds_sum 5.0",
            "node_controller_cloud_provider_taint_removal_delay_seconds_count 1",
            "node_controller_cloud_provider_taint_removal_delay_seconds_bucket{le=\"4.0\"} 0",
            "node_controller_cloud_provider_taint_removal_delay_seconds_bucket{le=\"16.0\"} 1",
            "node_controller_cloud_provider_taint_removal_delay_seconds_bucket{le=\"1024.0\"} 1",
            "node_controller_initial_node_sync_delay_seconds_sum 5.0",
            "cloud_controller_node_refusals_total{controller=\"node-controller\",reason=\"InstanceForeign\"} 1",
        ] {
            assert!(text.lines().any(|it| it == line), "{line} is missing in:\n{text}");
        }
    }
}
