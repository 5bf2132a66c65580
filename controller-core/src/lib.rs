//! What the three controllers share, so that each of them is left with its own subject: what to do, and why.
//!
//! A controller is a join of two mirrors. In reading order:
//!
//! - [`config`]: flags to a checked configuration, all faults reported at once.
//! - [`start`]: a process from `main` to a graceful stop; it waits for the API server and the adapter, it never crash-loops.
//! - [`mirror`]: what Kubernetes wants and what the cloud has, kept locally, trimmed, with a known age.
//! - [`queue`] and [`requeue`]: which key is worked on next, and when a failed one is tried again.
//! - [`adapter`]: the client of the cloud adapter; the only place where a request context is made.
//! - [`kube_api`]: calls to the API server, each with a time limit.
//! - [`brake`]: how many removals may happen within a while.
//! - [`events`]: one call that writes Event and log line with the same words.
//! - [`health`], [`metrics`], [`explain`]: what a person or a machine can see from outside.
//! - [`provider_id`], [`node`], [`cidr`], [`clock`]: small shared vocabulary.
//! - `testing` (feature): builders and stateful fakes of both sides.
//!
//! Deliberately not here: any decision about nodes, Services or routes.

pub mod adapter;
pub mod brake;
pub mod cidr;
pub mod clock;
pub mod config;
pub mod events;
pub mod explain;
pub mod health;
pub mod kube_api;
pub mod metrics;
pub mod mirror;
pub mod node;
mod outage;
pub mod provider_id;
pub mod queue;
pub mod requeue;
pub mod start;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use clock::Clock;
pub use outage::Link;
pub use provider_id::ProviderId;
pub use requeue::Again;
