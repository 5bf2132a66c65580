//! The status page of an adapter.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// `GET /status.json` of an adapter; `GET /` shows the same data as HTML.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AdapterStatus {
    /// Time of this report.
    pub at: Timestamp,
    /// Name of the adapter, such as `adapter-sim`.
    pub adapter: String,
    /// Version of the process.
    pub version: String,
    /// Random ID of the process.
    pub instance_id: String,
    /// Cluster ID in the latest requests of controllers. The ID is empty until the adapter has received a request.
    pub cluster_id: String,
    /// Whether this replica calls the vendor. The report of a standby covers only its own process, without the queue and tasks.
    pub leader: bool,
    /// Address of the leader, if a standby knows it.
    pub leader_address: Option<String>,
    /// The scope that the credentials can access, or `None` if it is not known yet.
    pub scope: Option<String>,
    /// Why the cloud cannot be used, as found by the last self-check.
    pub trouble: Option<String>,
    /// The reason of `trouble`, such as `VENDOR_AUTH`.
    pub trouble_reason: Option<String>,
    /// Hash of the current configuration.
    pub config_revision: String,
    /// Why the configuration file is not used. The previous configuration applies until the file is valid, and a restart would fail.
    pub config_refused: Option<String>,
    /// Token buckets, by name.
    pub budgets: Vec<Budget>,
    /// Calls that wait for a budget, by controller.
    pub queues: Vec<Queue>,
    /// States of the circuit breakers, one for each family.
    pub breakers: Vec<Breaker>,
    /// The cached listings.
    pub snapshots: Vec<Snapshot>,
    /// The clusters to which the listed objects belong according to their tags; the adapter's own cluster is first.
    pub clusters: Vec<ClusterObjects>,
    /// Load balancers that are not yet in their desired state: at most 200, oldest first.
    pub tasks: Vec<Task>,
    /// Number of further load balancers that are not yet in their desired state.
    pub more_tasks: u64,
    /// Latest changes requested from the vendor: at most 50, newest first.
    pub writes: Vec<VendorWrite>,
}

/// One bucket of the budget.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Budget {
    /// Name of the bucket, such as `loadbalancer`.
    pub bucket: String,
    /// Number of calls per second that are currently permitted.
    pub rate: f64,
    /// Configured number of calls per second.
    pub ceiling: f64,
    /// Number of calls that may be sent immediately.
    pub tokens: f64,
    /// Number of calls that wait for this bucket.
    pub queued: u64,
    /// End of the pause that the vendor has requested.
    pub paused_until: Option<Timestamp>,
    /// Number of calls sent so far.
    pub calls: u64,
    /// Number of calls that the vendor has throttled so far.
    pub throttled: u64,
    /// The last ten minutes in steps of five seconds, newest first.
    pub history: Vec<BucketSample>,
}

/// State of a bucket over five seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BucketSample {
    /// Time since the end of this step, in seconds.
    pub seconds_ago: u64,
    /// Number of calls sent during the step.
    pub calls: u64,
    /// Number of calls that waited at the end of the step.
    pub queued: u64,
    /// Permitted calls per second at the end of the step.
    pub rate: f64,
}

/// Calls of one controller and one priority class that wait for a budget.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Queue {
    /// The bucket that the calls wait for. If they use several buckets, it is the most restrictive.
    pub bucket: String,
    /// `TRAFFIC`, `INTERACTIVE`, `LIFECYCLE` or `BACKGROUND`.
    pub class: String,
    /// Name of the controller, such as `service-controller`.
    pub controller: String,
    /// Number of waiting calls.
    pub queued: u64,
    /// Time that the oldest call has waited, in seconds.
    pub oldest_seconds: f64,
}

/// State of the circuit breaker of a family.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Breaker {
    /// Name of the family, such as `loadbalancer`. The name `credentials` stands for all calls of the account.
    pub family: String,
    /// State of the circuit breaker.
    pub state: BreakerState,
    /// Time of the next attempt, if the breaker is open.
    pub retry_at: Option<Timestamp>,
}

/// State of a circuit breaker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum BreakerState {
    /// Closed: calls are sent.
    #[default]
    Closed,
    /// Half-open: one call at a time is sent as a test.
    HalfOpen,
    /// Open: no call is sent, because too many calls have failed.
    Open,
}

/// A cached listing of the cloud, which all readers share.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Snapshot {
    /// Name of the collection, such as `load-balancers`.
    pub collection: String,
    /// Age of the content in seconds, or `None` if the collection was not listed yet.
    pub age_seconds: Option<f64>,
    /// Age in seconds at which the collection is listed again while clients watch it.
    pub target_age_seconds: f64,
    /// Number of objects.
    pub items: u64,
    /// Version of the content, which increases with each change.
    pub revision: u64,
    /// The error of the last listing, if it failed.
    pub error: Option<String>,
}

/// A load balancer that is not yet in its desired state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Task {
    /// UID of the Service.
    pub key: String,
    /// `NAMESPACE/NAME` of the Service.
    pub name: String,
    /// What the task is waiting for.
    pub waits_for: String,
    /// Time since the task began, in seconds.
    pub since_seconds: f64,
    /// Number of changes that are complete.
    pub done: u64,
    /// Total number of changes that are known so far.
    pub total: u64,
}

/// A change requested from the vendor.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VendorWrite {
    /// Time of the response.
    pub at: Timestamp,
    /// The vendor's name of the operation, such as `CreateLoadBalancer`.
    pub operation: String,
    /// The object, such as `default/web`.
    pub object: Option<String>,
    /// The controller that requested the change.
    pub controller: String,
    /// `ok`, or the error that the vendor returned.
    pub outcome: String,
}

/// The objects of one cluster in the cloud, according to their tags.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterObjects {
    /// ID of the cluster. The ID is empty for objects without owner tags.
    pub cluster_id: String,
    /// Whether this is the adapter's own cluster.
    pub own: bool,
    /// Number of load balancers.
    pub load_balancers: u64,
    /// Number of routes.
    pub routes: u64,
}
