//! What comes next for one load balancer. Pure: (goal, what is observed) to one step, a wait, or an end.

use std::sync::Arc;

use cloud_api_proto::v1alpha1::{LoadBalancerState, Recreate};

use crate::driver::{DesiredLoadBalancer, Driver, Fault, LoadBalancerRecord, VendorError};

/// What a key's task works towards.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Goal {
    /// It shall be so.
    Present(Box<DesiredLoadBalancer>, Recreate),
    /// Nothing shall be left.
    Absent,
}

/// How a key's task ends well.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum End<D> {
    /// As desired; or the vendor gave up on it, or not all of it serves: its state tells.
    Present(Arc<LoadBalancerRecord<D>>),
    /// A complete listing shows nothing.
    Absent,
}

/// What comes next.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Next<D, S> {
    /// Steps that build or change, never empty; the first is for now.
    Write(Vec<S>),
    /// Steps that remove, never empty; the first is for now.
    Remove(Vec<S>),
    /// The vendor is at it.
    Wait(String),
    /// Nothing is there, and the listing does not prove it: look again.
    Look,
    /// Done.
    End(End<D>),
}

/// The step, wait or end that follows from what is observed. `records` are those of the key; `fresh`: the listing proves absence.
///
/// # Errors
/// Those of the driver's plan.
pub(crate) fn decide<D: Driver>(
    driver: &D,
    goal: &Goal,
    records: &[Arc<LoadBalancerRecord<D::Detail>>],
    fresh: bool,
) -> Result<Next<D::Detail, D::Step>, VendorError> {
    let records = ranked(records);
    match (goal, records.split_first()) {
        (_, None) if !fresh => Ok(Next::Look),
        (Goal::Absent, None) => Ok(Next::End(End::Absent)),
        (Goal::Absent, Some((first, _))) => Ok(delete(driver, first)),
        (Goal::Present(desired, _), None) => write_or(driver.plan(desired, None)?, || Next::Look),
        (Goal::Present(desired, recreate), Some((first, extra))) => {
            let next = converge(driver, desired, *recreate, first)?;
            match (next, extra.first()) {
                // Two of one key exist after trouble only. The better one stays, once it serves.
                (Next::End(End::Present(kept)), Some(second))
                    if kept.summary.state() == LoadBalancerState::Active =>
                {
                    Ok(delete(driver, second))
                }
                (next, _) => Ok(next),
            }
        }
    }
}

fn converge<D: Driver>(
    driver: &D,
    desired: &DesiredLoadBalancer,
    recreate: Recreate,
    record: &Arc<LoadBalancerRecord<D::Detail>>,
) -> Result<Next<D::Detail, D::Step>, VendorError> {
    let end = || Next::End(End::Present(Arc::clone(record)));
    match record.summary.state() {
        LoadBalancerState::Pending => Ok(Next::Wait("the cloud is changing the load balancer".to_owned())),
        LoadBalancerState::Deleting | LoadBalancerState::Absent => {
            Ok(Next::Wait("the cloud is still removing the former load balancer".to_owned()))
        }
        LoadBalancerState::Error if recreate == Recreate::IfError => Ok(delete(driver, record)),
        LoadBalancerState::Error => Ok(end()),
        LoadBalancerState::Unspecified | LoadBalancerState::Active | LoadBalancerState::Degraded => {
            match driver.plan(desired, Some(record)) {
                Ok(steps) => write_or(steps, end),
                Err(error) if error.fault == Fault::Immutable && recreate == Recreate::IfImmutableChanged => {
                    Ok(delete(driver, record))
                }
                Err(error) => Err(error),
            }
        }
    }
}

fn delete<D: Driver>(driver: &D, record: &Arc<LoadBalancerRecord<D::Detail>>) -> Next<D::Detail, D::Step> {
    let steps = driver.plan_deletion(record);
    if steps.is_empty() {
        Next::Wait("the cloud is removing the load balancer".to_owned())
    } else {
        Next::Remove(steps)
    }
}

fn write_or<D, S>(steps: Vec<S>, otherwise: impl FnOnce() -> Next<D, S>) -> Result<Next<D, S>, VendorError> {
    Ok(if steps.is_empty() { otherwise() } else { Next::Write(steps) })
}

/// The one to keep first: one that works before one in ERROR, completed before half-built, then the older, then by ID.
fn ranked<D>(records: &[Arc<LoadBalancerRecord<D>>]) -> Vec<&Arc<LoadBalancerRecord<D>>> {
    let mut ranked: Vec<_> = records.iter().collect();
    ranked.sort_by_cached_key(|record| {
        let summary = &record.summary;
        let created = summary.created_at.map(|at| (at.seconds, at.nanos));
        let broken = summary.state() == LoadBalancerState::Error;
        (broken, summary.applied_hash.is_empty(), created, summary.vendor_id.clone())
    });
    ranked
}
