//! What is missing until the cloud is as desired. Pure: no vendor, no clock.
//!
//! Additions come before removals, so that traffic is never cut for a moment. The tag that says "complete" comes last.

use cloud_adapter::driver::{DesiredLoadBalancer, LoadBalancerRecord, RouteChanges, VendorError};
use cloud_api_proto::v1alpha1::Fence;

use crate::{load_balancers::Detail, not_written::not_written, step::Step};

/// The writes that are missing, in order; empty if none is.
///
/// # Errors
/// What this cloud cannot do, or cannot change in place.
pub(crate) fn plan(
    _desired: &DesiredLoadBalancer,
    _fence: &Fence,
    _observed: Option<&LoadBalancerRecord<Detail>>,
) -> Result<Vec<Step>, VendorError> {
    Err(not_written("plan: the writes from what is there to what is desired", "src/plan.rs"))
}

/// What removes a load balancer with all its parts, in dependency order. Empty while it is on the way out already.
pub(crate) fn plan_deletion(_observed: &LoadBalancerRecord<Detail>) -> Vec<Step> {
    vec![Step::NotWritten("plan_deletion: what removes a load balancer")]
}

/// Route changes as vendor calls: one for all, or one each, removals first.
pub(crate) fn plan_routes(_changes: &RouteChanges) -> Vec<Step> {
    vec![Step::NotWritten("plan_routes: route changes as vendor calls")]
}
