//! What a candidate does next. Pure: (what was seen and done, now) to one step.
//!
//! The argument: a lease that changes at the API server at time `w` is seen by others at `w` or later, and taken by them at `w` plus
//! the duration or later, if it has not changed again. Its holder started that write at `w` or earlier and relies on it for less than
//! the duration. And a write finds only the version that its writer has seen: of two, one is refused.

use tokio::time::Instant;

use crate::{record::Record, settings::Timing};

/// One candidate's view of the lease.
#[derive(Clone, Debug)]
pub struct Candidate {
    identity: String,
    timing: Timing,
    seen: Option<Seen>,
    held: Option<Held>,
    /// A standby looks again then.
    next_look: Instant,
    /// The lease is not written before.
    next_write: Instant,
    /// Refused or lost writes in a row.
    failures: u32,
}

#[derive(Clone, Debug)]
struct Seen {
    record: Record,
    /// When we first saw it like this, by our own clock.
    since: Instant,
    /// There is no Lease (any more).
    missing: bool,
    /// Whether a patch of this version may succeed. Not after a write that failed.
    current: bool,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    epoch: u32,
    until: Instant,
}

/// What comes next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Read the Lease.
    Look,
    /// Take it, for a term of this epoch.
    Acquire {
        /// Greater than that of every term that we know of.
        epoch: u32,
        /// The version to patch. `None`: there is no Lease, create it.
        version: Option<String>,
    },
    /// Keep it.
    Renew {
        /// The version to patch.
        version: String,
    },
    /// Nothing until then, unless the Lease is seen to change.
    Wait(Instant),
    /// The term is over.
    Lost(Lost),
}

/// Why a term is over.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Lost {
    /// No renewal succeeded in time: another may take the lease soon.
    #[error("the lease could not be renewed in time")]
    NotRenewed,
    /// Somebody else holds it.
    #[error("{0} holds the lease")]
    TakenBy(String),
    /// Somebody emptied or deleted it.
    #[error("the lease was emptied or deleted by somebody else")]
    Emptied,
}

impl Candidate {
    /// One that knows nothing yet.
    #[must_use]
    pub fn new(identity: &str, timing: Timing, now: Instant) -> Self {
        let identity = identity.to_owned();
        Self { identity, timing, seen: None, held: None, next_look: now, next_write: now, failures: 0 }
    }

    /// The term that we hold: its epoch, and until when we may rely on it.
    #[must_use]
    pub fn term(&self) -> Option<(u32, Instant)> {
        self.held.map(|held| (held.epoch, held.until))
    }

    /// Who holds the lease, as far as we have seen.
    #[must_use]
    pub fn holder(&self) -> Option<&str> {
        self.seen.as_ref().filter(|seen| !seen.missing)?.record.holder.as_deref()
    }

    /// The version that was seen last. `None`: there is no Lease.
    #[must_use]
    pub fn version(&self) -> Option<&str> {
        self.seen.as_ref().filter(|seen| !seen.missing).map(|seen| seen.record.version.as_str())
    }

    /// What comes next.
    #[must_use]
    pub fn decide(&self, now: Instant) -> Step {
        match (&self.held, &self.seen) {
            (Some(held), Some(seen)) => self.keep(held, seen, now),
            (None, Some(seen)) => self.stand_by(seen, now),
            (_, None) if now < self.next_look => Step::Wait(self.next_look),
            (_, None) => Step::Look,
        }
    }

    /// The Lease was read, or was seen to change; `None`: there is none.
    pub fn saw(&mut self, now: Instant, record: Option<Record>) {
        self.next_look = now + self.timing.retry;
        let missing = record.is_none();
        self.seen = Some(match (self.seen.take(), record) {
            (None, record) => Seen { record: record.unwrap_or_default(), since: now, missing, current: true },
            // Whoever held the Lease that was deleted may still rely on it.
            (Some(seen), None) => Seen { missing, current: true, ..seen },
            (Some(seen), Some(record)) => {
                let since = if record.differs(&seen.record) { now } else { seen.since };
                Seen { record, since, missing, current: true }
            }
        });
    }

    /// An acquisition or renewal that was started at `started` succeeded with this answer.
    pub fn wrote(&mut self, (started, now): (Instant, Instant), record: Record) {
        let epoch = self.held.map_or(record.transitions, |held| held.epoch);
        let ours = record.holder.as_deref() == Some(self.identity.as_str());
        self.saw(now, Some(record));
        self.failures = 0;
        self.next_write = started + self.timing.retry;
        if ours {
            self.held = Some(Held { epoch, until: started + self.timing.renew_deadline });
        }
    }

    /// A write that was started at `started` was refused, or nobody knows what became of it.
    ///
    /// The first is repeated at once, after a look: it may have met an earlier one of our own whose answer was lost.
    pub fn failed(&mut self, started: Instant, now: Instant) {
        self.failures = self.failures.saturating_add(1);
        self.next_write = if self.failures == 1 { now } else { started + self.timing.retry };
        self.next_look = now;
        if let Some(seen) = &mut self.seen {
            seen.current = false;
        }
    }

    /// A look that was started at `started` failed.
    pub fn saw_nothing(&mut self, started: Instant) {
        self.next_look = started + self.timing.retry;
        if self.held.is_some() {
            self.next_write = self.next_write.max(self.next_look);
        }
    }

    /// We no longer rely on the lease.
    pub fn resign(&mut self) {
        self.held = None;
    }

    fn keep(&self, held: &Held, seen: &Seen, now: Instant) -> Step {
        match seen.record.holder.as_deref().filter(|_| !seen.missing) {
            Some(holder) if holder == self.identity => (),
            Some(holder) => return Step::Lost(Lost::TakenBy(holder.to_owned())),
            None => return Step::Lost(Lost::Emptied),
        }
        if now >= held.until {
            Step::Lost(Lost::NotRenewed)
        } else if now < self.next_write {
            Step::Wait(self.next_write.min(held.until))
        } else if seen.current {
            Step::Renew { version: seen.record.version.clone() }
        } else {
            Step::Look
        }
    }

    fn stand_by(&self, seen: &Seen, now: Instant) -> Step {
        let free = match seen.record.holder.as_deref() {
            // Ours, from a term that we gave up: nobody else relies on it.
            Some(holder) if holder != self.identity => seen.since + self.timing.duration,
            Some(_) | None => seen.since,
        };
        let from = free.max(self.next_write);
        if seen.current && now >= from {
            let epoch = seen.record.transitions.saturating_add(1);
            let version = (!seen.missing).then(|| seen.record.version.clone());
            Step::Acquire { epoch, version }
        } else if now >= self.next_look {
            Step::Look
        } else {
            Step::Wait(if seen.current { self.next_look.min(from) } else { self.next_look })
        }
    }
}

#[cfg(test)]
mod tests;
