//! What the scheduler promises, each property in virtual time. The numbers are those of the design.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "clippy knows tests, and not their helpers"
)]

mod audit;
mod clock;
mod fairness;
mod limits;
mod random;
mod refusals;
mod shared;
mod world;
