//! Computes the writes that bring the cloud to the desired state. Pure: no vendor calls, no clock.
//!
//! Additions come before removals, so that traffic is not interrupted. The tag that marks an object as complete comes last.

use cloud_adapter::driver::{DesiredLoadBalancer, LoadBalancerRecord, RouteChanges, VendorError};
use cloud_api_proto::v1alpha1::Fence;

use crate::{load_balancers::Detail, not_written::not_written, step::Step};

/// The missing writes, in order; empty if the load balancer is in sync.
///
/// # Errors
/// Returns an error for what this cloud cannot do, or cannot change in place.
pub(crate) fn plan(
    _desired: &DesiredLoadBalancer,
    _fence: &Fence,
    _observed: Option<&LoadBalancerRecord<Detail>>,
) -> Result<Vec<Step>, VendorError> {
    Err(not_written("plan: the writes from the observed to the desired state", "src/plan.rs"))
}

/// Deletes a load balancer with all its parts, in the order of their dependencies. Empty while it is being deleted already.
pub(crate) fn plan_deletion(_observed: &LoadBalancerRecord<Detail>) -> Vec<Step> {
    vec![Step::NotWritten("plan_deletion: the writes that delete a load balancer")]
}

/// Route changes as vendor calls: one for all, or one each, removals first.
pub(crate) fn plan_routes(_changes: &RouteChanges) -> Vec<Step> {
    vec![Step::NotWritten("plan_routes: route changes as vendor calls")]
}
