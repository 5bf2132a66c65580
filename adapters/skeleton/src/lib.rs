//! The driver for skeleton: from the contract's words to the cloud's API and back, and nothing else.
//!
//! It has no policy, waits for nothing, retries nothing and keeps no state but where the cloud is and who we are there. In reading
//! order: [`driver`] hands what the runtime asks to the rooms that know; `client` has one function a vendor call, `classify` what
//! answers mean; `instances`, `load_balancers` and `routes` list and look up; `plan` decides (pure) and `step` is one write of a plan;
//! `provider_id` and `ownership` have the names by which objects are found again.
//!
//! What answers `not written yet` is to be written, in the order of the README.

mod classify;
mod client;
pub mod driver;
mod instances;
mod load_balancers;
mod not_written;
mod options;
mod ownership;
mod plan;
mod provider_id;
mod routes;
mod step;

pub use self::{driver::SkeletonDriver, options::SkeletonOptions};
