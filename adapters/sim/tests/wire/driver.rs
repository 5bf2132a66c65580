//! Tests of the driver through a real session, against a simulated cloud on a loopback port.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test should panic on an unexpected result"
)]

mod bench;
mod capabilities;
mod converging;
mod faults;
mod listing;
