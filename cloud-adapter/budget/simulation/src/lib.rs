//! The budget against a model of a vendor, beside what others do instead: workers that back off, a fixed rate, the AWS
//! SDK's CUBIC, plain AIMD, one plain queue. Virtual time, plain numbers, the same chance each time: hours pass in
//! milliseconds, and the same run gives the same figures.
//!
//! Only tests and benches use it; nothing of it is shipped.

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
