//! What the three controllers share, so that each of them contains only its own subject: what to do, and why.
//!
//! A controller compares two mirrors. In reading order:
//!
//! - [`config`]: flags to a checked configuration, all faults reported at once.
//! - [`leadership`]: the shards that this process holds, and the terms for which it holds them.
//! - [`start`]: a process from `main` to a graceful stop; it waits for the API server and the adapter instead of crash-looping.
//! - [`mirror`]: the desired state in Kubernetes and the state in the cloud, kept locally, trimmed, with a known age.
//! - [`queue`] and [`retry`]: which key is reconciled next, and when a failed one is retried.
//! - [`adapter`]: the client of the cloud adapter; the only place that builds a request context.
//! - [`kube_api`]: calls to the API server, each with a time limit.
//! - [`brake`]: limits how many objects are deleted within a window.
//! - [`events`]: one call that writes the Event and the log line with the same text.
//! - [`health`], [`metrics`], [`explain`]: what users and programs can see from outside.
//! - [`provider_id`], [`node`], [`cidr`], [`clock`]: small shared types.
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
pub mod start;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use clock::Clock;
pub use outage::Link;
pub use provider_id::ProviderId;
pub use retry::Again;
