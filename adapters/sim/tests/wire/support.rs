//! Code that several groups of tests share: a simulated cloud on a port, and requests for load balancers.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test should panic on an unexpected result"
)]

pub(crate) mod cloud;
pub(crate) mod wanted;
