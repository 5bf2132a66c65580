//! The gate and the port over real connections: who is let through, and what happens to connections meanwhile.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test ends where something unexpected happens"
)]

mod bench;
mod callers;
mod connections;
mod review;
mod rotation;
