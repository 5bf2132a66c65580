//! Computes the writes that bring the cloud to the desired state. Pure functions, without vendor calls or clock.
//!
//! Additions come before removals, so that traffic is not interrupted. The tag that marks an object as complete comes last.

use cloud_adapter::driver::{DesiredLoadBalancer, LoadBalancerRecord, RouteChanges, VendorError};
use cloud_api_proto::v1alpha1::Fence;

use crate::{load_balancers::Detail, not_written::not_written, step::Step};

/// Returns the missing writes, in order. Empty if the load balancer is in sync.
///
/// # Errors
/// Returns an error for changes that this cloud cannot make, or cannot make without recreating an object.
pub(crate) fn plan(
    _desired: &DesiredLoadBalancer,
    _fence: &Fence,
    _observed: Option<&LoadBalancerRecord<Detail>>,
) -> Result<Vec<Step>, VendorError> {
    Err(not_written("plan: the writes from the observed to the desired state", "src/plan.rs"))
}

/// Returns the writes that delete a load balancer with its listeners and pools, in the order of their dependencies. Empty if the deletion
/// is already in progress.
pub(crate) fn plan_deletion(_observed: &LoadBalancerRecord<Detail>) -> Vec<Step> {
    vec![Step::NotWritten("plan_deletion: the writes that delete a load balancer")]
}

/// Returns the vendor calls for route changes: either one call for all changes, or one call for each change. Removals come first.
pub(crate) fn plan_routes(_changes: &RouteChanges) -> Vec<Step> {
    vec![Step::NotWritten("plan_routes: route changes as vendor calls")]
}
