//! Absence must be proven: from what was seen to one of the five values. Pure. Source: contract, section 5.

use std::time::{Duration, SystemTime};

use cloud_api_proto::{
    AdapterError,
    v1alpha1::{Evidence, Existence, Instance, InstanceResult, InstanceState, Scope, evidence::Method},
};

/// What was seen of one instance.
#[derive(Clone, Debug)]
pub(crate) enum Seen {
    /// In the listing, or by direct look-up.
    Found(Instance),
    /// Not in the listing, and not asked for directly.
    NotListed,
    /// The vendor said for this very ID that there is none.
    DirectlyGone,
    /// It belongs elsewhere.
    Foreign,
    /// The reference or the look-up failed.
    Failed(AdapterError),
}

/// What else bears on the judgement.
#[derive(Clone, Debug)]
pub(crate) struct Facts<'a> {
    pub(crate) scope: &'a Scope,
    pub(crate) observed_at: SystemTime,
    pub(crate) now: SystemTime,
    /// For how long reads may lag behind writes.
    pub(crate) horizon: Duration,
    /// The credentials were checked and open this scope.
    pub(crate) checked: bool,
    /// Instances seen in this scope.
    pub(crate) witnesses: usize,
}

/// Decides what is known of an instance.
pub(crate) fn judge(seen: Seen, facts: &Facts<'_>) -> InstanceResult {
    match seen {
        Seen::Found(instance) if instance.state() == InstanceState::Terminated => {
            let old = facts.now.duration_since(created(&instance)).is_ok_and(|age| age >= facts.horizon);
            if old { gone(Method::TerminalState, facts) } else { plain(Existence::NotVisible) }
        }
        Seen::Found(instance) => InstanceResult { instance: Some(instance), ..plain(Existence::Exists) },
        Seen::DirectlyGone if facts.witnesses > 0 || facts.checked => gone(Method::DirectGetNotFound, facts),
        Seen::DirectlyGone | Seen::NotListed => plain(Existence::NotVisible),
        Seen::Foreign => plain(Existence::Foreign),
        Seen::Failed(error) => InstanceResult { error: Some(error.to_item()), ..plain(Existence::Unknown) },
    }
}

fn plain(existence: Existence) -> InstanceResult {
    InstanceResult { existence: existence.into(), ..InstanceResult::default() }
}

fn gone(method: Method, facts: &Facts<'_>) -> InstanceResult {
    let evidence = Evidence {
        method: method.into(),
        scope: Some(facts.scope.clone()),
        observed_at: Some(facts.observed_at.into()),
        witnesses: u32::try_from(facts.witnesses).unwrap_or(u32::MAX),
    };
    InstanceResult { evidence: Some(evidence), ..plain(Existence::Gone) }
}

fn created(instance: &Instance) -> SystemTime {
    instance.created_at.and_then(|at| at.try_into().ok()).unwrap_or(SystemTime::UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(scope: &Scope, witnesses: usize, checked: bool) -> Facts<'_> {
        let now = SystemTime::UNIX_EPOCH + Duration::from_hours(1);
        Facts { scope, observed_at: now, now, horizon: Duration::from_secs(10), checked, witnesses }
    }

    fn found(state: InstanceState) -> Seen {
        Seen::Found(Instance {
            provider_id: "sim://r/i-1".into(),
            state: state.into(),
            ..Instance::default()
        })
    }

    #[test]
    fn gone_needs_a_direct_answer_and_a_witness_or_checked_credentials() {
        let scope = Scope::default();
        for (name, seen, witnesses, checked, wanted) in [
            ("running", found(InstanceState::Running), 0, false, Existence::Exists),
            ("stopped exists", found(InstanceState::Stopped), 0, false, Existence::Exists),
            ("state unknown exists", found(InstanceState::Unknown), 0, false, Existence::Exists),
            ("terminal state", found(InstanceState::Terminated), 1, false, Existence::Gone),
            ("not listed", Seen::NotListed, 9, true, Existence::NotVisible),
            ("direct, witness", Seen::DirectlyGone, 1, false, Existence::Gone),
            ("direct, credentials checked", Seen::DirectlyGone, 0, true, Existence::Gone),
            ("direct, an empty scope", Seen::DirectlyGone, 0, false, Existence::NotVisible),
            ("foreign", Seen::Foreign, 9, true, Existence::Foreign),
            ("failed", Seen::Failed(AdapterError::field("x", "y")), 9, true, Existence::Unknown),
        ] {
            let result = judge(seen, &facts(&scope, witnesses, checked));
            assert_eq!(result.existence(), wanted, "{name}");
            assert_eq!(result.evidence.is_some(), wanted == Existence::Gone, "{name}");
            assert_eq!(result.instance.is_some(), wanted == Existence::Exists, "{name}");
        }
    }
}
