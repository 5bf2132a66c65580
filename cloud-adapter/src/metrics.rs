//! The adapter's metrics: `cloud_adapter_*`, with labels from closed sets. There is one method for each kind of event.
//!
//! The metrics in `scrape` describe state. The state is read when Prometheus scrapes the metrics.

mod layer;
mod scrape;
#[cfg(test)]
mod tests;

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use cloud_budget::{Class, QueueReport, RefusalReason, Report, Time};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::{Registry, Unit},
};

use self::scrape::Sources;
pub(crate) use self::{layer::RpcLayer, scrape::SnapshotAge};
use crate::operation::Operation;

/// The histogram buckets in seconds. The longest deadline is 60 s by default, and the operator can raise it.
const SECONDS: [f64; 12] = [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 60.0, 300.0];
/// The histogram buckets in items, from one item to the largest batch of the contract.
const ITEMS: [f64; 8] = [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 200.0, 500.0];
/// The values of the scope label. Callers choose the scopes of fences, so other scopes are not used as labels, because the number of labels
/// must be limited.
const FENCE_SCOPES: [&str; 3] = ["node-controller", "route-controller", "service-controller"];

type Labels<const N: usize> = [(&'static str, &'static str); N];

/// All metrics of the process. Clones share their state.
#[derive(Clone)]
pub struct Metrics {
    registry: Arc<Mutex<Registry>>,
    sources: Sources,
    security: crate::auth::Metrics,
    vendor_calls: Family<CallLabels, Counter>,
    vendor_call_duration: Family<Labels<2>, Histogram>,
    queue_wait: Family<Labels<2>, Histogram>,
    shed: Family<Labels<3>, Counter>,
    coalesced: Family<Labels<2>, Counter>,
    batch_size: Family<Labels<1>, Histogram>,
    snapshot_refreshes: Family<Labels<2>, Counter>,
    snapshot_items: Family<Labels<1>, Gauge>,
    noops: Family<Labels<1>, Counter>,
    key_tasks: Family<Labels<1>, Gauge>,
    outcomes_unknown: Family<Labels<1>, Counter>,
    existence: Family<Labels<1>, Counter>,
    fences_rejected: Family<Labels<1>, Counter>,
    leader: Gauge,
    config_reloads: Family<Labels<2>, Counter>,
    config_refused: Family<Labels<1>, Gauge>,
    rpc_duration: Family<RpcLabels, Histogram>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct VendorCall {
    pub(crate) operation: Operation,
    pub(crate) class: Class,
    pub(crate) controller: &'static str,
    /// The HTTP status. 0: the vendor did not answer.
    pub(crate) code: u16,
    pub(crate) took: Duration,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct CallLabels {
    family: &'static str,
    op: &'static str,
    class: &'static str,
    controller: &'static str,
    code: u16,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(crate) struct RpcLabels {
    /// The gRPC service, such as `cloudadapter.v1alpha1.RouteService`. The name is from the contract's descriptor, or is `other`.
    pub(crate) service: Arc<str>,
    /// The method, such as `ApplyRoutes`. The name is from the contract's descriptor, or is `other`.
    pub(crate) method: Arc<str>,
    /// The gRPC code, such as `UNAVAILABLE`.
    pub(crate) code: &'static str,
    /// The contract's reason for a failure. Empty: success.
    pub(crate) reason: &'static str,
    /// The role of the caller.
    pub(crate) controller: &'static str,
}

/// Why a vendor call was not needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coalesced {
    /// A call for another caller provided the answer.
    SingleFlight,
    Batch,
    /// The shared listing was fresh enough.
    Snapshot,
    /// One listing replaced many look-ups.
    Promotion,
}

impl Coalesced {
    const fn word(self) -> &'static str {
        match self {
            Self::SingleFlight => "singleflight",
            Self::Batch => "batch",
            Self::Snapshot => "snapshot",
            Self::Promotion => "promotion",
        }
    }
}

/// The state of a key task, which is the convergence task of one load balancer key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TaskState {
    Working,
    /// The task waits for the vendor before the next poll.
    Waiting,
}

impl TaskState {
    const fn word(self) -> &'static str {
        match self {
            Self::Working => "working",
            Self::Waiting => "waiting",
        }
    }
}

/// A key task that is counted in `key_tasks` until this value is dropped.
pub(crate) struct TaskCount {
    metrics: Metrics,
    state: TaskState,
}

impl TaskCount {
    pub(crate) fn now(&mut self, state: TaskState) {
        if state != self.state {
            self.metrics.tasks(self.state).dec();
            self.metrics.tasks(state).inc();
            self.state = state;
        }
    }
}

impl Drop for TaskCount {
    fn drop(&mut self) {
        self.metrics.tasks(self.state).dec();
    }
}

impl Metrics {
    /// Registers all metrics in a separate registry, so that two adapters in one test do not share counters.
    #[must_use]
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix("cloud_adapter");
        let page = &mut registry;
        let sources = Sources::default();
        page.register_collector(Box::new(sources.clone()));
        let leader = Gauge::default();
        page.register("leader", "1: this replica leads and calls the vendor", leader.clone());
        let metrics = Self {
            vendor_calls: counted(page, "vendor_calls", "Requests sent to the vendor; code 0: no answer"),
            vendor_call_duration: timed(page, "vendor_call_duration", "Duration of vendor calls"),
            queue_wait: timed(page, "queue_wait", "Time that vendor calls waited in the queue"),
            shed: counted(page, "shed", "Vendor calls that were refused instead of sent"),
            coalesced: counted(page, "coalesced", "Vendor calls that were saved by sharing"),
            batch_size: batches(page, "batch_size", "Items in one vendor call"),
            snapshot_refreshes: counted(page, "snapshot_refresh", "Listings of a collection"),
            snapshot_items: gauged(page, "snapshot_items", "Items in the last listing"),
            noops: counted(page, "noop", "Requests that required no change"),
            key_tasks: gauged(page, "key_tasks", "Objects that are being converged"),
            outcomes_unknown: counted(page, "outcome_unknown", "Vendor writes whose answer was lost"),
            existence: counted(page, "existence", "Looked up instances, by their existence"),
            fences_rejected: counted(page, "fence_rejected", "Writes refused because of a stale fence"),
            leader,
            config_reloads: counted(page, "config_reload", "Reloads of changed files, by result"),
            config_refused: gauged(page, "config_refused", "1: the file is invalid and not in use"),
            rpc_duration: timed(page, "rpc_duration", "Answered requests; a watch counts when it ends"),
            security: crate::auth::Metrics::register(page),
            sources,
            registry: Arc::default(),
        };
        *metrics.registry.lock().unwrap_or_else(PoisonError::into_inner) = registry;
        metrics
    }

    /// Returns the text that Prometheus scrapes, in the OpenMetrics format.
    ///
    /// # Errors
    /// In practice this returns no error, because writing to a string succeeds.
    pub fn render(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        let registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        prometheus_client::encoding::text::encode(&mut text, &registry)?;
        Ok(text)
    }

    pub(crate) fn security(&self) -> crate::auth::Metrics {
        self.security.clone()
    }

    /// Sets the source of buckets, queues and breakers. The source also returns the time to which their timestamps relate.
    pub(crate) fn read_budget(&self, report: impl Fn() -> Option<(Time, Report)> + Send + Sync + 'static) {
        self.sources.set_budget(Box::new(report));
    }

    /// Sets the source of queued calls. Each report names the bucket that delays the calls.
    pub(crate) fn read_queues(&self, queues: impl Fn() -> Vec<QueueReport> + Send + Sync + 'static) {
        self.sources.set_queues(Box::new(queues));
    }

    pub(crate) fn read_age(
        &self,
        collection: &'static str,
        age: impl Fn() -> SnapshotAge + Send + Sync + 'static,
    ) {
        self.sources.add_age(collection, Box::new(age));
    }

    pub(crate) fn vendor_call(&self, call: VendorCall) {
        let VendorCall { operation, class, controller, code, took } = call;
        let (family, op) = (operation.family.word(), operation.name);
        let labels = CallLabels { family, op, class: class.word(), controller, code };
        self.vendor_calls.get_or_create(&labels).inc();
        let labels = [("family", family), ("op", op)];
        self.vendor_call_duration.get_or_create(&labels).observe(took.as_secs_f64());
    }

    pub(crate) fn queue_wait(&self, class: Class, controller: &'static str, waited: Duration) {
        let labels = [("class", class.word()), ("controller", controller)];
        self.queue_wait.get_or_create(&labels).observe(waited.as_secs_f64());
    }

    /// Counts a vendor call that was refused instead of sent.
    pub(crate) fn shed(&self, reason: RefusalReason, class: Class, controller: &'static str) {
        let labels = [("reason", reason.word()), ("class", class.word()), ("controller", controller)];
        self.shed.get_or_create(&labels).inc();
    }

    /// Counts a vendor call that was not needed. `op` is the operation that was not called.
    pub(crate) fn coalesced(&self, op: &'static str, kind: Coalesced) {
        self.coalesced.get_or_create(&[("op", op), ("kind", kind.word())]).inc();
    }

    pub(crate) fn batch(&self, op: &'static str, items: usize) {
        let items = u32::try_from(items).unwrap_or(u32::MAX);
        self.batch_size.get_or_create(&[("op", op)]).observe(f64::from(items));
    }

    /// Counts a listing of a collection, with its number of items. `None`: the listing failed.
    pub(crate) fn refreshed(&self, collection: &'static str, items: Option<usize>) {
        let result = if items.is_some() { "ok" } else { "failed" };
        self.snapshot_refreshes.get_or_create(&[("collection", collection), ("result", result)]).inc();
        if let Some(items) = items {
            let items = i64::try_from(items).unwrap_or(i64::MAX);
            self.snapshot_items.get_or_create(&[("collection", collection)]).set(items);
        }
    }

    /// Counts a request that required no change.
    pub(crate) fn noop(&self, rpc: &'static str) {
        self.noops.get_or_create(&[("rpc", rpc)]).inc();
    }

    /// Counts a key task in the state `working`, until the returned value is dropped.
    #[must_use]
    pub(crate) fn key_task(&self) -> TaskCount {
        let state = TaskState::Working;
        self.tasks(state).inc();
        TaskCount { metrics: self.clone(), state }
    }

    pub(crate) fn outcome_unknown(&self, op: &'static str) {
        self.outcomes_unknown.get_or_create(&[("op", op)]).inc();
    }

    /// Counts looked-up instances by their result: `exists`, `gone` and so on.
    pub(crate) fn existence(&self, result: &'static str, instances: u64) {
        self.existence.get_or_create(&[("result", result)]).inc_by(instances);
    }

    /// Counts a writer that was refused for a stale fence. The shard of a scope such as `service-controller/0` is not part of the label.
    pub(crate) fn fence_rejected(&self, scope: &str) {
        let holder = scope.split('/').next().unwrap_or_default();
        let holder = FENCE_SCOPES.into_iter().find(|known| *known == holder).unwrap_or("other");
        self.fences_rejected.get_or_create(&[("scope", holder)]).inc();
    }

    pub(crate) fn leader(&self, leads: bool) {
        self.leader.set(i64::from(leads));
    }

    /// Counts a reload of a watched file. `kind` is `limits`, `certificate` and so on.
    pub(crate) fn config_reload(&self, kind: &'static str, taken: bool) {
        let result = if taken { "ok" } else { "failed" };
        self.config_reloads.get_or_create(&[("kind", kind), ("result", result)]).inc();
        self.config_refused(kind, !taken);
    }

    /// Sets whether the current content is refused. Alerts use this gauge, because a counter would appear only with the first refusal, and
    /// its first increase would not be visible.
    pub(crate) fn config_refused(&self, kind: &'static str, refused: bool) {
        self.config_refused.get_or_create(&[("kind", kind)]).set(i64::from(refused));
    }

    pub(crate) fn rpc(&self, labels: &RpcLabels, took: Duration) {
        self.rpc_duration.get_or_create(labels).observe(took.as_secs_f64());
    }

    fn tasks(&self, state: TaskState) -> impl std::ops::Deref<Target = Gauge> {
        self.key_tasks.get_or_create(&[("state", state.word())])
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

trait LabelSet: Clone + fmt::Debug + EncodeLabelSet + Eq + std::hash::Hash + Send + Sync + 'static {}

impl<L: Clone + fmt::Debug + EncodeLabelSet + Eq + std::hash::Hash + Send + Sync + 'static> LabelSet for L {}

fn counted<L: LabelSet>(page: &mut Registry, name: &str, help: &str) -> Family<L, Counter> {
    let family = Family::default();
    page.register(name, help, family.clone());
    family
}

fn gauged<L: LabelSet>(page: &mut Registry, name: &str, help: &str) -> Family<L, Gauge> {
    let family = Family::default();
    page.register(name, help, family.clone());
    family
}

fn timed<L: LabelSet>(page: &mut Registry, name: &str, help: &str) -> Family<L, Histogram> {
    let family = Family::new_with_constructor((|| Histogram::new(SECONDS)) as fn() -> Histogram);
    page.register_with_unit(name, help, Unit::Seconds, family.clone());
    family
}

fn batches<L: LabelSet>(page: &mut Registry, name: &str, help: &str) -> Family<L, Histogram> {
    let family = Family::new_with_constructor((|| Histogram::new(ITEMS)) as fn() -> Histogram);
    page.register(name, help, family.clone());
    family
}
