//! The verbs Ensure and Delete. A request is converted to a validated goal, given to the key's task, and answered. This module makes no
//! vendor writes.

use std::{sync::Arc, time::Duration};

use cloud_api_proto::{
    AdapterError, Reason,
    v1alpha1::{
        DeleteLoadBalancerRequest, DeleteLoadBalancerResponse, EnsureLoadBalancerRequest,
        EnsureLoadBalancerResponse, Fence, LoadBalancerState, Owner, PlannedStep, cost::Source,
    },
};
use tokio::time::Instant;

use super::{
    converge::{Failure, Order, Progress},
    decide::{Decision, End, Observed, decide},
    goal::Goal,
    response::{self, Waits},
    service::Service,
    validate,
};
use crate::{
    auth::Role,
    context::Context,
    driver::{Adopter, DesiredLoadBalancer, Driver, Item as _, LoadBalancerRecord, planned},
    vendor::{Purpose, QueuePosition},
};

/// Maximum time for which an RPC waits for its task, and the margin before the RPC's deadline.
const WAIT: Duration = Duration::from_secs(2);
const MARGIN: Duration = Duration::from_millis(500);

/// Returns the error for operators, who only make dry runs and cannot upload a backend set.
fn unknown_set(error: AdapterError, role: Role) -> AdapterError {
    if role == Role::Operator && error.reason == Reason::BackendSetUnknown {
        let text = "this backend set is not cached, and an operator cannot put one: use a backend set that \
                    service-controller currently uses";
        AdapterError::new(Reason::BackendSetUnknown, text)
    } else {
        error
    }
}

/// The plan for a goal: the decision, and its steps as a dry run reports them.
type DryRun<D> = (Decision<<D as Driver>::Detail, <D as Driver>::Step>, Vec<PlannedStep>);

impl<D: Driver> Service<D> {
    pub(super) async fn ensure(
        &self,
        request: EnsureLoadBalancerRequest,
        context: &Context,
    ) -> Result<EnsureLoadBalancerResponse, AdapterError> {
        self.rpc.may_change(context, request.dry_run, request.fence.as_ref())?;
        let (goal, owner) = self.desired(&request, context)?;
        if request.dry_run {
            let (next, plan) = self.dry_run(&goal, context).await?;
            return Ok(response::dry_ensure(&next, plan, cost(context, Source::Snapshot)));
        }
        let converger = &self.converger;
        let key = goal.key();
        let fence = converger.fences.admit(&key.cluster_id, request.fence.as_ref(), &key.owner_uid)?;
        if let Some(record) = self.nothing_to_do(&goal, &fence, context)? {
            self.rpc.metrics.noop("EnsureLoadBalancer");
            context.session.meter().absorb(&converger.unpaid(key));
            return Ok(response::present(&record.summary, 0, cost(context, Source::Memory)));
        }
        let (progress, position) = self.work(goal, fence, &owner, context).await?;
        let cost = cost(context, Source::Snapshot);
        match progress {
            Progress::Working { done, total, waits_for, failure } => {
                Ok(response::pending(done, total, self.waits(waits_for, failure.as_ref(), &position), cost))
            }
            Progress::Ended { done, result: Ok(End::Present(record)), .. } => {
                Ok(response::present(&record.summary, done, cost))
            }
            Progress::Ended { result: Err(error), .. } => Err(error),
            Progress::Ended { result: Ok(End::Absent), .. } => Err(mixed_up()),
        }
    }

    pub(super) async fn delete(
        &self,
        request: DeleteLoadBalancerRequest,
        context: &Context,
    ) -> Result<DeleteLoadBalancerResponse, AdapterError> {
        self.rpc.may_change(context, request.dry_run, request.fence.as_ref())?;
        let adoption = validate::adoption(&request)?;
        let known = validate::known_id(request.known.as_ref());
        let (key, owner) = validate::identity(&context.cluster_id, request.key, request.owner)?;
        let cluster_name = context.cluster_name.clone();
        let inheritance = self.rpc.grants.inheritance(&owner.namespace, &cluster_name);
        let adopter = Adopter { key: key.clone(), owner: owner.clone(), cluster_name, inheritance };
        let goal = Goal::Absent { adopter: adopter.into(), adoption, known };
        if request.dry_run {
            let (next, plan) = self.dry_run(&goal, context).await?;
            return Ok(response::dry_delete(&next, plan, cost(context, Source::Snapshot)));
        }
        let fence = self.converger.fences.admit(&key.cluster_id, request.fence.as_ref(), &key.owner_uid)?;
        let (progress, position) = self.work(goal, fence, &owner, context).await?;
        let cost = cost(context, Source::Snapshot);
        match progress {
            Progress::Working { waits_for, failure, .. } => {
                Ok(response::deleting(self.waits(waits_for, failure.as_ref(), &position), cost))
            }
            Progress::Ended { result: Ok(End::Absent), .. } => Ok(response::absent(cost)),
            Progress::Ended { result: Err(error), .. } => Err(error),
            Progress::Ended { result: Ok(End::Present(_)), .. } => Err(mixed_up()),
        }
    }

    fn desired(
        &self,
        request: &EnsureLoadBalancerRequest,
        context: &Context,
    ) -> Result<(Goal, Owner), AdapterError> {
        let spec = validate::spec(request, &self.converger.driver.describe())?;
        let terms = validate::terms(request)?;
        let (key, owner) =
            validate::identity(&context.cluster_id, request.key.clone(), request.owner.clone())?;
        let backends = self.sets.get(&context.cluster_id, &spec.backend_set_id);
        let backends = backends.map_err(|error| unknown_set(error, context.caller.role))?;
        let hash = validate::hash(&spec);
        let cluster_name = context.cluster_name.clone();
        let inheritance = self.rpc.grants.inheritance(&owner.namespace, &cluster_name);
        let desired = DesiredLoadBalancer {
            key,
            owner: owner.clone(),
            cluster_name,
            inheritance,
            spec,
            backends,
            hash,
        };
        Ok((Goal::Present(Arc::new(desired), terms), owner))
    }

    /// Submits a goal to the key's task, and waits as long as the contract allows. Also returns the queue positions of the task's vendor
    /// calls.
    async fn work(
        &self,
        goal: Goal,
        fence: Fence,
        owner: &Owner,
        context: &Context,
    ) -> Result<(Progress<D::Detail>, QueuePosition), AdapterError> {
        let purpose = about(owner, context.session.purpose());
        let key = goal.key().clone();
        let (number, handle) =
            self.converger.submit(&key, Order::new(goal, fence, purpose, context.bound))?;
        let deadline = context.deadline.checked_sub(MARGIN).unwrap_or(context.deadline);
        let position = handle.position().clone();
        let until = deadline.min(Instant::now() + WAIT);
        Ok((handle.wait(number, until, context.session.meter()).await?, position))
    }

    /// Returns the conditions of a running task for the answer. The conditions report a failed write, an exhausted budget and a throttling
    /// vendor.
    fn waits(&self, what: String, failure: Option<&Failure>, position: &QueuePosition) -> Waits {
        let vendor = &self.rpc.vendor;
        let held = vendor.held_up(LoadBalancerRecord::<D::Detail>::FAMILY);
        let rest = held.as_ref().map_or(Duration::ZERO, |held| held.rest);
        let failed = failure.and_then(|failure| failure.report(Instant::now(), rest));
        Waits::new(what, failed, vendor.waits(position).as_ref(), held)
    }

    /// Returns the load balancer if no task for the key is running and a trusted listing shows that it is in sync. Cost: no vendor call.
    fn nothing_to_do(
        &self,
        goal: &Goal,
        fence: &Fence,
        context: &Context,
    ) -> Result<Option<Arc<LoadBalancerRecord<D::Detail>>>, AdapterError> {
        let converger = &self.converger;
        if converger.is_running(goal.key()) {
            return Ok(None);
        }
        let Some(view) = converger.trusted(context.bound) else { return Ok(None) };
        converger.check_fence(&goal.key().cluster_id, fence, &view)?;
        let observed = Observed { items: &view.items, fresh: false, former: None };
        match decide(&*converger.driver, &converger.grants, goal, fence, &observed) {
            Ok(Decision::End(End::Present(record)))
                if record.summary.state() == LoadBalancerState::Active =>
            {
                Ok(Some(record).filter(|record| !converger.snapshot.doubted(&record.summary.vendor_id)))
            }
            Err(error) if error.reason == Reason::StaleFence => Err(error),
            // The task handles all other results, and observes the cloud itself if necessary.
            Ok(_) | Err(_) => Ok(None),
        }
    }

    /// Computes the plan for a goal, for any caller. This neither records a writer's fence nor affects a running task.
    ///
    /// Cost: a listing, if the snapshot is older than its target age.
    async fn dry_run(&self, goal: &Goal, context: &Context) -> Result<DryRun<D>, AdapterError> {
        let converger = &self.converger;
        let now = Instant::now();
        let bound = context.bound.or_else(|| now.checked_sub(converger.snapshot.target_age()));
        let view = converger.snapshot.at_least(bound, &*converger.driver, &context.session).await?;
        let observed = Observed { items: &view.items, fresh: true, former: None };
        let next = decide(&*converger.driver, &converger.grants, goal, &Fence::default(), &observed)?;
        let steps = match &next {
            Decision::Create(steps)
            | Decision::Write(steps)
            | Decision::Remove(steps)
            | Decision::Replace(_, steps) => steps.iter().map(planned).collect(),
            Decision::Wait(_) | Decision::Observe | Decision::End(_) => Vec::new(),
        };
        Ok((next, steps))
    }
}

fn about(owner: &Owner, asked: &Purpose) -> Purpose {
    let Owner { kind, namespace, name, uid } = owner;
    let object = Arc::from(format!("{kind} {namespace}/{name} ({uid})"));
    Purpose { namespace: Arc::from(namespace.as_str()), object, ..asked.clone() }
}

fn cost(context: &Context, source: Source) -> Option<cloud_api_proto::v1alpha1::Cost> {
    Some(context.session.meter().cost(source, None))
}

/// Returns the error for the result of another goal. This cannot occur, because a task ends for the goal of its order.
fn mixed_up() -> AdapterError {
    AdapterError::new(Reason::Internal, "the task ended for a goal other than that of its order")
}

#[cfg(test)]
mod tests {
    use cloud_api_proto::v1alpha1::Priority;

    use super::*;

    #[test]
    fn calls_are_made_in_the_name_of_the_owner() {
        let word = |word: &str| word.to_owned();
        let owner =
            Owner { kind: word("Service"), namespace: word("shop"), name: word("web"), uid: word("u-1") };
        let purpose = about(&owner, &Purpose::own(Priority::Interactive, "test"));
        assert_eq!((&*purpose.namespace, &*purpose.object), ("shop", "Service shop/web (u-1)"));
    }

    #[test]
    fn operator_is_not_asked_to_put_a_set() {
        let unknown = || AdapterError::new(Reason::BackendSetUnknown, "put it, and repeat");
        let operator = unknown_set(unknown(), Role::Operator);
        assert_eq!(operator.reason, Reason::BackendSetUnknown);
        assert!(operator.to_string().contains("an operator cannot put one"), "{operator}");
        let controller = unknown_set(unknown(), Role::ServiceController);
        assert!(controller.to_string().contains("put it, and repeat"), "{controller}");
    }
}
