//! What tests of several subjects need: a simulated cloud on a port, and what is asked of it.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test ends where something unexpected happens"
)]

pub(crate) mod cloud;
pub(crate) mod wanted;
