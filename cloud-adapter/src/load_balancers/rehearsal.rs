//! Computes the runtime's next action for a load balancer. Driver tests use it. The computation combines the validation, the choice of the
//! load balancer and the driver's plan, without a server, a cloud or a clock. This module is pure.

use std::sync::Arc;

use cloud_api_proto::{
    AdapterError,
    v1alpha1::{Backend, DeleteLoadBalancerRequest, EnsureLoadBalancerRequest, Fence, Owner},
};

use super::{
    decide::{Decision, End, Observed, decide},
    goal::Goal,
    validate,
};
use crate::{
    driver::{Adopter, DesiredLoadBalancer, Driver, LoadBalancerRecord},
    grants::Grants,
};

/// The request whose next action is computed.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// Create or update a load balancer with these backends, which replace the backend set in the request.
    Ensure(Box<EnsureLoadBalancerRequest>, Arc<[Backend]>),
    /// Delete the load balancer.
    Delete(Box<DeleteLoadBalancerRequest>),
}

/// The cluster that sends a request.
#[derive(Clone, Copy, Debug)]
pub struct Cluster<'a> {
    /// The cluster's ID.
    pub id: &'a str,
    /// The cluster's name.
    pub name: &'a str,
}

/// The next action of the runtime.
#[derive(Clone, Debug, PartialEq)]
pub enum NextAction<S> {
    /// Make this vendor write.
    Write(S),
    /// Wait for the vendor.
    Wait,
    /// No action is left.
    Done,
}

/// Returns the next vendor write for a request, given the records of a complete listing.
///
/// # Errors
/// Returns the error that the RPC would return.
pub fn next_action<D: Driver>(
    driver: &D,
    grants: &Grants,
    cluster: Cluster<'_>,
    request: &Request,
    records: &[Arc<LoadBalancerRecord<D::Detail>>],
) -> Result<NextAction<D::Step>, AdapterError> {
    let Cluster { id: cluster_id, name: cluster_name } = cluster;
    let inheritance = |owner: &Owner| grants.inheritance(&owner.namespace, cluster_name);
    let cluster_name = cluster_name.to_owned();
    let (goal, fence) = match request {
        Request::Ensure(request, backends) => {
            let spec = validate::spec(request, &driver.describe())?;
            let terms = validate::terms(request)?;
            let (key, owner) = validate::identity(cluster_id, request.key.clone(), request.owner.clone())?;
            let (hash, backends) = (validate::hash(&spec), Arc::clone(backends));
            let inheritance = inheritance(&owner);
            let desired = DesiredLoadBalancer { key, owner, cluster_name, inheritance, spec, backends, hash };
            (Goal::Present(Arc::new(desired), terms), request.fence.clone())
        }
        Request::Delete(request) => {
            let known = validate::known_id(request.known.as_ref());
            let (key, owner) = validate::identity(cluster_id, request.key.clone(), request.owner.clone())?;
            let inheritance = inheritance(&owner);
            let adopter = Adopter { key, owner, cluster_name, inheritance };
            (
                Goal::Absent { adopter: adopter.into(), adoption: validate::adoption(request)?, known },
                request.fence.clone(),
            )
        }
    };
    let observed = Observed { items: records, fresh: true, former: None };
    Ok(match decide(driver, grants, &goal, &fence.unwrap_or_else(Fence::default), &observed)? {
        Decision::Create(steps)
        | Decision::Write(steps)
        | Decision::Remove(steps)
        | Decision::Replace(_, steps) => steps.into_iter().next().map_or(NextAction::Wait, NextAction::Write),
        Decision::Wait(_) | Decision::Observe => NextAction::Wait,
        Decision::End(End::Present(_) | End::Absent) => NextAction::Done,
    })
}
