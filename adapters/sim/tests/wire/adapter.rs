//! Tests of the whole adapter over gRPC with a simulated cloud. They check the promises of the contract, and the number of calls that the
//! cloud counts.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test should panic on an unexpected result"
)]

mod absence;
pub(crate) mod bench;
mod credentials;
mod faults;
mod fewer_calls;
mod instances;
mod load_balancers;
mod ownership;
mod process;
mod refusals;
mod restarts;
mod routes;
mod status;
mod telemetry;
