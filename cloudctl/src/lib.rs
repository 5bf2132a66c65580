//! `cloudctl`: what the controllers and the adapter do, for people and programs. Called `kubectl-cloud`, it is `kubectl cloud`.
//!
//! It reads what the processes show on their pages, over the API server's port-forward or at URLs, and what lies in the cluster. It has no
//! access to the cloud. What cannot be read is named at the end, and the rest is shown.
//!
//! - `options`: the flags.
//! - `session`: the processes that are read, and how they are reached: `cluster`, `kubeconfig`, `http`.
//! - A module a command: what it asks for, a pure function that makes its report of that, and how people see it.
//! - `output`: reports as tables, JSON or YAML.
//! - `complete`: what kubectl asks while somebody types.

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
