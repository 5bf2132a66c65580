//! Clients with different strategies, which always have calls to send.

mod aimd;
mod budget;
mod cubic;
mod fixed;
mod workers;

pub(crate) use self::{
    aimd::Aimd,
    budget::{Budget, Saturated},
    cubic::Cubic,
    fixed::Fixed,
    workers::Workers,
};
