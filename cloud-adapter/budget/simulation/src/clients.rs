//! Clients that always have something to send, each with its own idea of when to.

mod aimd;
mod cubic;
mod fixed;
mod ours;
mod workers;

pub use self::{aimd::Aimd, cubic::Cubic, fixed::Fixed, ours::Ours, workers::Workers};
