//! Clients that always have calls to send, each with its own strategy.

mod aimd;
mod cubic;
mod fixed;
mod ours;
mod workers;

pub use self::{aimd::Aimd, cubic::Cubic, fixed::Fixed, ours::Ours, workers::Workers};
