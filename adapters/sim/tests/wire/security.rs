//! The program `adapter-sim` with callers that lack permission, and with hostile peers.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test ends where something unexpected happens, and prints what it measured"
)]
#![expect(clippy::disallowed_methods, reason = "no vendor is called here, so there is nothing to count")]

mod callers;
mod credentials;
mod hostile;
mod program;
