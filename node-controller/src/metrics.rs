//! What this controller counts, beside what all controllers do.

use controller_core::start::Process;
use jiff::Timestamp;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{
        counter::Counter,
        family::Family,
        histogram::{Histogram, exponential_buckets},
    },
};

use crate::plan::Refusal;

/// The first two are kept from the classic cloud controller manager, names and buckets.
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
    pub(crate) fn register(process: &mut Process) -> Self {
        // 1 s to 1024 s.
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
        let help = "Looks at new nodes that found something in the way, by the reason that the Event names";
        process.metrics().register("node_refusals", help, metrics.refusals.clone());
        metrics
    }

    /// A node has lost its taint.
    pub(crate) fn initialised(&self, created: Option<Timestamp>, now: Timestamp) {
        let Some(created) = created else { return };
        let delay = now.duration_since(created).as_secs_f64().max(0.0);
        self.taint_removal_delay.observe(delay);
        self.initial_sync_delay.observe(delay);
    }

    /// A new node has to wait.
    pub(crate) fn refused(&self, refusal: &Refusal) {
        self.refusals.get_or_create(&RefusalLabels { reason: refusal.reason() }).inc();
    }
}

#[cfg(test)]
mod tests {
    use controller_core::{
        metrics::render,
        testing::{BEGIN, FakeCloud, FakeKube, process},
    };
    use jiff::ToSpan as _;

    use super::*;
    use crate::NAMES;

    #[tokio::test(start_paused = true)]
    async fn a_new_node_counts_from_its_creation_under_the_classic_names() {
        let mut process = process(NAMES, &FakeKube::new(), &FakeCloud::new());
        let metrics = Metrics::register(&mut process);
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
