//! A division is the number of shards into which the replicas split the work. This module decides when that number may change.
//!
//! Two divisions are never in force at the same time. The Lease of the first shard states the division. A process that takes the Lease of
//! another shard then reads the first Lease before it starts to work. A process that writes a new division into the first Lease has
//! observed that all Leases are free at the same time. It then reads the other Leases again before it starts to work. Of two processes with
//! different divisions, at least one therefore observes the other. A process whose Lease was observed free no longer relies on that Lease,
//! and must acquire it again.

use tokio::time::Instant;

use crate::{candidate::Candidate, share::View};

/// The division (the number of shards) that a Lease states.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Division {
    /// The Lease was not observed yet.
    #[default]
    Unknown,
    /// No process ever held the Lease, according to its record.
    Fresh,
    Set {
        shards: u16,
        /// At most this many Leases of another division may still be held. `None`: no such Lease is recorded.
        before: Option<u16>,
    },
}

impl Division {
    pub(crate) fn of(candidate: &Candidate) -> Self {
        match candidate.record() {
            None => Self::Unknown,
            Some(record) if record.is_untouched() && record.before.is_none() => Self::Fresh,
            Some(record) => Self::Set { shards: record.shards.unwrap_or(1), before: record.before },
        }
    }

    /// Returns the number of Leases that belong to the division. Processes that divide the work always write the division into the second
    /// Lease, too. The division is therefore still known if the first Lease has lost its annotations.
    fn extent(self) -> u16 {
        match self {
            Self::Unknown => 1,
            Self::Fresh => 2,
            Self::Set { shards, before } => shards.max(before.unwrap_or(1)),
        }
    }

    /// Whether the division has this number of shards and no other division is in force.
    pub(crate) fn is_settled(self, shards: u16) -> bool {
        self == Self::Set { shards, before: None }
    }

    fn is_same(self, mine: u16) -> bool {
        matches!(self, Self::Set { shards, .. } if shards == mine)
    }

    pub(crate) fn is_another(self, mine: u16) -> bool {
        matches!(self, Self::Set { shards, .. } if shards != mine)
    }
}

/// The result of a read or of a successful write. Unlike a watch event, this result shows the state at `started` or later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LastRead {
    pub(crate) started: Instant,
    pub(crate) division: Division,
    free_from: Option<Instant>,
    epoch: u64,
}

/// Consecutive terms of a Lease that belong to one process, by their epochs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) since: u64,
    pub(crate) epoch: u64,
}

impl Run {
    /// Whether no other process held the Lease since the term with this epoch.
    pub(crate) fn goes_on_from(self, epoch: u64) -> bool {
        (self.since..=self.epoch).contains(&epoch)
    }
}

/// The state of a Lease of this or another division.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LeaseState {
    pub(crate) view: View,
    pub(crate) division: Division,
    /// Whether the Lease does not exist, or no longer exists.
    pub(crate) missing: bool,
    /// The last observed term. While this process holds the Lease, `since` is the first of this process's consecutive terms.
    pub(crate) run: Run,
    pub(crate) last_read: Option<LastRead>,
    /// The earliest start of the read that is needed, if a read is needed.
    pub(crate) read_from: Option<Instant>,
    /// Time until which this process holds the Lease.
    pub(crate) until: Option<Instant>,
}

impl LeaseState {
    pub(crate) fn record_read(&mut self, started: Instant) {
        let (division, free_from, epoch) = (self.division, self.view.free_from, self.run.epoch);
        self.last_read = Some(LastRead { started, division, free_from, epoch });
    }

    /// Returns whether a read is needed that has not been made yet.
    pub(crate) fn is_read_due(&self) -> bool {
        self.read_from.is_some_and(|from| self.read_since(from).is_none())
    }

    /// Returns the last read, if it was started at `from` or later.
    pub(crate) fn read_since(&self, from: Instant) -> Option<LastRead> {
        self.last_read.filter(|read| read.started >= from)
    }

    /// Requests a read that starts at `from` or later.
    pub(crate) fn request_read(&mut self, from: Instant) {
        self.read_from = self.read_from.max(Some(from));
    }

    /// Returns the earliest start of a read that can show whether another process used another division in this shard after `taken`.
    pub(crate) fn helpful_read(&self, mine: u16, taken: Instant, now: Instant) -> Option<Instant> {
        let from = if self.read_since(taken).is_none() { taken } else { now };
        let helps = from == taken || self.is_clear(mine, now) && !self.was_clear(mine, taken);
        (helps && !self.is_read_due()).then_some(from)
    }

    /// Returns whether no process uses another division in this shard. If the Lease is missing, this is known only after the lease
    /// duration.
    fn is_clear(&self, mine: u16, now: Instant) -> bool {
        let same = self.division.is_same(mine);
        self.division != Division::Unknown && (self.view.ours || self.view.is_free(now) || same)
    }

    /// Whether the Lease does not exist and is not known to have existed.
    fn was_never_made(&self) -> bool {
        self.missing && self.division == Division::Fresh
    }

    /// Returns whether a read that started at `from` or later proves that no process uses another division in this shard. See
    /// [`Self::is_clear`].
    fn was_clear(&self, mine: u16, from: Instant) -> bool {
        self.read_since(from).is_some_and(|read| {
            // A process that held a Lease which was then observed free has already lost that Lease, and must acquire it again.
            let free = read.free_from.is_some_and(|free| free <= read.started);
            let mine_or_free = self.view.ours || free || read.division.is_same(mine);
            read.division != Division::Unknown && mine_or_free
        })
    }
}

/// Returns the terms of the first shard's Lease in which this division is known to be in force. While this process holds the first shard,
/// no other process changes the division. Otherwise, a read that started at `since` or later is required.
pub(crate) fn confirmed_in(mine: u16, first: &LeaseState, since: Instant, now: Instant) -> Option<Run> {
    if first.until.is_some_and(|until| now < until) && first.division.is_settled(mine) {
        return Some(first.run);
    }
    let read = first.read_since(since).filter(|read| read.division.is_settled(mine))?;
    Some(Run { since: read.epoch, epoch: read.epoch })
}

/// Returns the number of Leases that must be observed before the division may change.
pub(crate) fn extent(mine: u16, leases: &[LeaseState]) -> u16 {
    leases.iter().map(|lease| lease.division.extent()).max().unwrap_or(1).max(mine)
}

/// The decision whether and how the first Lease may be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opening {
    /// Take the first Lease like any other Lease, because it already states this division.
    Ours,
    /// Take the first Lease with a new division, and record that up to this many Leases of another division may still be held.
    New { before: Option<u16> },
    /// Do not take the first Lease yet, because another division may be in force.
    No,
}

pub(crate) fn opening(mine: u16, leases: &[LeaseState], now: Instant) -> Opening {
    let Some((first, others)) = leases.split_first() else { return Opening::No };
    if first.division.is_settled(mine) {
        return Opening::Ours;
    }
    let extent = extent(mine, leases);
    let all = leases.iter().take(extent.into());
    let known = all.clone().count() == usize::from(extent);
    let fresh = first.division == Division::Fresh;
    // The chart creates only the first Lease. If the first Lease is missing, too, its own waiting time applies first.
    let new = |lease: &LeaseState| fresh && !first.missing && lease.was_never_made();
    let clear = |lease: &LeaseState| lease.is_clear(mine, now) || new(lease);
    if !known || !first.view.is_free(now) || !all.clone().all(clear) {
        return Opening::No;
    }
    let all_fresh = others.iter().all(|lease| lease.division == Division::Fresh);
    let alone = extent == 1 || fresh && all_fresh;
    Opening::New { before: (!alone).then_some(extent) }
}

/// Returns whether reads that started after the first Lease was taken prove that no process uses another division any more.
pub(crate) fn is_settled(mine: u16, leases: &[LeaseState], taken: Instant, now: Instant) -> bool {
    let extent = usize::from(extent(mine, leases));
    leases.len() >= extent
        && leases
            .iter()
            .take(extent)
            .skip(1)
            .all(|lease| lease.is_clear(mine, now) && lease.was_clear(mine, taken))
}

#[cfg(test)]
mod tests;
