//! Keeps the attempts for each route, and decides when they may be retried. Time is an argument.
//!
//! Entries that the last plan does not contain are dropped, so the plan bounds the number of entries. Only an identical action is delayed:
//! a route with a new next hop is created at once.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cloud_api_proto::Reason;
use ipnet::IpNet;
use tokio::time::Instant;

use crate::plan::claims::RouteState;
use crate::plan::route::NextHop;
use crate::plan::{Creation, Plan, Removal};

/// Delay of the first retry of a failed route; the delay doubles with each further retry.
const FIRST_RETRY: Duration = Duration::from_secs(1);
/// Maximum delay of a retry, whatever the reason: about a reconciliation period.
const LAST_RETRY: Duration = Duration::from_mins(5);
/// Time for the cache to show a completed action, before the action is repeated. The time doubles with each repetition, so that a route
/// that repeatedly becomes a black hole is not replaced in a tight loop.
const CACHE_LAG: Duration = Duration::from_secs(15);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The action was done, or was not necessary.
    Done,
    Pending {
        again: Option<Duration>,
    },
    /// The action failed. It is retried after `again`, else with backoff.
    Failed {
        reason: Reason,
        why: String,
        again: Option<Duration>,
    },
    /// The adapter refused the action. An early retry would not help.
    Refused {
        reason: Reason,
        why: String,
    },
}

#[derive(Debug, Default)]
pub(crate) struct Attempts {
    entries: BTreeMap<Act, Attempt>,
}

/// An action. Two actions are equal only if all their fields are equal.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Act {
    Create { node_uid: String, to: IpNet, via: NextHop },
    Remove(Removal),
}

#[derive(Debug)]
struct Attempt {
    /// Number of consecutive attempts.
    n_tries: u32,
    not_before: Instant,
    outcome: Outcome,
    took: Duration,
}

/// The last attempt to create a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Try {
    pub(crate) n_tries: u32,
    pub(crate) not_before: Instant,
    /// Reason, error and duration, if the attempt failed.
    pub(crate) failed: Option<(Reason, String, Duration)>,
}

impl Outcome {
    const fn route_state(&self) -> RouteState {
        match self {
            Self::Done => RouteState::Ready,
            Self::Pending { .. } => RouteState::Open,
            Self::Failed { .. } | Self::Refused { .. } => RouteState::Failed,
        }
    }

    fn delay(&self, n_tries: u32) -> Duration {
        let doubled = |first: Duration| {
            first.saturating_mul(2_u32.saturating_pow(n_tries.saturating_sub(1))).min(LAST_RETRY)
        };
        match self {
            Self::Done => doubled(CACHE_LAG),
            Self::Pending { again } => again.unwrap_or_else(|| doubled(FIRST_RETRY)).max(FIRST_RETRY),
            // The longer delay applies, because the adapter's delay is for one attempt, while the backoff counts all attempts.
            Self::Failed { again, .. } => doubled(FIRST_RETRY).max(again.unwrap_or_default()),
            Self::Refused { .. } => LAST_RETRY,
        }
    }
}

impl Attempts {
    /// Drops actions that the plan does not contain: they succeeded, or are no longer needed.
    pub(crate) fn keep(&mut self, plan: &Plan) {
        let asked: BTreeSet<Act> = plan
            .creations
            .iter()
            .flat_map(|creation| {
                creation.instead_of.iter().cloned().map(Act::Remove).chain([Act::create(creation)])
            })
            .chain(plan.removals.iter().cloned().map(Act::Remove))
            .collect();
        self.entries.retain(|act, _| asked.contains(act));
    }

    /// Returns the actions of the plan that are due. First attempts come before retries, and retries are sorted by the time when they came
    /// due, since a pass may not complete all actions. Completed removals that the cache still shows are left out of `instead_of`. The
    /// other fields of the returned plan are empty.
    pub(crate) fn due(&self, plan: &Plan, now: Instant) -> Plan {
        let mut plan =
            Plan { creations: plan.creations.clone(), removals: plan.removals.clone(), ..Plan::default() };
        plan.removals.retain(|removal| self.is_due(&Act::Remove(removal.clone()), now));
        plan.creations.retain_mut(|creation| {
            creation.instead_of.retain(|removal| !self.is_done(removal, now));
            self.is_due(&Act::create(creation), now)
                && creation.instead_of.iter().all(|removal| self.is_due(&Act::Remove(removal.clone()), now))
        });
        // The sort is stable: actions that came due at the same time keep the order of the plan.
        plan.creations.sort_by_cached_key(|creation| self.due_since(&Act::create(creation)));
        plan.removals.sort_by_cached_key(|removal| self.due_since(&Act::Remove(removal.clone())));
        plan
    }

    pub(crate) fn created(&mut self, creation: &Creation, outcome: Outcome, took: Duration, now: Instant) {
        self.record(Act::create(creation), outcome, took, now);
    }

    pub(crate) fn removed(&mut self, removal: &Removal, outcome: Outcome, now: Instant) {
        self.record(Act::Remove(removal.clone()), outcome, Duration::ZERO, now);
    }

    pub(crate) fn route_state(&self, creation: &Creation) -> RouteState {
        if let Some(attempt) = self.entries.get(&Act::create(creation)) {
            return attempt.outcome.route_state();
        }
        let failed = |removal: &Removal| {
            let attempt = self.entries.get(&Act::Remove(removal.clone()));
            attempt.is_some_and(|attempt| attempt.outcome.route_state() == RouteState::Failed)
        };
        if creation.instead_of.iter().any(failed) { RouteState::Failed } else { RouteState::Open }
    }

    /// Returns the outcome for the first conflicting route that is not removed. `None`: no route conflicts.
    ///
    /// Must be called after the removals were attempted. A removal without an attempt counts as in progress.
    pub(crate) fn obstacle(&self, creation: &Creation) -> Option<&Outcome> {
        let outcome = |removal: &Removal| {
            let attempt = self.entries.get(&Act::Remove(removal.clone()));
            attempt.map_or(&Outcome::Pending { again: None }, |attempt| &attempt.outcome)
        };
        creation.instead_of.iter().map(outcome).find(|outcome| **outcome != Outcome::Done)
    }

    /// Returns when the next action comes due. `None`: no action is delayed. Overdue actions do not count, since no delay holds them back.
    pub(crate) fn next(&self, now: Instant) -> Option<Duration> {
        let later = self.entries.values().map(|attempt| attempt.not_before).filter(|at| *at > now);
        Some(later.min()?.saturating_duration_since(now))
    }

    /// Returns an attempt for the route, or for a conflicting route that must be removed first. A failed attempt is preferred, then the
    /// attempt whose retry comes due last.
    pub(crate) fn last(&self, creation: &Creation) -> Option<Try> {
        let removals = creation.instead_of.iter().map(|removal| Act::Remove(removal.clone()));
        let acts = removals.chain([Act::create(creation)]);
        let tried = acts.filter_map(|act| self.entries.get(&act));
        let last = tried.max_by_key(|attempt| {
            (attempt.outcome.route_state() == RouteState::Failed, attempt.not_before)
        })?;
        let failed = match &last.outcome {
            Outcome::Failed { reason, why, .. } | Outcome::Refused { reason, why } => {
                Some((*reason, why.clone(), last.took))
            }
            Outcome::Done | Outcome::Pending { .. } => None,
        };
        Some(Try { n_tries: last.n_tries, not_before: last.not_before, failed })
    }

    fn record(&mut self, act: Act, outcome: Outcome, took: Duration, now: Instant) {
        let n_tries = self.entries.get(&act).map_or(0, |attempt| attempt.n_tries).saturating_add(1);
        let not_before = now + outcome.delay(n_tries);
        self.entries.insert(act, Attempt { n_tries, not_before, outcome, took });
    }

    fn is_due(&self, act: &Act, now: Instant) -> bool {
        self.due_since(act).is_none_or(|since| since <= now)
    }

    /// Returns `None` before the first attempt.
    fn due_since(&self, act: &Act) -> Option<Instant> {
        self.entries.get(act).map(|attempt| attempt.not_before)
    }

    fn is_done(&self, removal: &Removal, now: Instant) -> bool {
        let attempt = self.entries.get(&Act::Remove(removal.clone()));
        attempt.is_some_and(|attempt| attempt.outcome == Outcome::Done && attempt.not_before > now)
    }
}

impl Act {
    fn create(creation: &Creation) -> Self {
        Self::Create {
            node_uid: creation.claim.node_uid.clone(),
            to: creation.claim.to,
            via: creation.via.clone(),
        }
    }
}

#[cfg(test)]
mod tests;
