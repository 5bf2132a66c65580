//! Adapters that are wrong on purpose: each mistake shows over gRPC or at the cloud, and not in the good adapter.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
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

#[expect(dead_code, reason = "shared with the tests of the good adapter, which need more of it")]
#[path = "../adapter/bench.rs"]
mod bench;
#[expect(dead_code, reason = "shared with other tests, which need more of it")]
#[path = "../support/cloud.rs"]
mod cloud;
#[expect(dead_code, reason = "shared with other tests, which need more of it")]
#[path = "../conditions/program.rs"]
mod program;
#[expect(dead_code, reason = "shared with other tests, which need more of it")]
#[path = "../support/wanted.rs"]
mod wanted;
