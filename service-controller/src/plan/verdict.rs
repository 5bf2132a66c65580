//! Decides what a round does with a plan. Pure.

use super::{Plan, Wait};

/// What a round does with a plan. Each variant excludes the variants below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nothing is left to do.
    InSync,
    /// Wait until something outside of this controller changes.
    Wait(Wait),
    /// Fail with the refusals of the plan: the plan has no action.
    Refuse,
    /// Report the load balancers that are in use while their Service has another controller's class.
    ReportClaimed,
    /// Record the plan, because the controller runs with `--dry-run`.
    RecordOnly,
    /// Execute the actions.
    Execute,
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
            None if dry_run => Self::RecordOnly,
            None => Self::Execute,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{Action, Refusal},
        *,
    };

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
            (plan(None, &act, &refuse, &[]), Verdict::Execute, Verdict::RecordOnly),
            (plan(None, &act, &[], &[]), Verdict::Execute, Verdict::RecordOnly),
        ];
        for (plan, runs, dry_run) in rows {
            assert_eq!((Verdict::of(&plan, false), Verdict::of(&plan, true)), (runs, dry_run), "{plan}");
        }
    }
}
