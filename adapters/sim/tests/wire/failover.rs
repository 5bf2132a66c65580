//! Tests with several `adapter-sim` processes, one simulated cloud and one Lease. They test leader election, the effect of a failover on
//! controllers, and the vendor calls of all replicas together. They use real time, because the processes are killed.

#![expect(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test should panic on an unexpected result, and calls ports that are not a vendor's"
)]

mod api_server;
mod load;
mod partition;
mod replica;
mod standby;
mod takeover;
