//! Simulates the budget with a model of a vendor and compares it with other strategies: workers that back off, a fixed rate, the AWS SDK's
//! CUBIC, plain AIMD, one plain queue. Virtual time and reproducible random numbers make hours pass in milliseconds, and give equal figures
//! in equal runs.
//!
//! Only tests and benchmarks use this crate; it is not shipped.

pub mod batch;
pub mod chance;
pub mod clients;
mod pace;
pub mod queue;
pub mod share;
pub mod storm;
pub mod throttling;
mod vendor;
mod world;

pub use self::{
    vendor::{Vendor, Verdict},
    world::{CallerAction, Client, Log, World},
};
