//! What the cloud said about machines that may be gone, and whether it is a proof. Pure, every time is an argument.
//!
//! One word is none: the second has to come some time after the first, about the same node and machine, seen later by the vendor, and
//! with no other word in between. A proof is worth something for a while only; for as long as it is needed it is renewed.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    time::Duration,
};

use controller_core::queue::Backoff;
use jiff::Timestamp;
use tokio::time::Instant;

use crate::plan::Node;

/// A word that is older counts as never said.
const KEEP: Duration = Duration::from_mins(10);
/// A proof that nobody could act upon yet is renewed before that.
const RENEW: Duration = Duration::from_mins(5);
/// What another cloud has is asked about again in case somebody changed the adapter's region.
const FOREIGN: Duration = Duration::from_hours(1);
/// A node that was deleted and is still there.
const LINGER: Duration = Duration::from_mins(1);
/// Whatever else the cloud says: it is asked again, less and less often; and as if for the first time when its listing ceases to show
/// the machine, for then it has news.
const BACKOFF: Backoff = Backoff { first: Duration::from_secs(5), longest: Duration::from_mins(5) };

/// A node and its machine: a node made anew under the name is another one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Subject {
    pub(super) uid: String,
    pub(super) provider_id: String,
}

impl Subject {
    /// `None`: the node names no machine.
    pub(super) fn of(node: &Node) -> Option<Self> {
        let provider_id = node.provider_id.clone()?;
        Some(Self { uid: node.uid.clone(), provider_id })
    }
}

/// Whether the mirror of the cloud shows the machine, which may be about to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    Yes,
    No,
}

/// What the cloud answers about a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// With evidence, which was seen then, on the adapter's clock.
    Gone { observed: Timestamp },
    /// It is there, perhaps switched off.
    Exists { stopped: bool },
    /// It is not shown, which proves nothing.
    NotVisible,
    /// It belongs to another cloud or region.
    Foreign,
    /// The cloud cannot tell.
    Failed { error: String, retry_after: Option<Duration> },
}

/// What is known from the answers so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// Nobody has asked.
    Nothing,
    /// The cloud could not tell.
    Failed {
        /// Why, in the adapter's words.
        error: String,
        /// It could not the last time either.
        repeated: bool,
    },
    /// It is there.
    Exists { stopped: bool },
    /// It is not shown.
    NotVisible,
    /// It is somebody else's.
    Foreign,
    /// It is gone.
    Gone {
        /// When that was heard last.
        last: Instant,
        /// When it was seen, on the adapter's clock.
        observed: Timestamp,
        /// It was said twice, far enough apart.
        confirmed: bool,
    },
    /// Its node was deleted.
    Deleted,
}

#[derive(Debug)]
struct Case {
    heard: Heard,
    /// When to ask.
    due: Instant,
    /// The cloud does not want to be asked before.
    peace: Instant,
    shown: Shown,
    /// Answers in a row that were no proof.
    fruitless: u32,
    /// The cloud did not show it, and could not prove that it is gone.
    unproven: bool,
}

/// What was heard about whom.
#[derive(Debug)]
pub(super) struct Ledger {
    confirm_after: Duration,
    cases: BTreeMap<Subject, Case>,
    /// Whom the brake held, and of whom there was no sign of life since. That nothing is known of them any more is none.
    held: BTreeSet<Subject>,
}

impl Ledger {
    pub(super) fn new(confirm_after: Duration) -> Self {
        Self { confirm_after, cases: BTreeMap::new(), held: BTreeSet::new() }
    }

    /// Everybody else is forgotten: a node that was ready in between, or whose machine was seen, begins anew.
    pub(super) fn keep<'a>(&mut self, subjects: impl Iterator<Item = (&'a Subject, Shown)>, now: Instant) {
        let mut before = mem::take(&mut self.cases);
        for (subject, shown) in subjects {
            let mut case = before.remove(subject).unwrap_or_else(|| Case::new(shown, now));
            case.is_shown(shown, now);
            self.cases.insert(subject.clone(), case);
        }
    }

    /// A sign of life. They begin anew, and what they wait for is not heard any more.
    pub(super) fn forget(&mut self, whom: impl Fn(&Subject) -> bool) {
        self.cases.retain(|subject, _| !whom(subject));
        self.release(whom);
    }

    /// The brake held them.
    pub(super) fn hold(&mut self, subjects: impl IntoIterator<Item = Subject>) {
        self.held.extend(subjects);
    }

    /// They are not held any more.
    pub(super) fn release(&mut self, whom: impl Fn(&Subject) -> bool) {
        self.held.retain(|subject| !whom(subject));
    }

    /// Whom the brake held.
    pub(super) fn held(&self) -> BTreeSet<Subject> {
        self.held.clone()
    }

    /// About whom the cloud is to be asked now.
    pub(super) fn due(&self, now: Instant) -> Vec<Subject> {
        self.cases.iter().filter(|(_, case)| case.due <= now).map(|(subject, _)| subject.clone()).collect()
    }

    /// Whether the cloud could not prove of one of them that it is gone. It needs others of the cluster for that, each time.
    pub(super) fn lacks_proof(&self, subjects: &[Subject]) -> bool {
        subjects.iter().filter_map(|subject| self.cases.get(subject)).any(|case| case.unproven)
    }

    /// Notes an answer to a question that was asked at `asked`.
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

    /// The node was deleted. While it is still there nothing is done about it for a moment: the mirror may lag.
    pub(super) fn deleted(&mut self, subject: &Subject, now: Instant) {
        if let Some(case) = self.cases.get_mut(subject) {
            *case = Case { heard: Heard::Deleted, due: now + LINGER, ..Case::new(case.shown, now) };
        }
    }

    pub(super) fn heard(&self, subject: &Subject) -> Option<&Heard> {
        self.cases.get(subject).map(|case| &case.heard)
    }

    /// Whether the machine is proven to be gone.
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

    /// What was answered while the machine was listed says nothing of how soon the next answer is another one.
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
            // An answer from a cache, or from a clock that went back: it is the first word, at best.
            Heard::Gone { observed: before, .. } if observed <= before => (false, now),
            Heard::Gone { last, .. } if now.duration_since(last) >= KEEP => (false, now),
            Heard::Gone { confirmed: true, .. } => (true, now),
            Heard::Gone { last, .. } if asked.saturating_duration_since(last) >= confirm_after => (true, now),
            // Too soon: the first word still counts from when it came.
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
