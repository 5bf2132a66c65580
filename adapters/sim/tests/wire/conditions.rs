//! Provokes every error condition that a caller can meet from outside. The tests call the program over gRPC, with a simulated cloud. They
//! also check that no caller, log or metric ever shows a secret.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test should panic on an unexpected result"
)]

mod callers;
mod canary;
mod items;
mod limits;
pub(crate) mod program;
mod replica;
mod reported;
mod requests;
mod table;
mod vendor;
mod world;
