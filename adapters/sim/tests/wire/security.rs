//! Tests of the program `adapter-sim` with callers that lack permission, and with hostile clients.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test should panic on an unexpected result, and prints its measurements"
)]
#![expect(clippy::disallowed_methods, reason = "these tests call no vendor, so there are no calls to count")]

mod callers;
mod credentials;
mod hostile;
mod program;
