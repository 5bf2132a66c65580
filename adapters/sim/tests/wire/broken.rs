//! Adapters that are wrong on purpose: each mistake shows over gRPC or at the cloud, and not in the correct adapter.

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
