//! Properties of the scheduler, tested in virtual time.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "clippy recognises tests, but not their helpers"
)]

mod audit;
mod clock;
mod fairness;
mod limits;
mod random;
mod refusals;
mod shared;
mod world;
