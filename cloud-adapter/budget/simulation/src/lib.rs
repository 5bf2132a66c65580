//! The budget against a model of a vendor, compared with other strategies: workers that back off, a fixed rate, the AWS SDK's CUBIC, plain
//! AIMD, one plain queue. Uses virtual time and reproducible random numbers: hours pass in milliseconds, and equal runs give equal figures.
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
    world::{Client, Log, Next, World},
};
