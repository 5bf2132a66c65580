//! The page of an adapter.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// `GET /status.json` of an adapter; `GET /` shows people the same.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AdapterStatus {
    /// When this was so.
    pub at: Timestamp,
    /// Such as `adapter-sim`.
    pub adapter: String,
    /// Of the process.
    pub version: String,
    /// Differs between processes.
    pub instance_id: String,
    /// Of the controllers that asked last. Empty: none has asked yet.
    pub cluster_id: String,
    /// Whether this replica talks to the vendor. A standby shows what its own process knows, and that is no queue and no task.
    pub leader: bool,
    /// Where the leader is, if a standby knows.
    pub leader_address: Option<String>,
    /// What the credentials open. `None`: not found out yet.
    pub scope: Option<String>,
    /// Why the cloud cannot be used, as the last self-check found.
    pub trouble: Option<String>,
    /// Of the configuration in force.
    pub config_revision: String,
    /// What may be asked of the vendor, by name.
    pub budgets: Vec<Budget>,
    /// Calls that wait for a budget, by whose they are.
    pub queues: Vec<Queue>,
    /// Whether calls pass, a family each.
    pub breakers: Vec<Breaker>,
    /// The listings that are kept.
    pub snapshots: Vec<Snapshot>,
    /// Whose objects the listings show, as their tags say: the adapter's own cluster first.
    pub clusters: Vec<ClusterObjects>,
    /// The load balancers that are converging: at most 200, the oldest first.
    pub tasks: Vec<Task>,
    /// How many more load balancers are converging.
    pub more_tasks: u64,
    /// What the vendor was last told to change: at most 50, the newest first.
    pub writes: Vec<VendorWrite>,
}

/// One bucket of the budget.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Budget {
    /// Its name, such as `loadbalancer`.
    pub bucket: String,
    /// Calls a second that it grants now.
    pub rate: f64,
    /// Calls a second that are configured.
    pub ceiling: f64,
    /// Calls that may go at once now.
    pub tokens: f64,
    /// Calls that wait for it.
    pub queued: u64,
    /// The vendor wants a pause: nothing is sent until then.
    pub paused_until: Option<Timestamp>,
    /// Sent so far.
    pub calls: u64,
    /// Throttled so far.
    pub throttled: u64,
    /// The last ten minutes in steps of five seconds, the newest first.
    pub history: Vec<Step>,
}

/// Five seconds of a budget.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Step {
    /// How long ago it ended.
    pub seconds_ago: u64,
    /// Sent in it.
    pub calls: u64,
    /// Calls that waited when it ended.
    pub queued: u64,
    /// Calls a second that were granted when it ended.
    pub rate: f64,
}

/// Calls of one class of one controller that wait for a budget.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Queue {
    /// The bucket whose tokens they need: of all that they pay from, the narrowest.
    pub bucket: String,
    /// `TRAFFIC`, `INTERACTIVE`, `LIFECYCLE` or `BACKGROUND`.
    pub class: String,
    /// Such as `service-controller`.
    pub controller: String,
    /// How many wait.
    pub queued: u64,
    /// For how long the oldest has waited.
    pub oldest_seconds: f64,
}

/// Whether calls of a family pass.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Breaker {
    /// Such as `loadbalancer`; `credentials`: of all that the account may do.
    pub family: String,
    /// Whether they pass.
    pub state: BreakerState,
    /// Open: when the next call is tried.
    pub retry_at: Option<Timestamp>,
}

/// Whether calls pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum BreakerState {
    /// They do.
    #[default]
    Closed,
    /// One at a time, to find out.
    HalfOpen,
    /// None does: too many failed.
    Open,
}

/// A listing of the cloud that answers all who ask.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Snapshot {
    /// Such as `load-balancers`.
    pub collection: String,
    /// How old what is known is. `None`: nothing is known yet.
    pub age_seconds: Option<f64>,
    /// It is listed again when it is this old, while anybody watches.
    pub target_age_seconds: f64,
    /// How many there are.
    pub items: u64,
    /// Grows with each change.
    pub revision: u64,
    /// Why it could not be listed last.
    pub error: Option<String>,
}

/// A load balancer that is converging.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Task {
    /// The UID of the Service.
    pub key: String,
    /// `NAMESPACE/NAME` of the Service.
    pub name: String,
    /// What it waits for now.
    pub waits_for: String,
    /// For how long it has been under way.
    pub since_seconds: f64,
    /// Changes that are made.
    pub done: u64,
    /// Changes in all, as far as is known.
    pub total: u64,
}

/// Something that the vendor was told to change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VendorWrite {
    /// When it was answered.
    pub at: Timestamp,
    /// The vendor's word for it, such as `CreateLoadBalancer`.
    pub operation: String,
    /// What it was about, such as `default/web`.
    pub object: Option<String>,
    /// Who asked for it.
    pub controller: String,
    /// `ok`, or what went wrong.
    pub outcome: String,
}

/// What a cluster has at the cloud, as the tags of the objects say.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterObjects {
    /// Its ID. Empty: objects that nobody's tags are on.
    pub cluster_id: String,
    /// It is the adapter's own.
    pub own: bool,
    /// Load balancers of it.
    pub load_balancers: u64,
    /// Routes of it.
    pub routes: u64,
}
