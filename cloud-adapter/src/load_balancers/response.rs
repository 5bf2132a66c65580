//! Responses to requests, in the terms of the contract: states, conditions and the delay before the next request. This module is pure.

use std::time::Duration;

use cloud_api_proto::v1alpha1::{
    Cost, DeleteLoadBalancerResponse, EnsureLoadBalancerResponse, LoadBalancer, LoadBalancerCondition,
    LoadBalancerState, PlannedStep,
};
use cloud_budget::BudgetWait;

use super::decide::{Decision, End};
use crate::vendor::HeldUp;

/// Maximum interval between polls. The interval is limited because queued calls may be sent earlier than estimated.
const POLL_MAX: Duration = Duration::from_secs(15);

/// The types of conditions of running tasks. Source: docs/reference/driver.md.
const WAITING_FOR: &str = "WaitingFor";
const WAITING_FOR_BUDGET: &str = "WaitingForBudget";
const WRITE_FAILED: &str = "WriteFailed";

/// Delay after which a caller polls a running task.
const AGAIN: Duration = Duration::from_secs(1);

/// What a running task waits for, and the delay before the next poll.
#[derive(Debug)]
pub(super) struct Waits {
    conditions: Vec<LoadBalancerCondition>,
    again: Duration,
}

impl Waits {
    /// `what` describes what the task waits for. `failed` is the report of a write that failed; it replaces `what`, which also describes
    /// that failure. Conditions that block the task's own call, or all calls of the family, are also reported. The task cannot progress
    /// before these conditions end.
    pub(super) fn new(
        what: String,
        failed: Option<String>,
        budget: Option<&BudgetWait>,
        held: Option<HeldUp>,
    ) -> Self {
        let about = budget.map_or(AGAIN, |wait| wait.about.clamp(AGAIN, POLL_MAX));
        let again = held.as_ref().map_or(about, |held| held.rest.max(about));
        let blocked = match (budget, held.and_then(|held| held.pause)) {
            (_, Some(pause)) if failed.is_some() => Some(waiting(pause)),
            (_, Some(pause)) => Some(waiting(format!("{what}; {pause}"))),
            (Some(wait), None) => Some(condition(WAITING_FOR_BUDGET, wait.to_string())),
            (None, None) if failed.is_some() => None,
            (None, None) => Some(waiting(what)),
        };
        let failed = failed.map(|text| condition(WRITE_FAILED, text));
        Self { conditions: failed.into_iter().chain(blocked).collect(), again }
    }
}

pub(super) fn pending(
    done: u32,
    total: u32,
    Waits { conditions, again }: Waits,
    cost: Option<Cost>,
) -> EnsureLoadBalancerResponse {
    EnsureLoadBalancerResponse {
        state: LoadBalancerState::Pending.into(),
        step: done,
        steps: total,
        conditions,
        retry_after: prost_types::Duration::try_from(again).ok(),
        cost,
        ..EnsureLoadBalancerResponse::default()
    }
}

pub(super) fn present(summary: &LoadBalancer, done: u32, cost: Option<Cost>) -> EnsureLoadBalancerResponse {
    EnsureLoadBalancerResponse {
        state: summary.state,
        step: done,
        steps: done,
        addresses: summary.addresses.clone(),
        applied_hash: summary.applied_hash.clone(),
        conditions: conditions(summary),
        vendor_ids: summary.vendor_ids.clone(),
        retry_after: None,
        cost,
        plan: Vec::new(),
    }
}

pub(super) fn dry_ensure<D, S>(
    next: &Decision<D, S>,
    plan: Vec<PlannedStep>,
    cost: Option<Cost>,
) -> EnsureLoadBalancerResponse {
    match next {
        Decision::End(End::Present(record)) => present(&record.summary, 0, cost),
        Decision::End(End::Absent)
        | Decision::Create(_)
        | Decision::Write(_)
        | Decision::Remove(_)
        | Decision::Replace(..)
        | Decision::Wait(_)
        | Decision::Observe => EnsureLoadBalancerResponse {
            state: LoadBalancerState::Pending.into(),
            steps: u32::try_from(plan.len()).unwrap_or(u32::MAX),
            conditions: waits_for(next),
            plan,
            cost,
            ..EnsureLoadBalancerResponse::default()
        },
    }
}

pub(super) fn deleting(Waits { conditions, again }: Waits, cost: Option<Cost>) -> DeleteLoadBalancerResponse {
    DeleteLoadBalancerResponse {
        state: LoadBalancerState::Deleting.into(),
        retry_after: prost_types::Duration::try_from(again).ok(),
        conditions,
        cost,
        plan: Vec::new(),
    }
}

pub(super) fn absent(cost: Option<Cost>) -> DeleteLoadBalancerResponse {
    DeleteLoadBalancerResponse { state: LoadBalancerState::Absent.into(), cost, ..Default::default() }
}

pub(super) fn dry_delete<D, S>(
    next: &Decision<D, S>,
    plan: Vec<PlannedStep>,
    cost: Option<Cost>,
) -> DeleteLoadBalancerResponse {
    let state = match next {
        Decision::End(_) => LoadBalancerState::Absent,
        Decision::Create(_)
        | Decision::Write(_)
        | Decision::Remove(_)
        | Decision::Replace(..)
        | Decision::Wait(_)
        | Decision::Observe => LoadBalancerState::Deleting,
    };
    let conditions = waits_for(next);
    DeleteLoadBalancerResponse { state: state.into(), retry_after: None, cost, plan, conditions }
}

fn waits_for<D, S>(next: &Decision<D, S>) -> Vec<LoadBalancerCondition> {
    match next {
        Decision::Wait(what) => vec![waiting(what.clone())],
        Decision::Create(_)
        | Decision::Write(_)
        | Decision::Remove(_)
        | Decision::Replace(..)
        | Decision::Observe
        | Decision::End(_) => Vec::new(),
    }
}

fn waiting(message: String) -> LoadBalancerCondition {
    condition(WAITING_FOR, message)
}

fn condition(word: &str, message: String) -> LoadBalancerCondition {
    LoadBalancerCondition { r#type: word.to_owned(), message }
}

/// Returns why the load balancer is not ready although the plan has no step left.
fn conditions(summary: &LoadBalancer) -> Vec<LoadBalancerCondition> {
    let condition = |word: &str, message: String| vec![condition(word, message)];
    match summary.state() {
        LoadBalancerState::Error => {
            let text = "the cloud reports a permanent error for this load balancer: delete the \
                        Service, or allow recreation, which is possible if no other Service uses the load balancer";
            condition("Error", text.to_owned())
        }
        LoadBalancerState::Degraded => {
            let message = match failed_ports(summary) {
                ports if ports.is_empty() => "some listeners do not serve".to_owned(),
                ports => format!(
                    "some listeners do not serve: {} of {} ports failed: {}",
                    ports.len(),
                    summary.listeners.len(),
                    ports.join(", ")
                ),
            };
            condition("Degraded", message)
        }
        LoadBalancerState::Unspecified => {
            let text = "the cloud reports a state unknown to this adapter";
            condition("Unknown", text.to_owned())
        }
        LoadBalancerState::Pending
        | LoadBalancerState::Active
        | LoadBalancerState::Deleting
        | LoadBalancerState::Absent => Vec::new(),
    }
}

/// Returns the failed ports. Each port is returned once, although the summary repeats the port for each address.
fn failed_ports(summary: &LoadBalancer) -> Vec<String> {
    let ports = summary.addresses.iter().flat_map(|address| &address.ports);
    let failed = ports.filter(|port| port.error.is_some());
    let mut words: Vec<String> = failed
        .map(|port| {
            let protocol = port.protocol().as_str_name().trim_start_matches("PROTOCOL_");
            format!("{}/{}", protocol.to_ascii_lowercase(), port.port)
        })
        .collect();
    words.sort_unstable();
    words.dedup();
    words
}
