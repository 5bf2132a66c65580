//! The status pages of the controllers.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// `GET /status` of a controller.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ControllerStatus {
    /// Name of the controller, such as `service-controller`.
    pub controller: String,
    /// Version of the process.
    pub version: String,
    /// ID of the cluster whose objects in the cloud the controller manages.
    pub cluster_id: String,
    /// Number of shards that divide the objects.
    pub shards: u32,
    /// The shards that this replica holds.
    pub held: Vec<u32>,
    /// Whether the controller has listed both Kubernetes and the cloud completely since the start. Until then, objects that exist may be
    /// missing from the report. `None` if the process is older and does not report this.
    pub listed: Option<bool>,
    /// The adapter that the controller calls.
    pub adapter: AdapterLink,
    /// Watches on the API server that fail, and why, one line each. The controller does not see changes of their objects.
    pub failing_watches: Vec<String>,
    /// The work queue.
    pub queue: WorkQueue,
    /// Number of objects that are not ready.
    pub unsettled: u64,
    /// The objects that have not been ready for longest: at most 10, oldest first. `/explain` shows all objects that are not ready.
    pub waits: Vec<Waiting>,
    /// Actions that the controller withholds as a precaution, for example because of the deletion brake. The text is that of the Event.
    pub held_back: Vec<String>,
    /// Whether the controller only plans and changes nothing: `--dry-run`.
    pub dry_run: bool,
    /// Load balancers without a Service, in the shards of this replica: at most 200. Those whose deletion an operator has allowed come
    /// first, then the oldest.
    pub orphans: Vec<Orphan>,
    /// Number of further load balancers without a Service.
    pub more_orphans: u64,
}

/// An object that is not ready.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Waiting {
    /// Kind of the object: `Service` or `Node`.
    pub kind: String,
    /// `NAMESPACE/NAME` of a Service, name of a Node.
    pub key: String,
    /// Time since which the object is not ready.
    pub since: Option<Timestamp>,
    /// What the object waits for, in the words of the Event. `None`: work is in progress.
    pub waits_for: Option<String>,
    /// The adapter's typed reason, if the adapter refused the request.
    pub reason: Option<String>,
}

/// A load balancer of this cluster whose Service does not exist.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Orphan {
    /// UID of the former Service.
    pub uid: String,
    /// `NAMESPACE/NAME` of the former Service, from the tags.
    pub key: String,
    /// The vendor's IDs of the objects.
    pub vendor_ids: Vec<String>,
    /// Time at which this process found the load balancer. `None` while its Service may still appear, or if its Service was just deleted.
    pub since: Option<Timestamp>,
    /// Whether an operator has allowed the deletion of the load balancer.
    pub released: bool,
    /// Why the load balancer still exists, in the words of the Event.
    pub waits_for: Option<String>,
}

/// The connection of a controller to its adapter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AdapterLink {
    /// The replica that serves, or `None` if the controller knows no such replica.
    pub replica: Option<String>,
    /// Why the adapter cannot be called.
    pub trouble: Option<String>,
}

/// The work queue of a controller.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkQueue {
    /// Number of objects that wait in the queue.
    pub waiting: u64,
    /// Number of objects that are being reconciled.
    pub running: u64,
    /// Number of objects that will be reconciled again later.
    pub later: u64,
    /// Time that the oldest object in the queue has waited, in seconds.
    pub oldest_seconds: f64,
}

/// `GET /explain` of a controller: the objects that are not ready, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Explanations {
    /// The objects: at most 500.
    pub objects: Vec<Explanation>,
    /// Number of further objects.
    pub more: u64,
}

/// `GET /explain?key=KEY` of a controller: the desired state of an object in the cloud, and why this state is not reached yet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Explanation {
    /// Name of the controller, such as `service-controller`.
    pub controller: String,
    /// Kind of the object: `Service` or `Node`.
    pub kind: String,
    /// `NAMESPACE/NAME` of a Service, name of a Node.
    pub key: String,
    /// Whether the object is in this process's cache.
    pub known: bool,
    /// Whether this replica holds the object's shard. If not, another replica may hold the shard.
    pub held: bool,
    /// The shard of the object.
    pub shard: u32,
    /// State of the object.
    pub state: State,
    /// The desired state in the cloud, as text with several lines.
    pub wanted: Vec<String>,
    /// The state in the cached listing of the cloud, as text with several lines.
    pub cloud: Vec<String>,
    /// The actions of the last plan that are not done yet, one line per action.
    pub plan: Vec<String>,
    /// What the object waits for, in the words of the Event.
    pub waits_for: Option<String>,
    /// The adapter's typed reason, such as `BUDGET_EXHAUSTED`, if the adapter refused the request.
    pub reason: Option<String>,
    /// Time since which the object is not ready.
    pub since: Option<Timestamp>,
    /// Time of the next reconcile.
    pub next_try: Option<Timestamp>,
    /// Number of attempts since the object was last ready.
    pub attempts: u64,
}

/// State of an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum State {
    /// This process has not reconciled the object since its last change, or does not hold the object's shard.
    #[default]
    NotLookedAt,
    /// The object is being reconciled.
    Working,
    /// The object waits for something, which `waitsFor` names.
    Waiting,
    /// The object is in sync.
    Settled,
    /// The controller does not manage this object. `wanted` gives the reason.
    NotOurs,
    /// A state that only newer controllers report.
    #[serde(other)]
    Unknown,
}

/// `GET /plan` of a controller: the changes that the controller would make now for objects that are not ready. The adapter computes them in
/// dry runs. Objects are sorted by key, at most 100 per page; `GET /plan?after=KEY` returns the next page.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Plans {
    /// Name of the controller, such as `service-controller`.
    pub controller: String,
    /// Whether the controller changes nothing: `--dry-run`.
    pub dry_run: bool,
    /// Number of objects in the shards of this replica that were reconciled since the start. If such an object is on no page, it is in
    /// sync.
    pub looked_at: u64,
    /// Number of objects in the shards of this replica, plus one while the listing is incomplete. If this number is higher than
    /// `looked_at`, the plans are incomplete.
    pub of: u64,
    /// The objects: at most 100.
    pub objects: Vec<Priced>,
    /// The key after which the next page starts. `None` on the last page.
    pub next: Option<String>,
}

/// The planned actions for one object, with their cost.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Priced {
    /// Kind of the object: `Service` or `Node`; `Route` for the route of a node that no longer exists.
    pub kind: String,
    /// `NAMESPACE/NAME` of a Service, name of a Node, destination of a route.
    pub key: String,
    /// Planned writes to the API server, one line each, as text.
    pub cluster: Vec<String>,
    /// Planned calls to the vendor. A call for several objects is listed only with the first of these objects.
    pub vendor: Vec<VendorStep>,
    /// Why there is no plan, or what the plan waits for first, in the words of the Event.
    pub trouble: Option<String>,
    /// The adapter's typed reason for `trouble`, if the adapter refused the request.
    pub reason: Option<String>,
}

/// A call that would change something in the cloud.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VendorStep {
    /// Description of the call, such as `create listener tcp/443`.
    pub description: String,
    /// The vendor's name of the operation, such as `CreateListener`.
    pub operation: String,
    /// The family whose budget the call uses, such as `loadbalancer`.
    pub family: String,
}
