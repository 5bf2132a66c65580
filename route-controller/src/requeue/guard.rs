//! Which of the routes that nobody asks for may go now. Time is an argument.
//!
//! A route goes with its node, and a list of nodes can be wrong: an API server that was restored from an old copy, or another one
//! than it should be, has few nodes or none, and all their pods run. What is needed to believe it depends on what else says so:
//!
//! | the route | goes |
//! | --- | --- |
//! | leads where another one leads, or shall | at once |
//! | leads to a machine that is gone | after the grace |
//! | leads to a machine, and its node was seen to be deleted | after the grace, a number and a share within the window |
//! | leads to a machine, and its node is not listed any more | after the grace, a number and a share within the window, after a start one by one, and never while no node is listed at all |
//!
//! Of a crowd that is larger than that, none goes, however long it takes, until a person says that it is right: a list that lost more
//! than may go is no reason to believe any part of it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use controller_core::brake::{Brake, Limits, Verdict};
use tokio::time::Instant;

use crate::plan::{Cause, Plan, Removal};

/// That a machine is gone shows in the next listing of the routes, which by default is at most two minutes away. Deleted nodes mostly have
/// lost their machines, too: before that nobody is told that their routes are held.
const LISTED: Duration = Duration::from_mins(3);
/// A note names so many routes.
const NAMED: usize = 5;

/// The guard before removals.
#[derive(Debug)]
pub(crate) struct Guard {
    grace: Duration,
    /// By the vendor's ID, since when nobody asks for a route.
    unasked: BTreeMap<String, Instant>,
    /// Those that a brake has let go. They are not counted again if it takes several tries.
    let_go: BTreeSet<String>,
    /// By the vendor's ID, which node a route served last, where that is not the one that it was laid for: it goes with that node.
    heirs: BTreeMap<String, String>,
    /// For routes of nodes that were seen to be deleted.
    deleted: Brake,
    /// For routes of nodes that are not listed any more.
    missing: Brake,
}

/// What a guard knows of the nodes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Nodes<'a> {
    pub(crate) n_listed: usize,
    /// By UID, when they were seen to be deleted.
    pub(crate) deleted: &'a BTreeMap<String, Instant>,
}

/// What a guard says.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Judgement {
    pub(crate) held: Vec<Held>,
    /// When another one may go, if nothing changes.
    pub(crate) again: Option<Duration>,
}

/// Routes that do not go until a person says that it is right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) removals: Vec<Removal>,
    pub(crate) why: Why,
}

/// Why they do not go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Why {
    /// No node is listed at all.
    NoNodes,
    /// More nodes than may are not listed any more.
    Missing { allowance: usize, window: Duration },
    /// More nodes than may were deleted.
    Deleted { allowance: usize, window: Duration },
}

impl Why {
    /// Names the kind of trouble, whatever the numbers are.
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
            heirs: BTreeMap::new(),
            deleted: Brake::new(limits, now),
            missing: Brake::new(limits, now),
        }
    }

    /// The work begins, or other work: a replica that has waited has removed nothing meanwhile, but another one may have. What this one let
    /// go of deleted nodes it still knows.
    pub(crate) fn begins(&mut self, limits: Limits, now: Instant) {
        self.limit(limits);
        self.missing = Brake::new(limits, now);
    }

    /// The same that knows of no route.
    pub(crate) fn forgetful(&self) -> Self {
        let unknown = (BTreeMap::new(), BTreeSet::new(), BTreeMap::new());
        let (unasked, let_go, heirs) = unknown;
        let (deleted, missing) = (self.deleted.clone(), self.missing.clone());
        Self { grace: self.grace, unasked, let_go, heirs, deleted, missing }
    }

    /// It has some of the work less.
    pub(crate) fn limit(&mut self, limits: Limits) {
        self.deleted.limit(limits);
        self.missing.limit(limits);
    }

    /// The UIDs of the nodes that routes served last, where these are not the ones that they were laid for.
    pub(crate) fn heirs(&self) -> impl Iterator<Item = &String> {
        self.heirs.values()
    }

    /// Leaves in a plan the removals that may be tried now.
    pub(crate) fn judge(&mut self, plan: &mut Plan, nodes: Nodes<'_>, now: Instant) -> Judgement {
        self.forget(&plan.removals);
        self.heirs.extend(plan.heirs.clone());
        let mut judgement = Judgement::default();
        let (mut go, mut deleted, mut missing) = (Vec::new(), Vec::new(), Vec::new());
        for removal in std::mem::take(&mut plan.removals) {
            if removal.cause == Cause::Replaced {
                go.push(removal);
                continue;
            }
            let served = self.heirs.get(&removal.vendor_id).or(removal.node_uid.as_ref());
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
        go.extend(self.of_missing(missing, (nodes.n_listed, plan.n_ours), &mut judgement, now));
        plan.removals = go;
        judgement
    }

    /// Each of these nodes was seen to go, so that nothing has to be waited for after a start. But a person who deletes all Node objects by
    /// mistake has all their pods run on.
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
                self.let_go.extend(new.iter().map(|removal| removal.vendor_id.clone()));
                new.iter().for_each(|_| self.deleted.went(now));
                [again, new].concat()
            }
            Verdict::Tripped { allowance } => {
                let told_at = |removal: &Removal| self.unasked.get(&removal.vendor_id).map(|at| *at + LISTED);
                let (held, young): (Vec<_>, Vec<_>) =
                    new.into_iter().partition(|removal| told_at(removal).is_none_or(|at| at <= now));
                young.iter().filter_map(told_at).for_each(|at| judgement.wait(at - now));
                judgement.hold(held, Why::Deleted { allowance, window: self.deleted.limits().window });
                again
            }
        }
    }

    fn of_missing(
        &mut self,
        removals: Vec<Removal>,
        (n_nodes, n_ours): (usize, usize),
        judgement: &mut Judgement,
        now: Instant,
    ) -> Vec<Removal> {
        let limits = self.missing.limits();
        if n_nodes == 0 && limits.share < 100 {
            judgement.hold(removals, Why::NoNodes);
            return Vec::new();
        }
        let (again, mut new) = self.split(removals);
        match self.missing.ask(now, n_ours, new.len()) {
            Verdict::Go => (),
            // Few enough to go all of them, and each in its time.
            Verdict::Later { .. } => {
                let (n_due, after) = self.due(n_ours, new.len(), now);
                new.truncate(n_due);
                judgement.wait(after);
            }
            Verdict::Tripped { allowance } => {
                judgement.hold(new, Why::Missing { allowance, window: limits.window });
                return again;
            }
        }
        self.let_go.extend(new.iter().map(|removal| removal.vendor_id.clone()));
        new.iter().for_each(|_| self.missing.went(now));
        [again, new].concat()
    }

    /// How many of those that go little by little may go now, and when the next one may.
    fn due(&mut self, n_ours: usize, n_new: usize, now: Instant) -> (usize, Duration) {
        let mut asked = (1..=n_new).map(|n| (n - 1, self.missing.ask(now, n_ours, n)));
        let next = asked.find_map(|(n, verdict)| match verdict {
            Verdict::Later { after } => Some((n, after)),
            Verdict::Go | Verdict::Tripped { .. } => None,
        });
        next.unwrap_or_default()
    }

    /// Those that were let go before, and the others.
    fn split(&self, removals: Vec<Removal>) -> (Vec<Removal>, Vec<Removal>) {
        removals.into_iter().partition(|removal| self.let_go.contains(&removal.vendor_id))
    }

    /// Forgets what is not to go any more: it is gone, or a node asks for it again.
    fn forget(&mut self, removals: &[Removal]) {
        let ids: BTreeSet<&str> = removals.iter().map(|removal| removal.vendor_id.as_str()).collect();
        self.unasked.retain(|id, _| ids.contains(id.as_str()));
        self.let_go.retain(|id| ids.contains(id.as_str()));
        self.heirs.retain(|id, _| ids.contains(id.as_str()));
    }
}

impl Judgement {
    /// How many routes do not go until a person says that it is right.
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

/// What happens, and what to do about it.
impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n = self.removals.len();
        write!(f, "{n} routes of this cluster lead to machines whose nodes ")?;
        let minutes = |window: &Duration| window.as_secs_f64() / 60.0;
        let flags = match &self.why {
            Why::NoNodes => {
                f.write_str("are not listed any more, and no other node is")?;
                "--route-removal-max-share=100".to_owned()
            }
            Why::Missing { allowance, window } => {
                write!(
                    f,
                    "are not listed any more, at most {allowance} may go within {} min",
                    minutes(window)
                )?;
                format!("--route-removal-max-share=100 and --route-removal-max-number={n}")
            }
            Why::Deleted { allowance, window } => {
                write!(f, "were deleted, at most {allowance} may go within {} min", minutes(window))?;
                format!("--route-removal-max-share=100 and --route-removal-max-number={n}")
            }
        };
        write!(
            f,
            ": none of them is removed. If these nodes are gone for good, start the controller with {flags}"
        )?;
        f.write_str(" until the routes are, too: to ")?;
        let named = self.removals.iter().take(NAMED).map(|removal| removal.to.to_string());
        f.write_str(&named.collect::<Vec<_>>().join(", "))?;
        if n > NAMED { f.write_str(", …") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests;
