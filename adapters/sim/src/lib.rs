//! The simulated cloud and its adapter.
//!
//! [`simcloud`] is a small cloud of its own: a real HTTP/JSON server with instances, load balancers and routes, whose
//! latency, limits and faults are set while it runs. It knows nothing of Kubernetes and nothing of the adapter.
//!
//! [`SimDriver`] is an ordinary vendor driver for it, in reading order:
//! - `driver`: the runtime's traits; `options`: the flags of `adapter-sim`;
//! - `client`: one function a vendor call; `answers`: what is read, `simcloud::requests`: what is sent; `classify`: refusals;
//! - `plan`, with `step`: what is missing, pure; `parameters`: the vendor extras;
//! - `translate`, `ownership`, `provider_id`: the cloud's words, tags and IDs in the contract's; `heritage`: what others made.
//!
//! [`broken`] is the same adapter with one mistake, for those who test tests.

mod answers;
pub mod broken;
mod classify;
mod client;
mod driver;
mod heritage;
mod options;
mod ownership;
mod parameters;
mod plan;
mod provider_id;
pub mod simcloud;
mod step;
mod translate;

pub use self::{
    driver::{ClientTokens, Settings, SimDriver},
    options::SimOptions,
};
