//! Shared by tests of several subjects: a simulated cloud on a port, and requests for load balancers.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test ends where something unexpected happens"
)]

pub(crate) mod cloud;
pub(crate) mod wanted;
