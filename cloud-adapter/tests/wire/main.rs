//! Tests the port and its gate, which authenticates callers, over real connections: admission of callers, and limits of connections.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails at the first unexpected result"
)]

mod bench;
mod callers;
mod connections;
mod review;
mod rotation;
