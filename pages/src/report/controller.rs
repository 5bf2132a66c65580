//! The pages of the controllers.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// `GET /status` of a controller.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ControllerStatus {
    /// Such as `service-controller`.
    pub controller: String,
    /// Of the process.
    pub version: String,
    /// Whose objects at the cloud are its own.
    pub cluster_id: String,
    /// Into how many shards the objects are parted.
    pub shards: u32,
    /// The shards that this replica holds now.
    pub held: Vec<u32>,
    /// Whether both sides were listed since it started: before that, what it does not show may be there. `None`: it is older, and
    /// does not say.
    pub listed: Option<bool>,
    /// The adapter that it talks to.
    pub adapter: AdapterLink,
    /// The objects that are looked at, or are to be.
    pub queue: WorkQueue,
    /// Objects that are not as wanted now.
    pub unsettled: u64,
    /// Of these, those that are not as wanted for longest: at most 10, the oldest first. `/explain` has all of them.
    pub waits: Vec<Waiting>,
    /// What is not done for caution, such as by the deletion brake, in the words of its Event.
    pub held_back: Vec<String>,
    /// It looks and plans, and changes nothing: `--dry-run`.
    pub dry_run: bool,
    /// Load balancers of its shards that no Service wants any more: at most 200, those that are released first, then the oldest.
    pub orphans: Vec<Orphan>,
    /// How many more of them there are.
    pub more_orphans: u64,
}

/// An object that is not as wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Waiting {
    /// `Service` or `Node`.
    pub kind: String,
    /// `NAMESPACE/NAME` of a Service, the name of a Node.
    pub key: String,
    /// Since when it is not as wanted.
    pub since: Option<Timestamp>,
    /// What it waits for, in the words of its Event. `None`: it is worked on.
    pub waits_for: Option<String>,
    /// The adapter's typed reason, if it was the adapter that refused.
    pub reason: Option<String>,
}

/// A load balancer of this cluster whose Service is gone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Orphan {
    /// The UID that its Service had.
    pub uid: String,
    /// `NAMESPACE/NAME` that its Service had, as its tags say.
    pub key: String,
    /// The vendor's IDs of what is there.
    pub vendor_ids: Vec<String>,
    /// Since when this process knows of it. `None`: its Service may still come, or is just gone.
    pub since: Option<Timestamp>,
    /// A person has said that it may go.
    pub released: bool,
    /// Why it is still there, in the words of its Event.
    pub waits_for: Option<String>,
}

/// How a controller gets on with its adapter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AdapterLink {
    /// The replica that serves. `None`: none is known.
    pub replica: Option<String>,
    /// Why it cannot be asked.
    pub trouble: Option<String>,
}

/// The work queue of a controller.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkQueue {
    /// Objects whose turn has not come.
    pub waiting: u64,
    /// Objects that are looked at now.
    pub running: u64,
    /// Objects that are looked at again at a later time.
    pub later: u64,
    /// For how long the oldest of those that wait has waited.
    pub oldest_seconds: f64,
}

/// `GET /explain` of a controller: those objects that are not as wanted, the oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Explanations {
    /// At most 500.
    pub objects: Vec<Explanation>,
    /// How many more there are.
    pub more: u64,
}

/// `GET /explain?key=KEY` of a controller: what it wants of the cloud for an object, and why that is not so yet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Explanation {
    /// Such as `service-controller`.
    pub controller: String,
    /// Of the object: `Service` or `Node`.
    pub kind: String,
    /// `NAMESPACE/NAME` of a Service, the name of a Node.
    pub key: String,
    /// False: this process has no such object in its mirror.
    pub known: bool,
    /// False: another replica holds its shard.
    pub held: bool,
    /// The shard that it is in.
    pub shard: u32,
    /// How far it is.
    pub state: State,
    /// What is wanted of the cloud. A line each, for people.
    pub wanted: Vec<String>,
    /// What the mirror of the cloud shows. A line each, for people.
    pub cloud: Vec<String>,
    /// The last plan that had something to do. A line an action.
    pub plan: Vec<String>,
    /// What it waits for, in the words of its Event.
    pub waits_for: Option<String>,
    /// The adapter's typed reason, such as `BUDGET_EXHAUSTED`, if it was the adapter that refused.
    pub reason: Option<String>,
    /// Since when it is not as wanted.
    pub since: Option<Timestamp>,
    /// When it is looked at again.
    pub next_try: Option<Timestamp>,
    /// How often it was tried since.
    pub attempts: u64,
}

/// How far an object is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum State {
    /// It was not looked at by this process, or is none of its.
    #[default]
    NotLookedAt,
    /// It is looked at now.
    Working,
    /// Something has to happen first; `waitsFor` says what.
    Waiting,
    /// Everything is as wanted.
    Settled,
    /// It is none of the controller's: nothing is done for it. `wanted` says why.
    NotOurs,
    /// A word of a newer controller.
    #[serde(other)]
    Unknown,
}

/// `GET /plan` of a controller: what it would do now about the objects that are not as wanted, tried out at the adapter without changing
/// anything. In the order of their keys, at most 100 on a page; `GET /plan?after=KEY` has those that follow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Plans {
    /// Such as `service-controller`.
    pub controller: String,
    /// It changes nothing: `--dry-run`.
    pub dry_run: bool,
    /// How many objects of its shards were looked at since it started: those that are not among `objects` are as wanted.
    pub looked_at: u64,
    /// How many objects of its shards there are, and one more while not all are listed. More than `looked_at`: the plans are not complete yet.
    pub of: u64,
    /// At most 100.
    pub objects: Vec<Priced>,
    /// The key to go on after. `None`: these were the last.
    pub next: Option<String>,
}

/// What would be done about one object, with its price.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Priced {
    /// Of the object: `Service` or `Node`; `Route` for the route of a node that is gone.
    pub kind: String,
    /// `NAMESPACE/NAME` of a Service, the name of a Node, the destination of a route.
    pub key: String,
    /// What would be written to the API server. A line each, for people.
    pub cluster: Vec<String>,
    /// The changes at the vendor, a call each. One that several objects share is told of the first of them.
    pub vendor: Vec<VendorStep>,
    /// Why it cannot be said what would be done, or what it waits for first, in the words of its Event.
    pub trouble: Option<String>,
    /// The adapter's typed reason of `trouble`, if it was the adapter that refused.
    pub reason: Option<String>,
}

/// One call that would change something at the vendor.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VendorStep {
    /// In words: `create listener tcp/443`.
    pub description: String,
    /// The vendor's operation, such as `CreateListener`.
    pub operation: String,
    /// The family whose budget pays, such as `loadbalancer`.
    pub family: String,
}
