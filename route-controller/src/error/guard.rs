//! Decides which of the unneeded routes may be removed now. Time is an argument.
//!
//! A route is removed after its node is deleted, but the list of nodes can be wrong. An API server that was restored from an old backup, or
//! the wrong API server, lists few or no nodes although their pods run. The evidence for a removal decides how soon the route may be
//! removed:
//!
//! | the route | is removed |
//! | --- | --- |
//! | leads to the destination of another route that exists or is created | at once |
//! | leads to an instance that is gone | after the grace period |
//! | leads to an instance, and the deletion of its node was observed | after the grace period, up to the maximum number and percentage per window |
//! | leads to an instance, and its node is not listed any more | after the grace period, up to the maximum number and percentage per window, after a start one by one, and never while no node is listed at all |
//!
//! If more removals are due than these limits allow, no route is removed until an operator allows it, however long that takes. If more
//! nodes disappeared from a list than is plausible, the controller trusts no part of the list.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use controller_core::brake::{Brake, Limits, Verdict};
use controller_core::events::{NOTE_MAX, bounded};
use tokio::time::Instant;

use crate::plan::{Cause, Plan, Removal};

/// Delay before held removals are reported. Deleted nodes mostly lose their instances, too, and the next listing of the routes, by default
/// within two minutes, shows that an instance is gone.
const LISTED: Duration = Duration::from_mins(3);
/// Number of routes that the note of an Event names.
const NAMED: usize = 5;

#[derive(Debug)]
pub(crate) struct Guard {
    grace: Duration,
    /// Time since which no node needs a route, by the vendor's ID of the route.
    unasked: BTreeMap<String, Instant>,
    /// Removals that a brake has allowed. The brake does not count their retries again.
    let_go: BTreeSet<String>,
    /// The UID of the node that a route served last, by the vendor's ID of the route. Contains only routes that serve another node than the
    /// node they were created for. Such a route is removed with the node that it served last.
    successors: BTreeMap<String, String>,
    /// Brake for routes of nodes whose deletion was observed.
    deleted: Brake,
    /// Brake for routes of nodes that are not listed any more.
    missing: Brake,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Nodes<'a> {
    pub(crate) n_listed: usize,
    /// When the deletion of nodes was observed, by UID.
    pub(crate) deleted: &'a BTreeMap<String, Instant>,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Judgement {
    pub(crate) held: Vec<Held>,
    /// When the next removal is allowed, if nothing changes.
    pub(crate) again: Option<Duration>,
}

/// Routes whose removal is held until an operator allows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) removals: Vec<Removal>,
    pub(crate) why: Why,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Why {
    NoNodes,
    /// More nodes than the limits allow are not listed any more.
    Missing {
        allowance: usize,
        window: Duration,
    },
    /// More nodes than the limits allow were deleted.
    Deleted {
        allowance: usize,
        window: Duration,
    },
}

impl Why {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::NoNodes => "no nodes",
            Self::Missing { .. } => "missing nodes",
            Self::Deleted { .. } => "deleted nodes",
        }
    }
}

impl Guard {
    pub(crate) fn new(grace: Duration, limits: Limits, now: Instant) -> Self {
        Self {
            grace,
            unasked: BTreeMap::new(),
            let_go: BTreeSet::new(),
            successors: BTreeMap::new(),
            deleted: Brake::new(limits, now),
            missing: Brake::new(limits, now),
        }
    }

    /// Resets the guard when the replica starts or acquires a shard, because another replica may have removed routes there. The count of
    /// removals for deleted nodes is kept.
    pub(crate) fn begins(&mut self, limits: Limits, now: Instant) {
        self.limit(limits);
        self.missing = Brake::new(limits, now);
    }

    /// Returns a copy without the state of the routes. The brakes are kept.
    pub(crate) fn forgetful(&self) -> Self {
        let unknown = (BTreeMap::new(), BTreeSet::new(), BTreeMap::new());
        let (unasked, let_go, successors) = unknown;
        let (deleted, missing) = (self.deleted.clone(), self.missing.clone());
        Self { grace: self.grace, unasked, let_go, successors, deleted, missing }
    }

    /// Sets new limits after the loss of a shard.
    pub(crate) fn limit(&mut self, limits: Limits) {
        self.deleted.limit(limits);
        self.missing.limit(limits);
    }

    /// Returns the UIDs of nodes that routes served last, if the routes were created for other nodes.
    pub(crate) fn successors(&self) -> impl Iterator<Item = &String> {
        self.successors.values()
    }

    /// Drops the removals from the plan that are not allowed now.
    pub(crate) fn judge(&mut self, plan: &mut Plan, nodes: Nodes<'_>, now: Instant) -> Judgement {
        self.forget(&plan.removals);
        self.successors.extend(plan.successors.clone());
        let mut judgement = Judgement::default();
        let (mut go, mut deleted, mut missing) = (Vec::new(), Vec::new(), Vec::new());
        for removal in std::mem::take(&mut plan.removals) {
            if removal.cause == Cause::Replaced {
                go.push(removal);
                continue;
            }
            let served = self.successors.get(&removal.vendor_id).or(removal.node_uid.as_ref());
            let seen = served.and_then(|uid| nodes.deleted.get(uid)).copied();
            let since = *self.unasked.entry(removal.vendor_id.clone()).or_insert(seen.unwrap_or(now));
            if let Some(rest) =
                (since + self.grace).checked_duration_since(now).filter(|rest| !rest.is_zero())
            {
                judgement.wait(rest);
            } else if removal.cause == Cause::LeadsNowhere {
                go.push(removal);
            } else if seen.is_some() {
                deleted.push(removal);
            } else {
                missing.push(removal);
            }
        }
        go.extend(self.of_deleted(deleted, plan.n_ours, &mut judgement, now));
        if nodes.n_listed == 0 && self.missing.limits().share < 100 {
            judgement.hold(missing, Why::NoNodes);
        } else {
            go.extend(self.of_missing(missing, plan.n_ours, &mut judgement, now));
        }
        plan.removals = go;
        judgement
    }

    /// Decides about routes of nodes whose deletion was observed. Such routes need no delay after a start. The limits still apply, since an
    /// operator may have deleted all Node objects by mistake while their pods run.
    fn of_deleted(
        &mut self,
        removals: Vec<Removal>,
        n_ours: usize,
        judgement: &mut Judgement,
        now: Instant,
    ) -> Vec<Removal> {
        let (again, new) = self.split(removals);
        match self.deleted.ask(now, n_ours, new.len()) {
            Verdict::Go | Verdict::Later { .. } => {
                admit(&mut self.let_go, &mut self.deleted, &new, now);
                [again, new].concat()
            }
            Verdict::Tripped { allowance } => {
                let listed_at =
                    |removal: &Removal| self.unasked.get(&removal.vendor_id).map(|at| *at + LISTED);
                let (held, young): (Vec<_>, Vec<_>) =
                    new.into_iter().partition(|removal| listed_at(removal).is_none_or(|at| at <= now));
                young.iter().filter_map(listed_at).for_each(|at| judgement.wait(at - now));
                judgement.hold(held, Why::Deleted { allowance, window: self.deleted.limits().window });
                again
            }
        }
    }

    fn of_missing(
        &mut self,
        removals: Vec<Removal>,
        n_ours: usize,
        judgement: &mut Judgement,
        now: Instant,
    ) -> Vec<Removal> {
        let (again, mut new) = self.split(removals);
        match self.missing.ask(now, n_ours, new.len()) {
            Verdict::Go => (),
            // All of these removals are allowed, spread over the window.
            Verdict::Later { .. } => {
                let (n_due, after) = self.due(n_ours, new.len(), now);
                new.truncate(n_due);
                judgement.wait(after);
            }
            Verdict::Tripped { allowance } => {
                judgement.hold(new, Why::Missing { allowance, window: self.missing.limits().window });
                return again;
            }
        }
        admit(&mut self.let_go, &mut self.missing, &new, now);
        [again, new].concat()
    }

    /// Returns how many of the delayed removals are allowed now, and the time until the next removal is allowed.
    fn due(&mut self, n_ours: usize, n_new: usize, now: Instant) -> (usize, Duration) {
        let mut asked = (1..=n_new).map(|n| (n - 1, self.missing.ask(now, n_ours, n)));
        let next = asked.find_map(|(n, verdict)| match verdict {
            Verdict::Later { after } => Some((n, after)),
            Verdict::Go | Verdict::Tripped { .. } => None,
        });
        next.unwrap_or_default()
    }

    fn split(&self, removals: Vec<Removal>) -> (Vec<Removal>, Vec<Removal>) {
        removals.into_iter().partition(|removal| self.let_go.contains(&removal.vendor_id))
    }

    /// Forgets routes that need no removal any more: they are gone, or a node needs them again.
    fn forget(&mut self, removals: &[Removal]) {
        let ids: BTreeSet<&str> = removals.iter().map(|removal| removal.vendor_id.as_str()).collect();
        self.unasked.retain(|id, _| ids.contains(id.as_str()));
        self.let_go.retain(|id| ids.contains(id.as_str()));
        self.successors.retain(|id, _| ids.contains(id.as_str()));
    }
}

/// Records that these removals are allowed, and counts them as due now.
fn admit(let_go: &mut BTreeSet<String>, brake: &mut Brake, removals: &[Removal], now: Instant) {
    let_go.extend(removals.iter().map(|removal| removal.vendor_id.clone()));
    removals.iter().for_each(|_| brake.went(now));
}

impl Judgement {
    pub(crate) fn n_held(&self) -> usize {
        self.held.iter().map(|held| held.removals.len()).sum()
    }

    fn wait(&mut self, rest: Duration) {
        self.again = Some(self.again.map_or(rest, |again| again.min(rest)));
    }

    fn hold(&mut self, removals: Vec<Removal>, why: Why) {
        if !removals.is_empty() {
            self.held.push(Held { removals, why });
        }
    }
}

impl Held {
    /// Returns the text of the Event, without the destinations, which the status page lists.
    pub(crate) fn note(&self) -> String {
        let flags = self.flags().join(" ");
        bounded(&format!("{}. If the nodes are gone for good, set {flags}", self.fault()), NOTE_MAX)
    }

    fn fault(&self) -> String {
        let minutes = |window: &Duration| window.as_secs_f64() / 60.0;
        let why = match &self.why {
            Why::NoNodes => "are no longer listed, and no other node is listed".to_owned(),
            Why::Missing { allowance, window } => {
                format!("are no longer listed; the limit is {allowance} per {} min", minutes(window))
            }
            Why::Deleted { allowance, window } => {
                format!("were deleted; the limit is {allowance} per {} min", minutes(window))
            }
        };
        format!("Removal is held for {} routes whose nodes {why}", self.removals.len())
    }

    fn flags(&self) -> Vec<String> {
        let share = "--route-removal-max-share=100".to_owned();
        match self.why {
            Why::NoNodes => vec![share],
            Why::Missing { .. } | Why::Deleted { .. } => {
                vec![share, format!("--route-removal-max-number={}", self.removals.len())]
            }
        }
    }
}

/// Says which removals are held, why, what the operator can do, and the first destinations.
impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (fault, flags) = (self.fault(), self.flags().join(" and "));
        write!(f, "{fault}. If the nodes are gone for good, start the controller with {flags}")?;
        f.write_str(" until the routes are removed. Destinations: ")?;
        let named = self.removals.iter().take(NAMED).map(|removal| removal.to.to_string());
        f.write_str(&named.collect::<Vec<_>>().join(", "))?;
        if self.removals.len() > NAMED { f.write_str(", …") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests;
