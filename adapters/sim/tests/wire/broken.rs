//! Adapters with deliberate faults: each shows over gRPC or in the cloud, and the correct adapter shows none.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test ends where something unexpected happens"
)]

mod balancers;
mod budget;
mod info;
mod instances;
mod making;
mod process;
mod routes;
mod symptoms;
mod world;
