//! Adapters with deliberate faults: each fault shows a symptom over gRPC or in the cloud, and the correct adapter shows none.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test should panic on an unexpected result"
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
