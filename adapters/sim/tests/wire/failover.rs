//! Several `adapter-sim` processes with one simulated cloud and one Lease. Tests leader election, the effect of a failover on controllers,
//! and the vendor calls of all replicas together. Uses real time, because the processes are killed.

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

use std::time::Duration;

/// Time limit for every wait, long enough for a busy host.
const PATIENCE: Duration = Duration::from_secs(60);
/// Pause between two evaluations of a condition.
const TICK: Duration = Duration::from_millis(5);

/// Waits until a condition is true.
async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let waited = tokio::time::timeout(PATIENCE, async {
        while !is_so().await {
            tokio::time::sleep(TICK).await;
        }
    });
    waited.await.unwrap_or_else(|_| panic!("timeout: {what}"));
}
