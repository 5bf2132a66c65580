//! What was tried for each route and when it may be tried again. Time is an argument.
//!
//! Keeps nothing that the last plan did not ask for, so it is bounded by the plan. Holds back only the very same action: a
//! route that is wanted elsewhere now is tried at once.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cloud_api_proto::Reason;
use ipnet::IpNet;
use tokio::time::Instant;

use crate::plan::claims::Standing;
use crate::plan::route::NextHop;
use crate::plan::{Lay, Plan, Removal};

/// The first retry of a failed route; each further one waits twice as long.
const FIRST_RETRY: Duration = Duration::from_secs(1);
/// No route waits longer than this, whatever the reason: about as long as a period of reconciliation.
const LAST_RETRY: Duration = Duration::from_mins(5);
/// How long the mirror may take to show what was done, before it is asked for again. Doubles as well: it is what keeps a
/// black hole that comes back from being replaced in a circle.
const FIRST_SIGHT: Duration = Duration::from_secs(15);

/// What became of one route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It is so now, or was so already.
    Done,
    /// Under way.
    Pending { again: Option<Duration> },
    /// It is not so. Worth another try after `again`, else with backoff.
    Failed { reason: Reason, why: String, again: Option<Duration> },
    /// It is not so, and trying again soon is of no use.
    Refused { reason: Reason, why: String },
}

/// What was tried for each route.
#[derive(Debug, Default)]
pub(crate) struct Attempts {
    entries: BTreeMap<Act, Attempt>,
}

/// What is tried; equal only if it is the same in each respect.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Act {
    Lay { node_uid: String, to: IpNet, via: NextHop },
    Remove(Removal),
}

#[derive(Debug)]
struct Attempt {
    /// How often in a row.
    n_tries: u32,
    not_before: Instant,
    outcome: Outcome,
    /// How long the try took.
    took: Duration,
}

/// What came of the last try to lay a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Try {
    /// Of how many in a row.
    pub(crate) n_tries: u32,
    /// When the next one is.
    pub(crate) not_before: Instant,
    /// Why it is not laid, after how long, if it failed.
    pub(crate) failed: Option<(Reason, String, Duration)>,
}

impl Outcome {
    const fn standing(&self) -> Standing {
        match self {
            Self::Done => Standing::Ready,
            Self::Pending { .. } => Standing::Open,
            Self::Failed { .. } | Self::Refused { .. } => Standing::Failed,
        }
    }

    fn delay(&self, n_tries: u32) -> Duration {
        let doubled = |first: Duration| {
            first.saturating_mul(2_u32.saturating_pow(n_tries.saturating_sub(1))).min(LAST_RETRY)
        };
        match self {
            Self::Done => doubled(FIRST_SIGHT),
            Self::Pending { again } => again.unwrap_or_else(|| doubled(FIRST_RETRY)).max(FIRST_RETRY),
            // The adapter's word counts, unless we would wait longer anyway: it speaks of one try and we of all.
            Self::Failed { again, .. } => doubled(FIRST_RETRY).max(again.unwrap_or_default()),
            Self::Refused { .. } => LAST_RETRY,
        }
    }
}

impl Attempts {
    /// Forgets all that the plan does not ask for: it settled, or is not wanted any more.
    pub(crate) fn keep(&mut self, plan: &Plan) {
        let asked: BTreeSet<Act> = plan
            .lays
            .iter()
            .flat_map(|lay| lay.instead_of.iter().cloned().map(Act::Remove).chain([Act::lay(lay)]))
            .chain(plan.removals.iter().cloned().map(Act::Remove))
            .collect();
        self.entries.retain(|act, _| asked.contains(act));
    }

    /// What of the plan may be tried now, first what was not tried yet, and then what was due the longest ago: a pass may not come to
    /// all of it. A removal that was done and is not seen yet is left out of `instead_of`. Nothing else of the plan is in it.
    pub(crate) fn due(&self, plan: &Plan, now: Instant) -> Plan {
        let mut plan = Plan { lays: plan.lays.clone(), removals: plan.removals.clone(), ..Plan::default() };
        plan.removals.retain(|removal| self.is_due(&Act::Remove(removal.clone()), now));
        plan.lays.retain_mut(|lay| {
            lay.instead_of.retain(|removal| !self.is_done(removal, now));
            self.is_due(&Act::lay(lay), now)
                && lay.instead_of.iter().all(|removal| self.is_due(&Act::Remove(removal.clone()), now))
        });
        // Stable: whoever is equal keeps the order of the plan.
        plan.lays.sort_by_cached_key(|lay| self.due_since(&Act::lay(lay)));
        plan.removals.sort_by_cached_key(|removal| self.due_since(&Act::Remove(removal.clone())));
        plan
    }

    pub(crate) fn laid(&mut self, lay: &Lay, (outcome, took): (Outcome, Duration), now: Instant) {
        self.record(Act::lay(lay), (outcome, took), now);
    }

    pub(crate) fn removed(&mut self, removal: &Removal, outcome: Outcome, now: Instant) {
        self.record(Act::Remove(removal.clone()), (outcome, Duration::ZERO), now);
    }

    /// How it stands with a route that is to be laid, by what was tried last.
    pub(crate) fn standing(&self, lay: &Lay) -> Standing {
        if let Some(attempt) = self.entries.get(&Act::lay(lay)) {
            return attempt.outcome.standing();
        }
        let failed = |removal: &Removal| {
            let attempt = self.entries.get(&Act::Remove(removal.clone()));
            attempt.is_some_and(|attempt| attempt.outcome.standing() == Standing::Failed)
        };
        if lay.instead_of.iter().any(failed) { Standing::Failed } else { Standing::Open }
    }

    /// What became of the first route that is still in the way. `None`: the way is free.
    ///
    /// Asked after the removals were tried; one that was not is taken for under way.
    pub(crate) fn obstacle(&self, lay: &Lay) -> Option<&Outcome> {
        let outcome = |removal: &Removal| {
            let attempt = self.entries.get(&Act::Remove(removal.clone()));
            attempt.map_or(&Outcome::Pending { again: None }, |attempt| &attempt.outcome)
        };
        lay.instead_of.iter().map(outcome).find(|outcome| **outcome != Outcome::Done)
    }

    /// When the next of them comes due. `None`: nothing is held back. What is due already and was not tried waits for
    /// something else, so it does not count.
    pub(crate) fn next(&self, now: Instant) -> Option<Duration> {
        let later = self.entries.values().map(|attempt| attempt.not_before).filter(|at| *at > now);
        Some(later.min()?.saturating_duration_since(now))
    }

    /// What came of the last try, or of the first route that is still in the way.
    pub(crate) fn last(&self, lay: &Lay) -> Option<Try> {
        let removals = lay.instead_of.iter().map(|removal| Act::Remove(removal.clone()));
        let acts = removals.chain([Act::lay(lay)]);
        let tried = acts.filter_map(|act| self.entries.get(&act));
        let last = tried
            .max_by_key(|attempt| (attempt.outcome.standing() == Standing::Failed, attempt.not_before))?;
        let failed = match &last.outcome {
            Outcome::Failed { reason, why, .. } | Outcome::Refused { reason, why } => {
                Some((*reason, why.clone(), last.took))
            }
            Outcome::Done | Outcome::Pending { .. } => None,
        };
        Some(Try { n_tries: last.n_tries, not_before: last.not_before, failed })
    }

    fn record(&mut self, act: Act, (outcome, took): (Outcome, Duration), now: Instant) {
        let n_tries = self.entries.get(&act).map_or(0, |attempt| attempt.n_tries).saturating_add(1);
        let not_before = now + outcome.delay(n_tries);
        self.entries.insert(act, Attempt { n_tries, not_before, outcome, took });
    }

    fn is_due(&self, act: &Act, now: Instant) -> bool {
        self.due_since(act).is_none_or(|since| since <= now)
    }

    /// `None`: it was not tried yet.
    fn due_since(&self, act: &Act) -> Option<Instant> {
        self.entries.get(act).map(|attempt| attempt.not_before)
    }

    fn is_done(&self, removal: &Removal, now: Instant) -> bool {
        let attempt = self.entries.get(&Act::Remove(removal.clone()));
        attempt.is_some_and(|attempt| attempt.outcome == Outcome::Done && attempt.not_before > now)
    }
}

impl Act {
    fn lay(lay: &Lay) -> Self {
        Self::Lay { node_uid: lay.claim.node_uid.clone(), to: lay.claim.to, via: lay.via.clone() }
    }
}

#[cfg(test)]
mod tests;
