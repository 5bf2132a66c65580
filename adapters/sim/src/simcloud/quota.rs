//! Quotas of a project.

use serde::{Deserialize, Serialize};

use super::error::ApiError;

/// Quotas of the project. A call that would exceed a quota is refused as `quota_exceeded` and changes nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Quotas {
    /// Load balancers in the project, including those being deleted.
    pub load_balancers: usize,
    /// Listeners on one load balancer.
    pub listeners_per_load_balancer: usize,
    /// Pools on one load balancer.
    pub pools_per_load_balancer: usize,
    /// Members in one pool.
    pub members_per_pool: usize,
    /// Routes in the table.
    pub routes: usize,
}

impl Default for Quotas {
    fn default() -> Self {
        Self {
            load_balancers: 1000,
            listeners_per_load_balancer: 50,
            pools_per_load_balancer: 50,
            // One pool holds the nodes of the largest clusters that Kubernetes is tested with.
            members_per_pool: 5000,
            routes: 10_000,
        }
    }
}

/// Refuses to create more than `limit` objects of a kind, of which there are `used`.
pub(super) fn check(name: &'static str, limit: usize, used: usize, wanted: usize) -> Result<(), ApiError> {
    if used.saturating_add(wanted) > limit { Err(ApiError::quota(name, limit, used)) } else { Ok(()) }
}
