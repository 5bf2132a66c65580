//! The program `adapter-sim` among callers that may not, and peers that mean ill.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test ends where something unexpected happens"
)]

mod callers;
mod credentials;
mod hostile;
mod program;
