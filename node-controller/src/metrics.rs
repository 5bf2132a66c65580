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
