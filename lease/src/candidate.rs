//! What a candidate does next. Pure: (what was seen and done, now) to one step.
//!
//! The argument: a lease that changes at the API server at time `w` is seen by others at `w` or later, and taken by them at `w` plus
//! the duration or later, if it has not changed again. Its holder started that write at `w` or earlier and relies on it for less than
//! the duration. And a write finds only the version that its writer has seen: of two, one is refused.
//!
//! A Lease that is missing, or that somebody else emptied, says nothing of who still relies on it: it is taken no sooner than one that
//! has a holder. Only one that was given back, or never held, is free at once.

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
    /// The greatest epoch that any record had.
    highest: u64,
    /// Our terms in a row.
    ours: Option<Ours>,
    /// An acquisition may have been carried out though we were not told: of the lease as it was in the term of this epoch.
    asked_after: Option<u64>,
}

#[derive(Clone, Debug)]
struct Seen {
    record: Record,
    /// Until then, by our own clock, somebody else may rely on it.
    taken_until: Instant,
    /// When it was seen last.
    at: Instant,
    /// There is no Lease (any more).
    missing: bool,
    /// Whether a patch of this version may succeed. Not after a write that failed.
    current: bool,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    epoch: u64,
    until: Instant,
}

/// Terms of ours between which nobody else had one.
#[derive(Clone, Copy, Debug)]
struct Ours {
    /// The epoch of the first.
    since: u64,
    /// That of the last.
    last: u64,
}

/// How a lease is taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acquisition {
    /// How often it then has changed hands: more often than we know of.
    pub transitions: u32,
    /// The new term's epoch is to be greater than this one.
    pub after: u64,
    /// The version to patch. `None`: there is no Lease, create it.
    pub version: Option<String>,
}

/// What comes next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Read the Lease.
    Look,
    /// Take it.
    Acquire(Acquisition),
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
        Self {
            identity: identity.to_owned(),
            timing,
            seen: None,
            held: None,
            next_look: now,
            next_write: now,
            failures: 0,
            highest: 0,
            ours: None,
            asked_after: None,
        }
    }

    /// The term that we hold: its epoch, and until when we may rely on it.
    #[must_use]
    pub fn term(&self) -> Option<(u64, Instant)> {
        self.held.map(|held| (held.epoch, held.until))
    }

    /// The epoch of our first term since which nobody else had one. 0: we had none.
    #[must_use]
    pub fn since(&self) -> u64 {
        self.ours.map_or(0, |ours| ours.since)
    }

    /// The UID of the Lease. Empty: it was not seen yet.
    #[must_use]
    pub fn uid(&self) -> &str {
        self.seen.as_ref().map(|seen| seen.record.uid.as_str()).unwrap_or_default()
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

    /// What it says, or said before it went missing.
    pub(crate) fn record(&self) -> Option<&Record> {
        self.seen.as_ref().map(|seen| &seen.record)
    }

    /// From when on nobody else relies on it: the past, once that is proven.
    pub(crate) fn free_from(&self) -> Option<Instant> {
        self.seen.as_ref().map(|seen| seen.taken_until)
    }

    /// Whether a patch of the version that was seen last may succeed.
    pub(crate) fn is_current(&self) -> bool {
        self.seen.as_ref().is_some_and(|seen| seen.current && !seen.missing)
    }

    /// What comes next.
    #[must_use]
    pub fn decide(&self, now: Instant) -> Step {
        self.decide_if(true, now)
    }

    /// The same of one that may leave a free lease alone, and only looks then.
    pub(crate) fn decide_if(&self, may_take: bool, now: Instant) -> Step {
        match (&self.held, &self.seen) {
            (Some(held), Some(seen)) => self.keep(held, seen, now),
            (None, Some(seen)) => self.stand_by(seen, may_take, now),
            (_, None) if now < self.next_look => Step::Wait(self.next_look),
            (_, None) => Step::Look,
        }
    }

    /// The Lease was read, or was seen to change; `None`: there is none.
    pub fn saw(&mut self, now: Instant, record: Option<Record>) {
        self.next_look = now + self.timing.retry;
        // While we may rely on it, nobody else does.
        let relied = self.held.is_some_and(|held| now < held.until);
        let taken_until = match &record {
            Some(record) => self.taken_until(now, record, relied),
            None => self.gone_until(now, relied),
        };
        if let Some(record) = &record {
            self.highest = self.highest.max(record.epoch());
            self.recognise(record);
        }
        let missing = record.is_none();
        let last = || self.seen.take().map(|seen| seen.record);
        let record = record.or_else(last).unwrap_or_default();
        self.seen = Some(Seen { record, taken_until, at: now, missing, current: true });
    }

    /// The same, told by a watch, which tells what comes next as well: there is less to look for.
    pub(crate) fn saw_change(&mut self, now: Instant, record: Option<Record>) {
        let exists = record.is_some();
        self.saw(now, record);
        if exists {
            self.looks_less(now);
        }
    }

    /// A watch is open. A look finds out when it is silent for other reasons than that nothing changes.
    pub(crate) fn looks_less(&mut self, now: Instant) {
        self.next_look = now + self.timing.watched();
    }

    /// Until when somebody else may rely on a lease that is seen like this.
    fn taken_until(&self, now: Instant, record: &Record, relied: bool) -> Instant {
        let expires = now + self.timing.duration;
        let free = record.released || self.is_ours(record);
        let Some(Seen { record: last, taken_until, missing, .. }) = &self.seen else {
            return if free || record.is_untouched() { now } else { expires };
        };
        let same_term = record.epoch() == last.epoch();
        match record.holder {
            // Restored or replaced: what it says may be long over.
            _ if record.epoch() < last.epoch() => expires,
            _ if free => now,
            Some(_) if record.differs(last) || *missing => expires,
            Some(_) => *taken_until,
            None if same_term && last.holder.is_none() && !last.released => *taken_until,
            None if same_term && relied => now,
            // Whoever held it may have renewed it unseen before it was emptied.
            None => expires,
        }
    }

    /// The same of a Lease that is missing. Others may have held it unseen before it was deleted.
    fn gone_until(&mut self, now: Instant, relied: bool) -> Instant {
        match &self.seen {
            Some(seen) if seen.missing && now < self.unseen_from(seen) => seen.taken_until,
            Some(seen) if relied && !seen.missing => now,
            Some(_) | None => {
                self.ours = None;
                now + self.timing.duration
            }
        }
    }

    /// No version tells whether a missing Lease was made and deleted again meanwhile: who has not looked for so long knows nothing.
    fn unseen_from(&self, seen: &Seen) -> Instant {
        seen.at + self.timing.renew_deadline
    }

    /// Whether it is from a term of ours, also one of which nobody told us that it began.
    fn is_ours(&self, record: &Record) -> bool {
        let told = self.ours.is_some_and(|ours| ours.last == record.epoch());
        record.holder.as_ref() == Some(&self.identity) && (told || self.asked_after.is_some())
    }

    fn recognise(&mut self, record: &Record) {
        if self.is_ours(record)
            && let Some(ours) = &mut self.ours
            && self.asked_after == Some(ours.last)
        {
            ours.last = ours.last.max(record.epoch());
        }
    }

    /// An acquisition or renewal that was started at `started` succeeded with this answer.
    pub fn wrote(&mut self, (started, now): (Instant, Instant), record: Record) {
        let epoch = self.held.map_or_else(|| record.epoch(), |held| held.epoch);
        let ours = record.holder.as_ref() == Some(&self.identity);
        let last = self.held.map_or_else(|| self.last_epoch(), |held| Some(held.epoch));
        let since = self.ours.filter(|ours| Some(ours.last) == last).map_or(epoch, |ours| ours.since);
        self.saw(now, Some(record));
        self.failures = 0;
        self.next_write = started + self.timing.retry;
        if ours {
            self.ours = Some(Ours { since, last: epoch });
            self.asked_after = None;
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
        if self.held.is_none() && self.seen.as_ref().is_some_and(|seen| !seen.missing) {
            self.asked_after = self.last_epoch();
        }
        if let Some(seen) = &mut self.seen {
            seen.current = false;
        }
    }

    fn last_epoch(&self) -> Option<u64> {
        self.seen.as_ref().map(|seen| seen.record.epoch())
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

    fn stand_by(&self, seen: &Seen, may_take: bool, now: Instant) -> Step {
        let from = seen.taken_until.max(self.next_write);
        let known = seen.current && (!seen.missing || now < self.unseen_from(seen));
        if may_take && known && now >= from {
            Step::Acquire(Acquisition {
                transitions: seen.record.transitions.saturating_add(1),
                after: self.highest,
                version: (!seen.missing).then(|| seen.record.version.clone()),
            })
        } else if now >= self.next_look {
            Step::Look
        } else {
            Step::Wait(if seen.current && may_take { self.next_look.min(from) } else { self.next_look })
        }
    }
}

#[cfg(test)]
mod tests;
