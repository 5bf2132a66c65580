//! `cloudctl`: shows what the controllers and the adapter do, to users and programs. Under the name `kubectl-cloud` it is `kubectl cloud`.
//!
//! It reads the pages of the processes, over the API server's port-forward or at URLs, and objects in the cluster. It has no access to the
//! cloud. What cannot be read is listed at the end, and the rest is shown.
//!
//! - `options`: the flags.
//! - `session`: the processes that are read, and how they are reached: `cluster`, `kubeconfig`, `http`.
//! - One module per command: what it reads, a pure function that builds its report, and the human-readable form.
//! - `output`: reports as tables, JSON or YAML.
//! - `complete`: completion for kubectl.

mod adopt;
mod cluster;
mod clusters;
mod complete;
mod explain;
mod gaps;
mod http;
mod kubeconfig;
mod limits;
mod missing;
mod objects;
mod options;
mod orphans;
mod output;
mod plan;
mod program;
mod session;
mod status;
mod words;

pub use self::{
    adopt::{AdoptReport, Change, Former, FormerLease},
    clusters::ClustersReport,
    explain::{ExplainReport, OfBudget},
    missing::Missing,
    objects::Told as ToldEvent,
    orphans::{OrphansReport, Outcome},
    plan::{PlanReport, Planned, Planner, Price},
    program::run,
    status::{Shard, StatusReport, Told},
};
