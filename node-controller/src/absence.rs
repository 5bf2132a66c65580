//! Keeps the cloud's answers about instances that may be gone, and decides whether the answers prove that an instance is gone. The code is
//! pure: every time is an argument.
//!
//! A single answer proves nothing. A second answer confirms the first if it concerns the same node and instance. It must come a minimum
//! time later, and the vendor must have observed it later. No other answer may come in between. A proof expires, and is renewed while it is
//! needed.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use controller_core::queue::Backoff;
use jiff::Timestamp;
use tokio::time::Instant;

use crate::plan::Node;

/// Age after which an answer is ignored.
const KEEP: Duration = Duration::from_mins(10);
/// Age after which a proof is renewed if the controller could not act on it yet.
const RENEW: Duration = Duration::from_mins(5);
/// Interval after which the controller asks again about instances of another cloud, in case the adapter's region was changed.
const FOREIGN: Duration = Duration::from_hours(1);
/// How long the controller ignores a deleted node, because the cache may still show the node.
const DELETED_KEPT: Duration = Duration::from_mins(1);
/// Backoff after an answer that does not report the instance as gone. The backoff is reset when the cloud's listing ceases to show the
/// instance, because the next answer may differ.
const BACKOFF: Backoff = Backoff { first: Duration::from_secs(5), longest: Duration::from_mins(5) };

/// A node and its instance. A recreated node of the same name has another UID.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Subject {
    pub(crate) uid: String,
    pub(crate) provider_id: String,
}

impl Subject {
    /// Returns `None` if the node has no provider ID.
    pub(crate) fn of(node: &Node) -> Option<Self> {
        let provider_id = node.provider_id.clone()?;
        Some(Self { uid: node.uid.clone(), provider_id })
    }
}

/// Whether the cache shows the instance, even if the instance is being deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    Yes,
    No,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The instance is gone, with evidence observed at this time of the adapter's clock.
    Gone {
        observed: Timestamp,
    },
    /// The instance exists, and may be switched off.
    Exists {
        stopped: bool,
    },
    /// The cloud does not show the instance, which proves nothing.
    NotVisible,
    /// The instance belongs to another cloud or region.
    Foreign,
    Failed {
        error: String,
        retry_after: Option<Duration>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Conclusion {
    /// The cloud has not answered yet.
    Nothing,
    Failed {
        error: String,
        /// Whether the previous answer was an error, too.
        repeated: bool,
    },
    Exists {
        stopped: bool,
    },
    /// The cloud does not show the instance.
    NotVisible,
    /// The instance belongs to another cloud or region.
    Foreign,
    /// The cloud reports that the instance is gone.
    Gone {
        /// Time of the last answer that reported the instance as gone. An answer that comes too early to confirm an earlier one does not
        /// change this time.
        last: Instant,
        /// Time of the observation on the adapter's clock.
        observed: Timestamp,
        /// The cloud reported the absence twice, far enough apart.
        confirmed: bool,
    },
    Deleted,
}

#[derive(Debug)]
struct Case {
    conclusion: Conclusion,
    /// Next time at which the controller asks the cloud.
    due: Instant,
    /// End of the retry delay that the cloud asked for.
    paused_until: Instant,
    shown: Shown,
    /// Number of consecutive answers without a proof.
    fruitless: u32,
    /// The cloud did not show the instance, and could not prove that the instance is gone.
    unproven: bool,
}

#[derive(Debug)]
pub(crate) struct Ledger {
    confirm_after: Duration,
    cases: BTreeMap<Subject, Case>,
    /// The nodes that the deletion brake kept from deletion and that have shown no sign of life since. A missing answer is not a sign of
    /// life.
    held: BTreeSet<Subject>,
}

impl Ledger {
    pub(crate) fn new(confirm_after: Duration) -> Self {
        Self { confirm_after, cases: BTreeMap::new(), held: BTreeSet::new() }
    }

    /// Keeps the state of these nodes and drops the state of all other nodes. A node needs two new answers if it was ready in between or if
    /// its instance was seen.
    pub(crate) fn keep<'a>(&mut self, subjects: impl Iterator<Item = (&'a Subject, Shown)>, now: Instant) {
        let mut before = mem::take(&mut self.cases);
        for (subject, shown) in subjects {
            let mut case = before.remove(subject).unwrap_or_else(|| Case::new(shown, now));
            case.is_shown(shown, now);
            self.cases.insert(subject.clone(), case);
        }
    }

    /// Handles a sign of life: drops the answers about these nodes and ignores the answers to requests that are in progress.
    pub(crate) fn forget(&mut self, whom: impl Fn(&Subject) -> bool) {
        self.cases.retain(|subject, _| !whom(subject));
        self.release(whom);
    }

    pub(crate) fn hold(&mut self, subjects: impl IntoIterator<Item = Subject>) {
        self.held.extend(subjects);
    }

    pub(crate) fn release(&mut self, whom: impl Fn(&Subject) -> bool) {
        self.held.retain(|subject| !whom(subject));
    }

    pub(crate) fn held(&self) -> BTreeSet<Subject> {
        self.held.clone()
    }

    pub(crate) fn due(&self, now: Instant) -> Vec<Subject> {
        self.cases.iter().filter(|(_, case)| case.due <= now).map(|(subject, _)| subject.clone()).collect()
    }

    /// Whether the cloud failed to prove the absence of any of these instances. If so, the next request needs witnesses.
    pub(crate) fn lacks_proof(&self, subjects: &[Subject]) -> bool {
        subjects.iter().filter_map(|subject| self.cases.get(subject)).any(|case| case.unproven)
    }

    /// Records an answer to a request that was sent at `asked`.
    pub(crate) fn record(&mut self, subject: &Subject, answer: &Verdict, asked: Instant, now: Instant) {
        let confirm_after = self.confirm_after;
        if matches!(answer, Verdict::Exists { .. }) {
            self.held.remove(subject);
        }
        let Some(case) = self.cases.get_mut(subject) else { return };
        let (conclusion, retry_after) = match answer {
            Verdict::Gone { observed } => return case.gone(*observed, asked, now, confirm_after),
            Verdict::Exists { stopped } => (Conclusion::Exists { stopped: *stopped }, None),
            Verdict::NotVisible => (Conclusion::NotVisible, None),
            Verdict::Foreign => (Conclusion::Foreign, Some(FOREIGN)),
            Verdict::Failed { error, retry_after } => {
                let repeated = matches!(case.conclusion, Conclusion::Failed { .. });
                (Conclusion::Failed { error: error.clone(), repeated }, *retry_after)
            }
        };
        case.fruitless = case.fruitless.saturating_add(1);
        case.unproven |= conclusion == Conclusion::NotVisible;
        case.conclusion = conclusion;
        case.paused_until = now + retry_after.unwrap_or_default();
        case.due = case.paused_until.max(now + BACKOFF.pause(case.fruitless));
    }

    /// Records the deletion of a node. The controller ignores the node for a while, since a lagging cache may still show it.
    pub(crate) fn deleted(&mut self, subject: &Subject, now: Instant) {
        if let Some(case) = self.cases.get_mut(subject) {
            *case = Case {
                conclusion: Conclusion::Deleted,
                due: now + DELETED_KEPT,
                ..Case::new(case.shown, now)
            };
        }
    }

    pub(crate) fn conclusion(&self, subject: &Subject) -> Option<&Conclusion> {
        self.cases.get(subject).map(|case| &case.conclusion)
    }

    pub(crate) fn is_proven(&self, subject: &Subject, now: Instant) -> bool {
        match self.conclusion(subject) {
            Some(Conclusion::Gone { last, confirmed: true, .. }) => now.duration_since(*last) < KEEP,
            Some(_) | None => false,
        }
    }
}

impl Case {
    fn new(shown: Shown, now: Instant) -> Self {
        Self {
            conclusion: Conclusion::Nothing,
            due: now,
            paused_until: now,
            shown,
            fruitless: 0,
            unproven: false,
        }
    }

    /// Resets the backoff if the listing has lost the instance since the last answer.
    fn is_shown(&mut self, shown: Shown, now: Instant) {
        let ceases = (self.shown, shown) == (Shown::Yes, Shown::No);
        if ceases && self.fruitless > 0 {
            self.fruitless = 0;
            self.due = self.paused_until.max(now);
        }
        self.shown = shown;
    }

    fn gone(&mut self, observed: Timestamp, asked: Instant, now: Instant, confirm_after: Duration) {
        self.fruitless = 0;
        let (confirmed, last) = match self.conclusion {
            // The answer comes from a cache, or the adapter's clock went back, so the answer counts at most as a first answer.
            Conclusion::Gone { observed: before, .. } if observed <= before => (false, now),
            Conclusion::Gone { last, .. } if now.duration_since(last) >= KEEP => (false, now),
            Conclusion::Gone { confirmed: true, .. } => (true, now),
            Conclusion::Gone { last, .. } if asked.saturating_duration_since(last) >= confirm_after => {
                (true, now)
            }
            // The answer is too early to confirm the first one, whose time is kept.
            Conclusion::Gone { last, .. } => (false, last),
            Conclusion::Nothing
            | Conclusion::Failed { .. }
            | Conclusion::Exists { .. }
            | Conclusion::NotVisible
            | Conclusion::Foreign
            | Conclusion::Deleted => (false, now),
        };
        self.conclusion = Conclusion::Gone { last, observed, confirmed };
        self.due = if confirmed { now + RENEW } else { last + confirm_after };
    }
}

/// The signs of life of nodes and instances. The caches report each change, because a check every few seconds would miss short signs.
/// Clones share the state.
#[derive(Clone, Debug)]
pub(crate) struct Signs(Arc<Mutex<Ledger>>);

impl Signs {
    pub(crate) fn new(confirm_after: Duration) -> Self {
        Self(Arc::new(Mutex::new(Ledger::new(confirm_after))))
    }

    /// Records that a node is ready.
    pub(crate) fn of_node(&self, uid: &str) {
        self.ledger().forget(|subject| subject.uid == uid);
    }

    /// Records that the cloud lists the instance, and that the instance is not being deleted.
    pub(crate) fn of_machine(&self, provider_id: &str) {
        self.ledger().forget(|subject| subject.provider_id == provider_id);
    }

    pub(crate) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
