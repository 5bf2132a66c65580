//! Over how many shards the work is divided, and when it may be divided anew.
//!
//! The argument: the division is what the first shard's Lease says. Who takes another shard's Lease looks at the first one after that,
//! and before it works. Who writes another division into the first one has seen all Leases free at once, looks at the others once more
//! after that, and before it works: of two that do so, one at least sees the other. And whoever held a Lease that was seen to be free
//! relies on it no more, and would have to take it again.

use tokio::time::Instant;

use crate::{candidate::Candidate, share::View};

/// What a Lease says of the division.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Division {
    /// It was not seen yet.
    #[default]
    Unknown,
    /// Nobody ever held it, as far as it tells.
    Fresh,
    Set {
        shards: u16,
        /// Up to so many Leases of another division may still be held.
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

    /// How many Leases it speaks of. Who divides the work at all has touched the second one, which tells of the others: what the
    /// first one has forgotten it still knows.
    fn extent(self) -> u16 {
        match self {
            Self::Unknown => 1,
            Self::Fresh => 2,
            Self::Set { shards, before } => shards.max(before.unwrap_or(1)),
        }
    }

    /// Whether it is this one, and no other is in force any more.
    pub(crate) fn is_settled(self, shards: u16) -> bool {
        self == Self::Set { shards, before: None }
    }

    /// Whether it is this one.
    fn is_same(self, mine: u16) -> bool {
        matches!(self, Self::Set { shards, .. } if shards == mine)
    }

    /// Whether it is another one.
    pub(crate) fn is_another(self, mine: u16) -> bool {
        matches!(self, Self::Set { shards, .. } if shards != mine)
    }
}

/// A look at a Lease, or a write that succeeded: unlike what a watch tells, it is as the Lease was after it was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Looked {
    pub(crate) started: Instant,
    pub(crate) division: Division,
    free_from: Option<Instant>,
    epoch: u64,
}

/// Terms of a Lease in a row that all belong to one, by their epochs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) since: u64,
    pub(crate) epoch: u64,
}

impl Run {
    /// Whether nobody else had the Lease since it was in the term of that epoch.
    pub(crate) fn goes_on_from(self, epoch: u64) -> bool {
        (self.since..=self.epoch).contains(&epoch)
    }
}

/// What is known of a Lease of this or another division.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) view: View,
    pub(crate) division: Division,
    /// There is no such Lease (any more).
    pub(crate) missing: bool,
    /// Its last term, and since which of them it is ours, if it is.
    pub(crate) run: Run,
    pub(crate) looked: Option<Looked>,
    /// A look that is started then or later is waited for.
    pub(crate) look_from: Option<Instant>,
    /// Until then we hold it.
    pub(crate) until: Option<Instant>,
}

impl Place {
    pub(crate) fn looked(&mut self, started: Instant) {
        let (division, free_from, epoch) = (self.division, self.view.free_from, self.run.epoch);
        self.looked = Some(Looked { started, division, free_from, epoch });
    }

    /// Whether somebody waits for a look.
    pub(crate) fn is_look_due(&self) -> bool {
        self.look_from.is_some_and(|from| self.looked_since(from).is_none())
    }

    /// The last look, if it was started then or later.
    pub(crate) fn looked_since(&self, from: Instant) -> Option<Looked> {
        self.looked.filter(|looked| looked.started >= from)
    }

    /// Asks for a look that is started then or later.
    pub(crate) fn ask_look(&mut self, from: Instant) {
        self.look_from = self.look_from.max(Some(from));
    }

    /// From when on a look would help to know whether somebody worked here by another division after `taken`.
    pub(crate) fn look_for(&self, mine: u16, taken: Instant, now: Instant) -> Option<Instant> {
        let from = if self.looked_since(taken).is_none() { taken } else { now };
        let helps = from == taken || self.is_clear(mine, now) && !self.was_clear(mine, taken);
        (helps && !self.is_look_due()).then_some(from)
    }

    /// Nobody works here by another division. Of a Lease that is missing nobody knows that until a duration is over.
    fn is_clear(&self, mine: u16, now: Instant) -> bool {
        let same = self.division.is_same(mine);
        self.division != Division::Unknown && (self.view.ours || self.view.is_free(now) || same)
    }

    /// There is none, and none is known to have been.
    fn was_never_made(&self) -> bool {
        self.missing && self.division == Division::Fresh
    }

    /// The same, by a look since then.
    fn was_clear(&self, mine: u16, from: Instant) -> bool {
        self.looked_since(from).is_some_and(|looked| {
            // Whoever held it then had lost it already; and could have it again only by a new acquisition.
            let free = looked.free_from.is_some_and(|free| free <= looked.started);
            let mine_or_free = self.view.ours || free || looked.division.is_same(mine);
            looked.division != Division::Unknown && mine_or_free
        })
    }
}

/// In which terms of the first shard's Lease the division is this one, though it was looked at only before: while the first shard is
/// ours nobody else changes it. Otherwise by a look that was started since then.
pub(crate) fn confirmed_in(mine: u16, first: &Place, since: Instant, now: Instant) -> Option<Run> {
    if first.until.is_some_and(|until| now < until) && first.division.is_settled(mine) {
        return Some(first.run);
    }
    let looked = first.looked_since(since).filter(|looked| looked.division.is_settled(mine))?;
    Some(Run { since: looked.epoch, epoch: looked.epoch })
}

/// How many Leases have to be looked at before the work is divided otherwise.
pub(crate) fn extent(mine: u16, places: &[Place]) -> u16 {
    places.iter().map(|place| place.division.extent()).max().unwrap_or(1).max(mine)
}

/// How the first Lease may be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opening {
    /// As any other: the division is ours.
    Ours,
    /// With our division, and with a word that up to so many Leases of another may still be held.
    New { before: Option<u16> },
    /// Not yet: another division is in force.
    No,
}

pub(crate) fn opening(mine: u16, places: &[Place], now: Instant) -> Opening {
    let Some((first, others)) = places.split_first() else { return Opening::No };
    if first.division.is_settled(mine) {
        return Opening::Ours;
    }
    let extent = extent(mine, places);
    let all = places.iter().take(extent.into());
    let known = all.clone().count() == usize::from(extent);
    let fresh = first.division == Division::Fresh;
    // As the chart makes it: the first Lease, and perhaps no other. One that is missing as well is waited for itself.
    let new = |place: &Place| fresh && !first.missing && place.was_never_made();
    let clear = |place: &Place| place.is_clear(mine, now) || new(place);
    if !known || !first.view.is_free(now) || !all.clone().all(clear) {
        return Opening::No;
    }
    let nobody = others.iter().all(|place| place.division == Division::Fresh);
    let alone = extent == 1 || fresh && nobody;
    Opening::New { before: (!alone).then_some(extent) }
}

/// Whether nobody works by another division any more, as seen by looks that were started after the first Lease was taken.
pub(crate) fn is_settled(mine: u16, places: &[Place], taken: Instant, now: Instant) -> bool {
    let extent = usize::from(extent(mine, places));
    places.len() >= extent
        && places
            .iter()
            .take(extent)
            .skip(1)
            .all(|place| place.is_clear(mine, now) && place.was_clear(mine, taken))
}

#[cfg(test)]
mod tests;
