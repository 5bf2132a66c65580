//! Helpers for the tests of drivers: the program as a separate process, and load balancers to request. Feature `testing`.

#![expect(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::missing_panics_doc,
    clippy::panic,
    reason = "a test should panic on an unexpected result, and calls ports that are not a vendor's"
)]

pub mod hostile;
mod program;
mod wanted;

use std::time::Duration;

use cloud_api_proto::v1alpha1::RequestContext;

pub use self::{
    program::{Program, is_ready},
    wanted::{backend, hashed, spec, tcp, udp, web, with, writer},
};

/// Timeout that is long enough for a busy host.
pub const TIMEOUT: Duration = Duration::from_mins(1);
/// Interval between two evaluations of a condition.
const TICK: Duration = Duration::from_millis(5);

/// Waits until a condition is true.
pub async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let waited = tokio::time::timeout(TIMEOUT, async {
        while !condition().await {
            tokio::time::sleep(TICK).await;
        }
    });
    waited.await.unwrap_or_else(|_| panic!("timeout: {what}"));
}

/// Returns the context of a request of this cluster.
pub fn context(cluster: &str) -> RequestContext {
    RequestContext {
        cluster_id: cluster.to_owned(),
        cluster_name: "prod".to_owned(),
        request_id: "test".to_owned(),
        ..RequestContext::default()
    }
}
