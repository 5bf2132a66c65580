//! The code that the three controllers share. Each controller contains only the code for its own subject.
//!
//! A controller compares two mirrors. The modules in reading order:
//!
//! - [`config`]: turns flags into a checked configuration, and reports all faults at once.
//! - [`leadership`]: the shards that this process holds, and the terms for which it holds them.
//! - [`start`]: runs a process from `main` to a graceful stop; waits for the API server and the adapter instead of crash-looping.
//! - [`mirror`]: keeps the desired state in Kubernetes and the state in the cloud in trimmed local copies of known age.
//! - [`queue`] and [`retry`]: decide which key is reconciled next, and when a failed key is retried.
//! - [`adapter`]: the client of the cloud adapter; no other module builds a request context.
//! - [`kube_api`]: calls to the API server, each with a time limit.
//! - [`brake`]: limits how many objects are deleted within a window.
//! - [`events`]: writes the Event and the log line with the same text.
//! - [`health`], [`metrics`], [`explain`]: show the state of the process to users and programs.
//! - [`provider_id`], [`node`], [`selector`], [`cidr`], [`clock`]: small shared types.
//! - `testing` (feature): builders and stateful fakes of both sides.
//!
//! Decisions about nodes, Services or routes are deliberately not here.

pub mod adapter;
pub mod brake;
pub mod cidr;
pub mod clock;
pub mod config;
pub mod events;
pub mod explain;
pub mod health;
pub mod kube_api;
pub mod leadership;
pub mod metrics;
pub mod mirror;
pub mod node;
mod outage;
pub mod provider_id;
pub mod queue;
pub mod retry;
pub mod selector;
pub mod start;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod text;

pub use clock::Clock;
pub use outage::Link;
pub use provider_id::ProviderId;
pub use retry::Again;
