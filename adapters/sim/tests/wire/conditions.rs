//! Every condition that a caller can meet, provoked from outside: the program over gRPC, in front of a simulated cloud. And secrets that no
//! caller, log or metric may ever show.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test ends where something unexpected happens"
)]

mod callers;
mod canary;
mod items;
mod limits;
pub(crate) mod program;
mod replica;
mod requests;
mod table;
mod told;
mod vendor;
mod world;
