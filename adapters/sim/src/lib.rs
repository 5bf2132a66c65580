//! The simulated cloud and its adapter.
//!
//! [`simcloud`] is a small independent cloud: an HTTP/JSON server with instances, load balancers and routes, whose latency, limits and
//! faults are set while it runs. It is independent of Kubernetes and of the adapter.
//!
//! [`SimDriver`] is an ordinary vendor driver for this cloud. Its modules, in reading order:
//! - `driver`: the traits of the runtime; `options`: the flags of `adapter-sim`;
//! - `client`: a function for each vendor call; `answers`: responses, `simcloud::requests`: requests; `classify`: errors;
//! - `plan`, with `step`: pure functions that compute the missing writes; `parameters`: vendor-specific parameters;
//! - `translate`, `ownership`: convert values and tags of the cloud to those of the contract; `heritage`: load balancers of other
//!   controllers.
//!
//! [`broken`] is the same adapter with one deliberate fault, to test the conformance suite.

pub mod broken;
mod classify;
mod client;
mod driver;
mod heritage;
mod options;
mod ownership;
mod parameters;
mod plan;
mod responses;
pub mod simcloud;
mod step;
mod translate;

pub use self::{
    driver::{ClientTokens, Settings, SimDriver},
    options::SimOptions,
};

/// The first part of provider IDs, before `://`. The region and the instance ID follow.
pub(crate) const SCHEME: &str = "sim";
