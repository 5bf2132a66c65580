//! Clients with different strategies, which always have calls to send.

mod aimd;
mod cubic;
mod fixed;
mod ours;
mod workers;

pub use self::{aimd::Aimd, cubic::Cubic, fixed::Fixed, ours::Ours, workers::Workers};
