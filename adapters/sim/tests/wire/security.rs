//! The program `adapter-sim` among callers that may not, and peers that mean ill.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test ends where something unexpected happens, and tells what it measured"
)]
#![expect(clippy::disallowed_methods, reason = "no vendor is called here, so there is nothing to count")]

mod callers;
mod credentials;
mod hostile;
mod program;
