//! `cloudctl` shows users and programs what the controllers and the adapter do. Under the name `kubectl-cloud`, it is the command `kubectl
//! cloud`.
//!
//! The program reads the status pages of the processes through port-forwards of the API server or at URLs, and reads objects in the
//! cluster. It has no access to the cloud. If something cannot be read, the program lists the gap at the end and shows everything else.
//!
//! - `options`: the flags.
//! - `release`: the release of the chart whose objects are read.
//! - `session`: the processes that are read, and the ways to reach them: `cluster`, `kubeconfig`, `http`.
//! - One module per command: reads pages and objects, builds the report in a pure function, and formats it for users.
//! - `output`: reports as tables, JSON or YAML.
//! - `complete`: completion for kubectl.

mod adopt;
mod check;
mod cluster;
mod clusters;
mod commands;
mod complete;
mod errors;
mod explain;
mod gaps;
mod http;
mod kubeconfig;
mod labels;
mod limits;
mod missing;
mod objects;
mod options;
mod orphans;
mod output;
mod page;
mod plan;
mod pods;
mod program;
mod release;
mod session;
mod status;
mod version;
mod words;

pub use self::{
    adopt::{AdoptReport, Change, Former, FormerLease},
    check::{Check, CheckReport, CheckResult},
    clusters::ClustersReport,
    explain::{ExplainReport, OfBudget},
    missing::Missing,
    objects::ObjectEvent,
    orphans::{OrphansReport, Outcome},
    plan::{PlanReport, Planned, Planner, Price},
    program::run,
    status::{ProcessReport, Shard, StatusReport},
    version::{ProcessVersion, VersionReport},
};
