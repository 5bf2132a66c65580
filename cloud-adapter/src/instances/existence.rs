//! Derives the existence of an instance, one of five values, from the observations. Absence must be proven. This module is pure.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use cloud_api_proto::{
    AdapterError,
    v1alpha1::{Evidence, Existence, Instance, InstanceState, Scope, evidence::Method},
};

use super::response::Verdict;

#[derive(Clone, Debug)]
pub(crate) enum Seen {
    /// The instance was found in a listing or a look-up. The proof matters only for a terminated instance.
    Found(Arc<Instance>, Option<Proof>),
    /// A listing lacks the instance, and it was not looked up by ID.
    NotListed,
    /// The vendor reported that this ID does not exist.
    DirectlyGone {
        /// The time since the first read that missed the instance.
        missing_for: Duration,
        /// The proof that the absence is not due to wrong credentials or lagging reads.
        proof: Option<Proof>,
    },
    /// The instance belongs to another provider or region.
    Foreign,
    /// The reference is invalid, or the look-up failed.
    Failed(AdapterError),
}

/// Proof that the reads were made in the right scope of the cloud.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Proof {
    /// The number of witnesses: other instances that a read saw when it missed the absent instance, or later. A witness belongs to the
    /// cluster, or was seen earlier together with the absent instance.
    Witnesses(usize),
    /// The credentials have the scope in which the instance was seen before, and not all other instances disappeared together with it.
    Credentials,
}

#[derive(Clone, Debug)]
pub(crate) struct Facts<'a> {
    pub(crate) scope: &'a Scope,
    pub(crate) observed_at: SystemTime,
    pub(crate) now: SystemTime,
    /// The maximum time by which reads lag behind writes.
    pub(crate) horizon: Duration,
}

pub(crate) fn judge(seen: Seen, facts: &Facts<'_>) -> Verdict {
    match seen {
        Seen::Found(instance, proof) if instance.state() == InstanceState::Terminated => {
            let old = facts.now.duration_since(created(&instance)).is_ok_and(|age| age >= facts.horizon);
            gone(Method::TerminalState, proof.filter(|_| old), facts)
        }
        Seen::Found(instance, _) => {
            Verdict { instance: Some(instance.into()), ..Verdict::plain(Existence::Exists) }
        }
        Seen::DirectlyGone { missing_for, proof } => {
            gone(Method::DirectGetNotFound, proof.filter(|_| missing_for >= facts.horizon), facts)
        }
        Seen::NotListed => Verdict::plain(Existence::NotVisible),
        Seen::Foreign => Verdict::plain(Existence::Foreign),
        Seen::Failed(error) => {
            Verdict { error: Some(error.to_item().into()), ..Verdict::plain(Existence::Unknown) }
        }
    }
}

/// Returns the verdict on an absent instance. Without a proof of absence, the instance counts as not visible.
fn gone(method: Method, proof: Option<Proof>, facts: &Facts<'_>) -> Verdict {
    let witnesses = match proof {
        None => return Verdict::plain(Existence::NotVisible),
        Some(Proof::Witnesses(witnesses)) => u32::try_from(witnesses).unwrap_or(u32::MAX),
        Some(Proof::Credentials) => 0,
    };
    let evidence = Evidence {
        method: method.into(),
        scope: Some(facts.scope.clone()),
        observed_at: Some(facts.observed_at.into()),
        witnesses,
    };
    Verdict { evidence: Some(evidence.into()), ..Verdict::plain(Existence::Gone) }
}

fn created(instance: &Instance) -> SystemTime {
    instance.created_at.and_then(|at| at.try_into().ok()).unwrap_or(SystemTime::UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HORIZON: Duration = Duration::from_secs(10);

    fn found(state: InstanceState, age: Duration, proof: Option<Proof>) -> Seen {
        let instance = Instance {
            provider_id: "sim://r/i-1".into(),
            state: state.into(),
            created_at: Some((now() - age).into()),
            ..Instance::default()
        };
        Seen::Found(Arc::new(instance), proof)
    }

    fn gone(missing_for: Duration, proof: Option<Proof>) -> Seen {
        Seen::DirectlyGone { missing_for, proof }
    }

    fn now() -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_hours(1)
    }

    // Behaviour: W4
    #[test]
    fn gone_needs_direct_answer_or_terminal_state_and_proof() {
        use InstanceState as State;
        let (witness, checked) = (Some(Proof::Witnesses(1)), Some(Proof::Credentials));
        let old = HORIZON * 2;
        for (name, seen, wanted) in [
            ("running", found(State::Running, old, None), Existence::Exists),
            ("newborn", found(State::Running, Duration::ZERO, None), Existence::Exists),
            ("stopped, still exists", found(State::Stopped, old, None), Existence::Exists),
            ("unknown state, still exists", found(State::Unknown, old, None), Existence::Exists),
            ("terminating, still exists", found(State::Terminating, old, witness), Existence::Exists),
            ("terminated, with witness", found(State::Terminated, old, witness), Existence::Gone),
            ("terminated, credentials checked", found(State::Terminated, old, checked), Existence::Gone),
            ("terminated, no proof", found(State::Terminated, old, None), Existence::NotVisible),
            ("terminated, too young", found(State::Terminated, HORIZON / 2, witness), Existence::NotVisible),
            ("not listed", Seen::NotListed, Existence::NotVisible),
            ("not found, with witness", gone(old, witness), Existence::Gone),
            ("not found, credentials checked", gone(old, checked), Existence::Gone),
            ("not found, no proof", gone(old, None), Existence::NotVisible),
            ("not found just now", gone(Duration::ZERO, witness), Existence::NotVisible),
            ("foreign", Seen::Foreign, Existence::Foreign),
            ("failed", Seen::Failed(AdapterError::field("x", "y")), Existence::Unknown),
        ] {
            let scope = Scope::default();
            let facts = Facts { scope: &scope, observed_at: now(), now: now(), horizon: HORIZON };
            let result = judge(seen, &facts);
            assert_eq!(result.existence(), wanted, "{name}");
            assert_eq!(result.evidence.is_some(), wanted == Existence::Gone, "{name}");
            assert_eq!(result.instance.is_some(), wanted == Existence::Exists, "{name}");
            assert_eq!(result.error.is_some(), wanted == Existence::Unknown, "{name}");
        }
    }
}
