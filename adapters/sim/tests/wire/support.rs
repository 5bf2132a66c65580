//! Code that several groups of tests share: a simulated cloud on a port, and requests for load balancers.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test should panic on an unexpected result"
)]

pub(crate) mod cloud;
pub(crate) mod routes;
pub(crate) mod wanted;

use cloud_api_proto::v1alpha1::{Fence, RequestContext};

pub(crate) use cloud_adapter::kit::testing::{Program, TIMEOUT, until};

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_adapter-sim");

pub(crate) fn context() -> RequestContext {
    cloud_adapter::kit::testing::context(wanted::CLUSTER)
}

/// Returns a context that requires a fresh answer from the vendor.
pub(crate) fn live() -> RequestContext {
    RequestContext { max_staleness: Some(prost_types::Duration::default()), ..context() }
}

pub(crate) fn fence(epoch: u64, sequence: u64) -> Fence {
    Fence { scope: "service-controller/0".into(), epoch, sequence }
}
