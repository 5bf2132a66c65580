//! The state machine of a candidate. Its functions derive the next step from observations, results of requests and the time, and have no
//! side effects.
//!
//! At most one process relies on a lease. Other candidates observe a change made at time `w` no earlier than `w`. They take the lease only
//! if the Lease then stays unchanged for the lease duration. The holder started the write of that change no later than `w`, and relies on
//! the lease for less than the duration. A write succeeds only on the version that its writer observed, so one of two concurrent writes is
//! refused.
//!
//! A Lease that is missing, or that another client emptied, does not show whether a process still relies on the lease. Candidates therefore
//! wait as long as for a held Lease. Only a Lease that was released, or never held, can be taken at once.

use tokio::time::Instant;

use crate::{
    record::{Acquisition, Record},
    settings::Timing,
};

/// The state of one candidate.
#[derive(Clone, Debug)]
pub struct Candidate {
    identity: String,
    timing: Timing,
    seen: Option<Seen>,
    held: Option<Held>,
    /// Time at which a standby reads the Lease again.
    next_read: Instant,
    /// Earliest time of the next write.
    next_write: Instant,
    /// Consecutive refused or lost writes.
    failures: u32,
    /// The highest epoch of any observed record.
    highest: u64,
    /// The consecutive terms of this process, if the process has held the lease.
    ours: Option<Ours>,
    /// The epoch of the lease before an acquisition that may have succeeded although no answer arrived. `None` if there is no such
    /// acquisition.
    asked_after: Option<u64>,
}

#[derive(Clone, Debug)]
struct Seen {
    record: Record,
    /// Time, by the local clock, until which another process may rely on the lease.
    taken_until: Instant,
    /// Time of the last observation.
    at: Instant,
    /// Whether the Lease does not exist, or no longer exists.
    missing: bool,
    /// Whether a patch of this version may succeed. The value is false from a failed write until the Lease is read again.
    current: bool,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    epoch: u64,
    until: Instant,
}

/// Consecutive terms of this process. No other process has had a term in between.
#[derive(Clone, Copy, Debug)]
struct Ours {
    /// Epoch of the first term.
    since: u64,
    /// Epoch of the last term.
    last: u64,
}

/// The next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Read the Lease.
    Read,
    /// Acquire the lease.
    Acquire(Acquisition),
    /// Renew the lease.
    Renew {
        /// The version to patch.
        version: String,
    },
    /// Wait until this time, or until the Lease changes.
    Wait(Instant),
    /// End the term of this process.
    Lost(Lost),
}

/// The reasons why a term ends.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Lost {
    /// No renewal succeeded in time; another process may soon acquire the lease.
    #[error("the lease could not be renewed in time")]
    NotRenewed,
    /// Another process holds the lease.
    #[error("{0} holds the lease")]
    TakenBy(String),
    /// Another client emptied or deleted the Lease.
    #[error("another client emptied or deleted the lease")]
    Emptied,
}

impl Candidate {
    /// Creates a candidate that has observed nothing.
    #[must_use]
    pub fn new(identity: &str, timing: Timing, now: Instant) -> Self {
        Self {
            identity: identity.to_owned(),
            timing,
            seen: None,
            held: None,
            next_read: now,
            next_write: now,
            failures: 0,
            highest: 0,
            ours: None,
            asked_after: None,
        }
    }

    /// Returns the epoch of this process's current term, and the time until which this process may rely on the lease.
    #[must_use]
    pub fn term(&self) -> Option<(u64, Instant)> {
        self.held.map(|held| (held.epoch, held.until))
    }

    /// Returns the epoch of the first of the consecutive terms of this process, or 0 if there was no term.
    #[must_use]
    pub fn since(&self) -> u64 {
        self.ours.map_or(0, |ours| ours.since)
    }

    /// Returns the UID of the Lease. The UID is empty if no Lease was observed yet.
    #[must_use]
    pub fn uid(&self) -> &str {
        self.seen.as_ref().map(|seen| seen.record.uid.as_str()).unwrap_or_default()
    }

    /// The holder of the lease, as last observed.
    #[must_use]
    pub fn holder(&self) -> Option<&str> {
        self.seen.as_ref().filter(|seen| !seen.missing)?.record.holder.as_deref()
    }

    /// Returns the last observed version, or `None` if the Lease does not exist.
    #[must_use]
    pub fn version(&self) -> Option<&str> {
        self.seen.as_ref().filter(|seen| !seen.missing).map(|seen| seen.record.version.as_str())
    }

    /// The last observed record, even if the Lease is missing now.
    pub(crate) fn record(&self) -> Option<&Record> {
        self.seen.as_ref().map(|seen| &seen.record)
    }

    /// Returns the time from which no other process relies on the lease.
    pub(crate) fn free_from(&self) -> Option<Instant> {
        self.seen.as_ref().map(|seen| seen.taken_until)
    }

    /// Whether a patch of the last observed version may succeed.
    pub(crate) fn is_current(&self) -> bool {
        self.seen.as_ref().is_some_and(|seen| seen.current && !seen.missing)
    }

    /// Returns the next step.
    #[must_use]
    pub fn decide(&self, now: Instant) -> Action {
        self.decide_if(true, now)
    }

    /// Like [`Self::decide`], but if `may_take` is false, a free lease is not acquired.
    pub(crate) fn decide_if(&self, may_take: bool, now: Instant) -> Action {
        match (&self.held, &self.seen) {
            (Some(held), Some(seen)) => self.keep(held, seen, now),
            (None, Some(seen)) => self.stand_by(seen, may_take, now),
            (_, None) if now < self.next_read => Action::Wait(self.next_read),
            (_, None) => Action::Read,
        }
    }

    /// Records that the Lease was read or changed. `None` means that the Lease does not exist.
    pub fn saw(&mut self, now: Instant, record: Option<Record>) {
        self.next_read = now + self.timing.retry;
        // While this process may rely on the lease, no other process does.
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

    /// Records a change reported by a watch. The watch will also report later changes, so reads can be less frequent.
    pub(crate) fn saw_change(&mut self, now: Instant, record: Option<Record>) {
        let exists = record.is_some();
        self.saw(now, record);
        if exists {
            self.read_less_often(now);
        }
    }

    /// Makes reads less frequent while a watch is open. The remaining reads detect a watch that fails to report changes.
    pub(crate) fn read_less_often(&mut self, now: Instant) {
        self.next_read = now + self.timing.watched();
    }

    /// Returns the time until which another process may rely on the lease, according to this record.
    fn taken_until(&self, now: Instant, record: &Record, relied: bool) -> Instant {
        let expires = now + self.timing.duration;
        let free = record.released || self.is_ours(record);
        let Some(Seen { record: last, taken_until, missing, .. }) = &self.seen else {
            return if free || record.is_untouched() { now } else { expires };
        };
        let same_term = record.epoch() == last.epoch();
        match record.holder {
            // The Lease was restored or replaced, so its content may be outdated.
            _ if record.epoch() < last.epoch() => expires,
            _ if free => now,
            Some(_) if record.differs(last) || *missing => expires,
            Some(_) => *taken_until,
            None if same_term && last.holder.is_none() && !last.released => *taken_until,
            None if same_term && relied => now,
            // Another client emptied the Lease. The last holder may have renewed the lease before that, unobserved.
            None => expires,
        }
    }

    /// Returns the time until which another process may rely on a missing Lease. That process may have renewed the Lease, unobserved,
    /// before the deletion.
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

    /// Returns the time from which an observation of a missing Lease is too old. A missing Lease has no version. An old observation
    /// therefore does not show whether another client has created and deleted the Lease since then.
    fn unseen_from(&self, seen: &Seen) -> Instant {
        seen.at + self.timing.renew_deadline
    }

    /// Returns whether the record is from a term of this process. A term whose acquisition got no answer counts, too.
    fn is_ours(&self, record: &Record) -> bool {
        let is_last = self.ours.is_some_and(|ours| ours.last == record.epoch());
        record.holder.as_ref() == Some(&self.identity) && (is_last || self.asked_after.is_some())
    }

    fn recognise(&mut self, record: &Record) {
        if self.is_ours(record)
            && let Some(ours) = &mut self.ours
            && self.asked_after == Some(ours.last)
        {
            ours.last = ours.last.max(record.epoch());
        }
    }

    /// Records that an acquisition or renewal started at `started` succeeded.
    pub fn wrote(&mut self, started: Instant, now: Instant, record: Record) {
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

    /// Records that a write started at `started` was refused, or that its outcome is unknown.
    ///
    /// The candidate repeats the first failed write at once, after a read. That write may have conflicted with an earlier write of this
    /// process whose answer was lost.
    pub fn failed(&mut self, started: Instant, now: Instant) {
        self.failures = self.failures.saturating_add(1);
        self.next_write = if self.failures == 1 { now } else { started + self.timing.retry };
        self.next_read = now;
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

    /// Records that a read started at `started` failed.
    pub fn saw_nothing(&mut self, started: Instant) {
        self.next_read = started + self.timing.retry;
        if self.held.is_some() {
            self.next_write = self.next_write.max(self.next_read);
        }
    }

    /// Ends the term of this process.
    pub fn resign(&mut self) {
        self.held = None;
    }

    fn keep(&self, held: &Held, seen: &Seen, now: Instant) -> Action {
        match seen.record.holder.as_deref().filter(|_| !seen.missing) {
            Some(holder) if holder == self.identity => (),
            Some(holder) => return Action::Lost(Lost::TakenBy(holder.to_owned())),
            None => return Action::Lost(Lost::Emptied),
        }
        if now >= held.until {
            Action::Lost(Lost::NotRenewed)
        } else if now < self.next_write {
            Action::Wait(self.next_write.min(held.until))
        } else if seen.current {
            Action::Renew { version: seen.record.version.clone() }
        } else {
            Action::Read
        }
    }

    fn stand_by(&self, seen: &Seen, may_take: bool, now: Instant) -> Action {
        let from = seen.taken_until.max(self.next_write);
        let known = seen.current && (!seen.missing || now < self.unseen_from(seen));
        if may_take && known && now >= from {
            Action::Acquire(Acquisition {
                transitions: seen.record.transitions.saturating_add(1),
                after: self.highest,
                version: (!seen.missing).then(|| seen.record.version.clone()),
            })
        } else if now >= self.next_read {
            Action::Read
        } else {
            Action::Wait(if seen.current && may_take { self.next_read.min(from) } else { self.next_read })
        }
    }
}

#[cfg(test)]
mod tests;
