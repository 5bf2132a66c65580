//! Decides what to do with a plan. This module is pure.

use super::{
    Action, Plan, Wait,
    memory::{Event, Memory},
    readiness::as_requested,
    service::Service,
    validated::Validated,
    without_nodes::WithoutNodes,
};

/// What to do with a plan. Each variant takes precedence over the variants below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    InSync,
    /// Wait until something outside of this controller changes.
    Wait(Wait),
    /// Fail with the refusals of the plan, because the plan has no action.
    Refuse,
    /// Report the load balancers that are in use although their Service has another controller's class.
    ReportClaimed,
    /// With `--dry-run`, the controller only records the plan. If the plan has refusals, the controller only reports them
    /// (`ReportRefusals`).
    RecordOnly,
    ReportRefusals,
    /// Report the refusals, and execute the actions.
    Execute,
}

/// What the controller records for a reconcile with nothing to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum InSync {
    /// The Service is as requested.
    Settled,
    /// The Service is in sync, but what it waited for last still applies: replaced settings, or a degraded load balancer.
    StillWaits,
    /// The load balancer is as requested, but no node can serve the Service.
    WithoutNodes(WithoutNodes),
}

/// What happens to the memory that other workers see, before the actions of a plan run. These workers use that memory to count load
/// balancers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shared {
    /// The load balancer is about to be deleted.
    Forget,
    /// The load balancer is about to be created or changed.
    Publish,
    Keep,
}

impl Verdict {
    pub(crate) fn of(plan: &Plan, dry_run: bool) -> Self {
        if plan.is_empty() {
            return Self::InSync;
        }
        match plan.waits {
            Some(wait) => Self::Wait(wait),
            None if plan.actions.is_empty() && !plan.refusals.is_empty() => Self::Refuse,
            None if !plan.claimed.is_empty() => Self::ReportClaimed,
            None if dry_run && plan.refusals.is_empty() => Self::RecordOnly,
            None if dry_run => Self::ReportRefusals,
            None => Self::Execute,
        }
    }
}

impl InSync {
    /// Processes a reconcile with nothing to do. The memory keeps what this result means for later failures and for the conditions.
    pub(crate) fn of(
        service: &Service,
        memory: &mut Memory,
        validated: &Validated,
        without: Option<WithoutNodes>,
    ) -> Self {
        let is_requested = !validated.stands_in;
        memory.on(Event::InSync { as_requested: is_requested });
        let found = as_requested(service, memory, validated, without.as_ref());
        let is_found = found.is_some();
        memory.readiness = found.or(memory.readiness.take());
        match without {
            Some(why) if is_found => Self::WithoutNodes(why),
            _ if is_requested && !memory.is_degraded() => Self::Settled,
            _ => Self::StillWaits,
        }
    }
}

impl Shared {
    pub(crate) fn before(actions: &[Action]) -> Self {
        let has = |wanted: fn(&Action) -> bool| actions.iter().any(wanted);
        if has(|it| matches!(it, Action::Delete(_))) {
            Self::Forget
        } else if has(|it| matches!(it, Action::Ensure(_))) {
            Self::Publish
        } else {
            Self::Keep
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::Refusal, *};
    use crate::plan::spec::Takeover;

    #[test]
    fn first_applicable_verdict_counts() {
        let plan = |waits, actions: &[Action], refusals: &[Refusal], claimed: &[&str]| Plan {
            actions: actions.to_vec(),
            refusals: refusals.to_vec(),
            waits,
            claimed: claimed.iter().map(|&id| id.to_owned()).collect(),
        };
        let (act, refuse) = ([Action::AddFinalizer], [Refusal::new("spec.ports", "empty")]);
        let rows = [
            (plan(None, &[], &[], &[]), Verdict::InSync, Verdict::InSync),
            (
                plan(Some(Wait::Reported), &act, &refuse, &["lb"]),
                Verdict::Wait(Wait::Reported),
                Verdict::Wait(Wait::Reported),
            ),
            (plan(None, &[], &refuse, &["lb"]), Verdict::Refuse, Verdict::Refuse),
            (plan(None, &act, &refuse, &["lb"]), Verdict::ReportClaimed, Verdict::ReportClaimed),
            (plan(None, &[], &[], &["lb"]), Verdict::ReportClaimed, Verdict::ReportClaimed),
            (plan(None, &act, &refuse, &[]), Verdict::Execute, Verdict::ReportRefusals),
            (plan(None, &act, &[], &[]), Verdict::Execute, Verdict::RecordOnly),
        ];
        for (plan, runs, dry_run) in rows {
            assert_eq!((Verdict::of(&plan, false), Verdict::of(&plan, true)), (runs, dry_run), "{plan}");
        }
    }
    #[test]
    fn other_workers_see_deletions_rather_than_finalizers() {
        let (finalizer, delete) = (Action::AddFinalizer, Action::Delete(Takeover::None));
        for (actions, want) in [
            (&[delete.clone()][..], Shared::Forget),
            (&[finalizer.clone(), delete], Shared::Forget),
            (&[finalizer, Action::Release, Action::Forget], Shared::Keep),
        ] {
            assert_eq!(Shared::before(actions), want, "{actions:?}");
        }
    }
}
