//! Decides the next action for one load balancer. The function maps the goal and the observation to a step, a wait, or an end. It is
//! pure, apart from its log.

#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use cloud_api_proto::{
    AdapterError, DOMAIN, Reason,
    v1alpha1::{Adoption, Fence, LoadBalancer, LoadBalancerState, Owner, Recreate},
};
use tracing::info;

use super::{
    candidates::{Adopted, Candidates},
    consent,
    goal::{Goal, Terms},
};
use crate::{
    driver::{DesiredLoadBalancer, Driver, Fault, Heritage, LoadBalancerRecord, Origin, VendorError},
    grants::Grants,
};

/// Retry interval while a load balancer needs a manual repair.
const RELEASE_AGAIN: Duration = Duration::from_mins(1);

/// The successful end of a key's task.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum End<D> {
    /// No step is left. The load balancer is ready, or its state (ERROR or degraded) says why it is not ready.
    Present(Arc<LoadBalancerRecord<D>>),
    /// A complete listing shows that there is no load balancer.
    Absent,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Decision<D, S> {
    /// Steps that create a load balancer. There is at least one step; only the first step is executed now.
    Create(Vec<S>),
    /// Steps that build or change a load balancer. There is at least one step; only the first step is executed now.
    Write(Vec<S>),
    /// Steps that delete a load balancer. There is at least one step; only the first step is executed now.
    Remove(Vec<S>),
    /// Steps that delete a load balancer in order to recreate it. There is at least one step.
    Replace(Arc<LoadBalancerRecord<D>>, Vec<S>),
    Wait(String),
    /// Observe again, because the observation shows no load balancer but does not prove absence.
    Observe,
    End(End<D>),
}

#[derive(Debug)]
pub(crate) struct Observed<'a, D> {
    pub(crate) items: &'a [Arc<LoadBalancerRecord<D>>],
    /// Whether the listing, or a read of the key alone, proves absence.
    pub(crate) fresh: bool,
    /// The load balancer that this process deleted in order to recreate it, if there is such a load balancer.
    pub(crate) former: Option<&'a LoadBalancerRecord<D>>,
}

type Decided<A> = Result<Decision<<A as Driver>::Detail, <A as Driver>::Step>, AdapterError>;

/// Decides the next step, wait or end.
///
/// Returns the errors of the driver's plan, and `OWNED_BY_OTHER`. Returns `RESOURCE_GONE` if the load balancer to adopt does not exist, and
/// `STALE_FENCE` if a tag contains a newer fence.
pub(crate) fn decide<A: Driver>(
    driver: &A,
    grants: &Grants,
    goal: &Goal,
    fence: &Fence,
    observed: &Observed<'_, A::Detail>,
) -> Decided<A> {
    let Observed { items, fresh, former } = *observed;
    let candidates = Candidates::find(driver, items, goal);
    candidates.check(fence)?;
    match goal {
        Goal::Absent { adoption, .. } => {
            let removal =
                |record: &LoadBalancerRecord<A::Detail>| removal(driver, grants, goal.namespace(), record);
            absent(&candidates, *adoption, fresh, removal)
        }
        Goal::Present(desired, terms) => {
            Wish { driver, grants, desired, terms, fence, former }.next(&candidates, fresh)
        }
    }
}

/// Returns the steps that remove a load balancer. A load balancer that existed before its owner is released, unless the operator permits
/// its deletion.
///
/// Returns `VENDOR_UNAVAILABLE` if the load balancer to release is in ERROR, because vendors allow no change before a repair.
fn removal<A: Driver>(
    driver: &A,
    grants: &Grants,
    namespace: &str,
    record: &LoadBalancerRecord<A::Detail>,
) -> Result<Vec<A::Step>, AdapterError> {
    if may_delete(grants, namespace, record) {
        return Ok(driver.plan_deletion(record));
    }
    if record.summary.state() == LoadBalancerState::Error {
        let id = &record.summary.vendor_id;
        let text = format!(
            "load balancer {id} is in state ERROR, and is not deleted because it existed before the \
            Service: delete or repair the load balancer in the cloud; after a repair, the adapter removes the owner tags"
        );
        return Err(AdapterError::new(Reason::VendorUnavailable, text).retry_after(RELEASE_AGAIN));
    }
    Ok(driver.plan_release(record))
}

fn may_delete<D>(grants: &Grants, namespace: &str, record: &LoadBalancerRecord<D>) -> bool {
    record.origin != Origin::Adopted || grants.may_delete_adopted(namespace, &record.summary.vendor_id)
}

fn absent<D, S>(
    candidates: &Candidates<D>,
    adoption: Adoption,
    fresh: bool,
    removal: impl Fn(&LoadBalancerRecord<D>) -> Result<Vec<S>, AdapterError>,
) -> Result<Decision<D, S>, AdapterError> {
    let mut targets = candidates.deletable();
    if adoption == Adoption::IfUnowned {
        targets.extend(candidates.inherited()?);
    }
    Ok(match (targets.is_empty(), fresh) {
        (true, false) => Decision::Observe,
        (true, true) => Decision::End(End::Absent),
        (false, _) => {
            let (mut steps, mut refusal) = (Vec::new(), None);
            for target in &targets {
                match removal(target) {
                    Ok(more) => steps.extend(more),
                    Err(error) => refusal = Some(error),
                }
            }
            match refusal {
                Some(refusal) if steps.is_empty() => return Err(refusal),
                Some(_) | None => remove(steps),
            }
        }
    })
}

fn remove<D, S>(steps: Vec<S>) -> Decision<D, S> {
    if steps.is_empty() {
        Decision::Wait("the cloud is deleting the load balancer".to_owned())
    } else {
        Decision::Remove(steps)
    }
}

struct Wish<'a, A: Driver> {
    driver: &'a A,
    grants: &'a Grants,
    desired: &'a DesiredLoadBalancer,
    terms: &'a Terms,
    fence: &'a Fence,
    former: Option<&'a LoadBalancerRecord<A::Detail>>,
}

impl<A: Driver> Wish<'_, A> {
    fn next(&self, candidates: &Candidates<A::Detail>, fresh: bool) -> Decided<A> {
        let Terms { recreate, adoption, known } = self.terms;
        if let Some(record) = &candidates.shareable {
            self.check_consent(record, !candidates.owned.is_empty())?;
        }
        if let Some((first, extra)) = candidates.owned.split_first() {
            self.check_grants(Some(first))?;
            let next = self.converge(first, *recreate)?;
            return Ok(match (next, extra.iter().find(|record| !record.left)) {
                // A key has two load balancers only after a failure. The better load balancer is kept as soon as it serves. If the second
                // load balancer is shared, it is left to its other users.
                (Decision::End(End::Present(kept)), Some(second))
                    if kept.summary.state() == LoadBalancerState::Active =>
                {
                    // If the second load balancer is in ERROR and would be released, the task does not change it, because the first load
                    // balancer serves.
                    removal(self.driver, self.grants, &self.desired.owner.namespace, second)
                        .map_or(Decision::End(End::Present(kept)), remove)
                }
                (next, _) => next,
            });
        }
        if let Some(id) = self.desired.shares() {
            return match (&candidates.shareable, fresh) {
                (Some(record), _) => {
                    // The former cloud controller manager may have allowed the Service to use this load balancer.
                    self.check_grants(self.was_made_for_it(record).then_some(record))?;
                    self.converge(record, Recreate::Never)
                }
                (None, false) => Ok(Decision::Observe),
                (None, true) => {
                    let text = format!("spec.load_balancer_id: load balancer {id} to share does not exist");
                    Err(AdapterError::new(Reason::ResourceGone, text))
                }
            };
        }
        let may_adopt = |id: &str| self.grants.may_adopt(&self.desired.owner.namespace, id);
        match candidates.adopt(*adoption, known.as_deref(), &self.desired.owner.namespace, may_adopt)? {
            // A load balancer that the Service does not own yet is never deleted in order to recreate it.
            Adopted::Taken(record) => {
                self.check_grants(Some(&record))?;
                self.converge(&record, Recreate::Never)
            }
            Adopted::Nothing | Adopted::Missing(_) if !fresh => Ok(Decision::Observe),
            Adopted::Missing(id) => {
                let text = format!("known.vendor_ids: load balancer {id} to adopt does not exist");
                Err(AdapterError::new(Reason::ResourceGone, text))
            }
            Adopted::Nothing => {
                self.check_grants(None)?;
                match self.creation(self.former)? {
                    steps if steps.is_empty() => Ok(Decision::Observe),
                    steps => Ok(Decision::Create(steps)),
                }
            }
        }
    }

    /// Returns an error if this namespace may not share the load balancer. If `shares` is set, this Service already uses it, so consent was
    /// given earlier.
    fn check_consent(
        &self,
        record: &LoadBalancerRecord<A::Detail>,
        shares: bool,
    ) -> Result<(), AdapterError> {
        let LoadBalancer { vendor_id, key, owner, .. } = &record.summary;
        let (namespace, cluster_id) = (&self.desired.owner.namespace, &self.desired.key.cluster_id);
        let cluster = key.as_ref().map(|key| &key.cluster_id);
        let consents = match (cluster, owner) {
            (Some(cluster), Some(owner)) if cluster == cluster_id => {
                owner.namespace == *namespace
                    || record.shared_with.include(namespace)
                    || self.was_made_for_it(record)
            }
            // The namespaces of another cluster may have the same names as the namespaces of this cluster.
            (Some(_), _) => false,
            // The load balancer has no owner. A Service that already uses the load balancer keeps it, because the owner may have released
            // it.
            (None, _) => shares || self.was_made_for_it(record) || record.shared_with.include(namespace),
        };
        if consents || self.grants.may_share(namespace, vendor_id) {
            return Ok(());
        }
        let whose = owner.as_ref().filter(|_| cluster == Some(cluster_id));
        let text = match whose {
            Some(Owner { kind, namespace: theirs, name, .. }) => {
                // Only the log names the owner, because the error is shown to the users of another namespace.
                info!(
                    load_balancer = vendor_id,
                    owner = %format!("{kind} {theirs}/{name}"),
                    namespace,
                    "Refusing to share a load balancer"
                );
                format!(
                    "spec.load_balancer_id: load balancer {vendor_id} is not shared with namespace {namespace}: \
                     its owner may set lb.{DOMAIN}/share-with: {namespace}"
                )
            }
            None => format!(
                "spec.load_balancer_id: load balancer {vendor_id} is not shared with namespace {namespace}: add \
                 {namespace}:share={vendor_id} to adapter.grants (--grant)"
            ),
        };
        Err(AdapterError::new(Reason::OwnedByOther, text).with("vendor_id", vendor_id.clone()))
    }

    /// Returns whether the vendor's usual controller created the load balancer for the Service, or allowed the Service to use it.
    fn was_made_for_it(&self, record: &LoadBalancerRecord<A::Detail>) -> bool {
        let heritage = self.driver.heritage(&self.desired.adopter())(record);
        matches!(heritage, Heritage::Sole | Heritage::Shared(_))
    }

    /// Refuses requests that lack the operator's grant. `there` is the Service's own load balancer. If its hash equals the desired hash,
    /// the load balancer already has everything that is requested.
    fn check_grants(&self, there: Option<&LoadBalancerRecord<A::Detail>>) -> Result<(), AdapterError> {
        let DesiredLoadBalancer { spec, owner, hash, key, .. } = self.desired;
        let is_applied = |record: &LoadBalancerRecord<A::Detail>| {
            record.belongs_to(key) && record.summary.applied_hash == *hash
        };
        if !consent::may_need_any(spec) || there.is_some_and(is_applied) {
            return Ok(());
        }
        let parameters = &self.driver.describe().parameters;
        let there = there.map(|record| (&record.summary, self.driver.uses(&self.desired.adopter(), record)));
        consent::Asked { spec, namespace: &owner.namespace, parameters, there }.check(self.grants)
    }

    fn creation(&self, former: Option<&LoadBalancerRecord<A::Detail>>) -> Result<Vec<A::Step>, VendorError> {
        match former {
            Some(former) => self.driver.plan_again(self.desired, self.fence, former),
            None => self.driver.plan(self.desired, self.fence, None),
        }
    }

    fn converge(&self, record: &Arc<LoadBalancerRecord<A::Detail>>, recreate: Recreate) -> Decided<A> {
        let end = || Decision::End(End::Present(Arc::clone(record)));
        match record.summary.state() {
            LoadBalancerState::Pending => {
                Ok(Decision::Wait("the cloud is changing the load balancer".to_owned()))
            }
            LoadBalancerState::Deleting | LoadBalancerState::Absent => {
                Ok(Decision::Wait("the cloud is still deleting the former load balancer".to_owned()))
            }
            LoadBalancerState::Error if recreate == Recreate::IfError && self.may_replace(record) => {
                Ok(self.replace(record))
            }
            LoadBalancerState::Error => Ok(end()),
            LoadBalancerState::Unspecified | LoadBalancerState::Active | LoadBalancerState::Degraded => {
                match self.driver.plan(self.desired, self.fence, Some(record)) {
                    Ok(steps) if steps.is_empty() => Ok(end()),
                    Ok(steps) => Ok(Decision::Write(steps)),
                    Err(error)
                        if error.fault == Fault::Immutable && recreate == Recreate::IfImmutableChanged =>
                    {
                        if self.may_replace(record) {
                            return Ok(self.replace(record));
                        }
                        let mut error = AdapterError::from(error);
                        let why = if record.origin == Origin::Adopted {
                            "it is adopted"
                        } else if self.check_grants(None).is_err() {
                            "a new load balancer would need a grant"
                        } else {
                            "it is shared"
                        };
                        error
                            .message
                            .push_str(&format!("; the load balancer is not recreated, because {why}"));
                        Err(error)
                    }
                    Err(error) => Err(error.into()),
                }
            }
        }
    }

    /// Returns whether the load balancer may be deleted and recreated. No other key may use the load balancer. If it existed before its
    /// owner, the operator must permit its deletion. The request must have all grants that a new load balancer needs.
    fn may_replace(&self, record: &LoadBalancerRecord<A::Detail>) -> bool {
        self.desired.shares().is_none()
            && !self.driver.is_used_by_others(record)
            && may_delete(self.grants, &self.desired.owner.namespace, record)
            && self.check_grants(None).is_ok()
    }

    /// Deletes the load balancer in order to recreate it. The plan includes the steps of the recreation.
    fn replace(&self, record: &Arc<LoadBalancerRecord<A::Detail>>) -> Decision<A::Detail, A::Step> {
        let mut steps = self.driver.plan_deletion(record);
        if steps.is_empty() {
            return remove(steps);
        }
        steps.extend(self.creation(Some(record)).unwrap_or_default());
        Decision::Replace(Arc::clone(record), steps)
    }
}
