//! Quotas of a project.

use serde::{Deserialize, Serialize};

use super::error::ApiError;

/// Quotas of the project. A call that would exceed a quota is refused as `quota_exceeded` and changes nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Quotas {
    /// The number of load balancers in the project, including those that are being deleted.
    pub load_balancers: usize,
    /// The number of listeners on one load balancer.
    pub listeners_per_load_balancer: usize,
    /// The number of pools on one load balancer.
    pub pools_per_load_balancer: usize,
    /// The number of members in one pool.
    pub members_per_pool: usize,
    /// The number of routes in the table.
    pub routes: usize,
}

impl Default for Quotas {
    fn default() -> Self {
        Self {
            load_balancers: 1000,
            listeners_per_load_balancer: 50,
            pools_per_load_balancer: 50,
            // One pool can contain all nodes of the largest clusters with which Kubernetes is tested.
            members_per_pool: 5000,
            routes: 10_000,
        }
    }
}

/// Returns an error if creating `wanted` more objects would exceed the quota `limit`. `used`: the current number of objects.
pub(super) fn check(name: &'static str, limit: usize, used: usize, wanted: usize) -> Result<(), ApiError> {
    if used.saturating_add(wanted) > limit { Err(ApiError::quota(name, limit, used)) } else { Ok(()) }
}
