//! The adapter's metrics: `cloud_adapter_*`, labels from closed sets.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::{Registry, Unit},
};

use crate::vendor::Operation;

/// All metrics of the process. Cloning shares them.
#[derive(Clone)]
pub struct Metrics {
    registry: Arc<Mutex<Registry>>,
    vendor_calls: Family<CallLabels, Counter>,
    vendor_call_duration: Family<OperationLabels, Histogram>,
    snapshot_refreshes: Family<RefreshLabels, Counter>,
    snapshot_items: Family<CollectionLabels, Gauge>,
    noops: Family<RpcLabels, Counter>,
    key_tasks: Gauge,
    rpcs: Family<RpcResultLabels, Counter>,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct CallLabels {
    family: &'static str,
    op: &'static str,
    code: u16,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OperationLabels {
    family: &'static str,
    op: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RefreshLabels {
    collection: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct CollectionLabels {
    collection: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RpcLabels {
    rpc: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RpcResultLabels {
    rpc: &'static str,
    reason: &'static str,
}

impl Metrics {
    /// Registers everything in a registry of its own, so that two adapters in one test do not share counters.
    #[must_use]
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix("cloud_adapter");
        let metrics = Self {
            vendor_calls: Family::default(),
            vendor_call_duration: Family::new_with_constructor(|| {
                Histogram::new([0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0])
            }),
            snapshot_refreshes: Family::default(),
            snapshot_items: Family::default(),
            noops: Family::default(),
            key_tasks: Gauge::default(),
            rpcs: Family::default(),
            registry: Arc::default(),
        };
        registry.register(
            "vendor_calls",
            "Requests sent to the vendor; code 0: no answer",
            metrics.vendor_calls.clone(),
        );
        registry.register_with_unit(
            "vendor_call_duration",
            "How long the vendor took to answer",
            Unit::Seconds,
            metrics.vendor_call_duration.clone(),
        );
        registry.register(
            "snapshot_refresh",
            "Listings of a collection, by result",
            metrics.snapshot_refreshes.clone(),
        );
        registry.register("snapshot_items", "Items in the last listing", metrics.snapshot_items.clone());
        registry.register("noop", "Requests that found nothing to do", metrics.noops.clone());
        registry.register("key_tasks", "Load balancers being converged now", metrics.key_tasks.clone());
        registry.register("rpc", "Answered requests, by reason; OK is success", metrics.rpcs.clone());
        *metrics.registry.lock().unwrap_or_else(PoisonError::into_inner) = registry;
        metrics
    }

    /// The text that Prometheus scrapes, in the OpenMetrics format.
    ///
    /// # Errors
    /// Never in practice: writing to a string.
    pub fn render(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        let registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        prometheus_client::encoding::text::encode(&mut text, &registry)?;
        Ok(text)
    }

    pub(crate) fn vendor_call(&self, operation: Operation, code: u16, took: Duration) {
        let (family, op) = (operation.family.word(), operation.name);
        self.vendor_calls.get_or_create(&CallLabels { family, op, code }).inc();
        self.vendor_call_duration.get_or_create(&OperationLabels { family, op }).observe(took.as_secs_f64());
    }

    pub(crate) fn refreshed(&self, collection: &'static str, items: Option<usize>) {
        let result = if items.is_some() { "ok" } else { "failed" };
        self.snapshot_refreshes.get_or_create(&RefreshLabels { collection, result }).inc();
        if let Some(items) = items {
            let items = i64::try_from(items).unwrap_or(i64::MAX);
            self.snapshot_items.get_or_create(&CollectionLabels { collection }).set(items);
        }
    }

    pub(crate) fn noop(&self, rpc: &'static str) {
        self.noops.get_or_create(&RpcLabels { rpc }).inc();
    }

    pub(crate) fn rpc(&self, rpc: &'static str, reason: &'static str) {
        self.rpcs.get_or_create(&RpcResultLabels { rpc, reason }).inc();
    }

    pub(crate) fn key_tasks(&self) -> &Gauge {
        &self.key_tasks
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metrics")
    }
}
