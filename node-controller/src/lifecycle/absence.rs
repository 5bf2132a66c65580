//! The cloud's answers about instances that may be gone, and whether they prove it. Pure: every time is an argument.
//!
//! A single answer proves nothing. The second must come a minimum time later, about the same node and instance, be observed later by the
//! vendor, and no other answer may come in between. A proof expires; while it is needed, it is renewed.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    time::Duration,
};

use controller_core::queue::Backoff;
use jiff::Timestamp;
use tokio::time::Instant;

use crate::plan::Node;

/// Older answers are ignored.
const KEEP: Duration = Duration::from_mins(10);
/// A proof on which the controller could not act yet is renewed after this time.
const RENEW: Duration = Duration::from_mins(5);
/// Instances of another cloud are asked about again after this time, in case the adapter's region was changed.
const FOREIGN: Duration = Duration::from_hours(1);
/// Pause for a node that was deleted and is still in the cache.
const LINGER: Duration = Duration::from_mins(1);
/// After any other answer the cloud is asked again with backoff. The backoff starts again when the cloud's listing ceases to show the
/// instance, since the answer may then have changed.
const BACKOFF: Backoff = Backoff { first: Duration::from_secs(5), longest: Duration::from_mins(5) };

/// A node and its instance. A node that was recreated under the name has another UID.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Subject {
    pub(super) uid: String,
    pub(super) provider_id: String,
}

impl Subject {
    /// Returns `None` if the node has no provider ID.
    pub(super) fn of(node: &Node) -> Option<Self> {
        let provider_id = node.provider_id.clone()?;
        Some(Self { uid: node.uid.clone(), provider_id })
    }
}

/// Whether the cache shows the instance, which may be ending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    Yes,
    No,
}

/// The cloud's answer about an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// Gone, with evidence observed at this time of the adapter's clock.
    Gone { observed: Timestamp },
    /// It exists, and may be switched off.
    Exists { stopped: bool },
    /// The cloud does not show it, which proves nothing.
    NotVisible,
    /// It belongs to another cloud or region.
    Foreign,
    /// The cloud returned an error.
    Failed { error: String, retry_after: Option<Duration> },
}

/// The conclusion from the answers so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// No answer yet.
    Nothing,
    /// The cloud returned an error.
    Failed {
        /// The adapter's error text.
        error: String,
        /// The answer before was an error, too.
        repeated: bool,
    },
    /// It exists.
    Exists { stopped: bool },
    /// The cloud does not show it.
    NotVisible,
    /// It belongs to another cloud or region.
    Foreign,
    /// The cloud says that it is gone.
    Gone {
        /// Time of the last such answer.
        last: Instant,
        /// Time of the observation on the adapter's clock.
        observed: Timestamp,
        /// The cloud gave the answer twice, far enough apart.
        confirmed: bool,
    },
    /// Its node was deleted.
    Deleted,
}

#[derive(Debug)]
struct Case {
    heard: Heard,
    /// When to ask the cloud.
    due: Instant,
    /// The cloud's retry delay ends at this time.
    peace: Instant,
    shown: Shown,
    /// Number of consecutive answers that were no proof.
    fruitless: u32,
    /// The cloud did not show it, and could not prove that it is gone.
    unproven: bool,
}

/// The answers about each node.
#[derive(Debug)]
pub(super) struct Ledger {
    confirm_after: Duration,
    cases: BTreeMap<Subject, Case>,
    /// The nodes that the brake held and that have shown no sign of life since. Missing knowledge is not a sign of life.
    held: BTreeSet<Subject>,
}

impl Ledger {
    pub(super) fn new(confirm_after: Duration) -> Self {
        Self { confirm_after, cases: BTreeMap::new(), held: BTreeSet::new() }
    }

    /// Forgets all other nodes: a node that was ready in between, or whose instance was seen, starts again.
    pub(super) fn keep<'a>(&mut self, subjects: impl Iterator<Item = (&'a Subject, Shown)>, now: Instant) {
        let mut before = mem::take(&mut self.cases);
        for (subject, shown) in subjects {
            let mut case = before.remove(subject).unwrap_or_else(|| Case::new(shown, now));
            case.is_shown(shown, now);
            self.cases.insert(subject.clone(), case);
        }
    }

    /// Handles a sign of life: forgets the answers about these nodes and ignores requests that are under way.
    pub(super) fn forget(&mut self, whom: impl Fn(&Subject) -> bool) {
        self.cases.retain(|subject, _| !whom(subject));
        self.release(whom);
    }

    /// Marks nodes as held by the brake.
    pub(super) fn hold(&mut self, subjects: impl IntoIterator<Item = Subject>) {
        self.held.extend(subjects);
    }

    /// Ends the hold of nodes.
    pub(super) fn release(&mut self, whom: impl Fn(&Subject) -> bool) {
        self.held.retain(|subject| !whom(subject));
    }

    /// Returns the nodes that the brake holds.
    pub(super) fn held(&self) -> BTreeSet<Subject> {
        self.held.clone()
    }

    /// Returns the nodes about which the cloud is to be asked now.
    pub(super) fn due(&self, now: Instant) -> Vec<Subject> {
        self.cases.iter().filter(|(_, case)| case.due <= now).map(|(subject, _)| subject.clone()).collect()
    }

    /// Whether the cloud failed to prove an absence for any of them: such requests need witnesses.
    pub(super) fn lacks_proof(&self, subjects: &[Subject]) -> bool {
        subjects.iter().filter_map(|subject| self.cases.get(subject)).any(|case| case.unproven)
    }

    /// Records an answer to a request that was sent at `asked`.
    pub(super) fn hear(&mut self, subject: &Subject, answer: &Answer, asked: Instant, now: Instant) {
        let confirm_after = self.confirm_after;
        if matches!(answer, Answer::Exists { .. }) {
            self.held.remove(subject);
        }
        let Some(case) = self.cases.get_mut(subject) else { return };
        let (heard, retry_after) = match answer {
            Answer::Gone { observed } => return case.gone(*observed, (asked, now), confirm_after),
            Answer::Exists { stopped } => (Heard::Exists { stopped: *stopped }, None),
            Answer::NotVisible => (Heard::NotVisible, None),
            Answer::Foreign => (Heard::Foreign, Some(FOREIGN)),
            Answer::Failed { error, retry_after } => {
                let repeated = matches!(case.heard, Heard::Failed { .. });
                (Heard::Failed { error: error.clone(), repeated }, *retry_after)
            }
        };
        case.fruitless = case.fruitless.saturating_add(1);
        case.unproven |= heard == Heard::NotVisible;
        case.heard = heard;
        case.peace = now + retry_after.unwrap_or_default();
        case.due = case.peace.max(now + BACKOFF.pause(case.fruitless));
    }

    /// Records the deletion of a node. The cache may lag and still show the node: it is left alone for a while.
    pub(super) fn deleted(&mut self, subject: &Subject, now: Instant) {
        if let Some(case) = self.cases.get_mut(subject) {
            *case = Case { heard: Heard::Deleted, due: now + LINGER, ..Case::new(case.shown, now) };
        }
    }

    pub(super) fn heard(&self, subject: &Subject) -> Option<&Heard> {
        self.cases.get(subject).map(|case| &case.heard)
    }

    /// Whether the instance is proven to be gone.
    pub(super) fn is_proven(&self, subject: &Subject, now: Instant) -> bool {
        match self.heard(subject) {
            Some(Heard::Gone { last, confirmed: true, .. }) => now.duration_since(*last) < KEEP,
            Some(_) | None => false,
        }
    }
}

impl Case {
    fn new(shown: Shown, now: Instant) -> Self {
        Self { heard: Heard::Nothing, due: now, peace: now, shown, fruitless: 0, unproven: false }
    }

    /// The backoff for answers from before the listing lost the instance does not apply to the answers after it.
    fn is_shown(&mut self, shown: Shown, now: Instant) {
        let ceases = (self.shown, shown) == (Shown::Yes, Shown::No);
        if ceases && self.fruitless > 0 {
            self.fruitless = 0;
            self.due = self.peace.max(now);
        }
        self.shown = shown;
    }

    fn gone(&mut self, observed: Timestamp, (asked, now): (Instant, Instant), confirm_after: Duration) {
        self.fruitless = 0;
        let (confirmed, last) = match self.heard {
            // The answer is from a cache, or the clock went back: it counts as a first answer at best.
            Heard::Gone { observed: before, .. } if observed <= before => (false, now),
            Heard::Gone { last, .. } if now.duration_since(last) >= KEEP => (false, now),
            Heard::Gone { confirmed: true, .. } => (true, now),
            Heard::Gone { last, .. } if asked.saturating_duration_since(last) >= confirm_after => (true, now),
            // Too soon to confirm: the time of the first answer is kept.
            Heard::Gone { last, .. } => (false, last),
            Heard::Nothing
            | Heard::Failed { .. }
            | Heard::Exists { .. }
            | Heard::NotVisible
            | Heard::Foreign
            | Heard::Deleted => (false, now),
        };
        self.heard = Heard::Gone { last, observed, confirmed };
        self.due = if confirmed { now + RENEW } else { last + confirm_after };
    }
}

#[cfg(test)]
mod tests;
