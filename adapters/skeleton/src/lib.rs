//! The driver for skeleton. It only translates between the contract and the cloud's API.
//!
//! The driver makes no policy decisions, and does not wait or retry. Its only state is the configuration of the cloud and the credentials.
//! In reading order:
//! [`driver`] passes the runtime's requests to the modules; `client` has one function for each vendor call, `classify` maps answers to
//! faults; `instances`, `load_balancers` and `routes` list and look up objects; `plan` decides (as pure functions), and `step` is one write
//! of a plan. Names, digests and the form of provider IDs are in `cloud_adapter::kit`.
//!
//! Write the functions that answer `not written yet`, in the order of the README.

mod classify;
mod client;
pub mod driver;
mod instances;
mod load_balancers;
mod not_written;
mod options;
mod plan;
mod routes;
mod step;

pub use self::{driver::SkeletonDriver, options::SkeletonOptions};
