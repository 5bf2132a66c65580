//! Decides which shards this process takes, asks for and hands over, as a pure function of all observed
//! shards and the time. The candidate proves whether a shard is free; this module only decides whether to leave a free shard to other
//! replicas.
//!
//! Each replica observes all Leases, so it knows how many each replica holds. A shard moves only from a replica that holds at least two
//! shards more than the receiver. So each move makes the shares more even, and the number of moves is limited.

use std::collections::BTreeMap;

use tokio::time::{Duration, Instant};

use crate::settings::Timing;

/// The maximum time for which work in progress may delay a handover.
pub(crate) const DRAIN: Duration = Duration::from_secs(30);
/// Number of shards taken at a time. Two replicas that start together observe each other before one of them has all shards.
const TAKEN_AT_A_TIME: usize = 4;

/// One shard, as observed by this process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct View {
    /// The holder according to the Lease. The lease of that holder may have expired.
    pub(crate) holder: Option<String>,
    /// The time from which no other process relies on the Lease, or `None` if the Lease was not observed yet. Each renewal moves this time
    /// forward.
    pub(crate) free_from: Option<Instant>,
    /// Whether this process holds the shard.
    pub(crate) ours: bool,
    pub(crate) taking: bool,
    /// The replica to which this process is about to hand the shard over.
    pub(crate) closing: Option<String>,
    pub(crate) released: bool,
    /// The replica that asks for the shard, or for which the shard was released, and the time since which this is known.
    pub(crate) wish: Option<(String, Instant)>,
}

impl View {
    pub(crate) fn is_free(&self, now: Instant) -> bool {
        !self.ours && !self.taking && self.free_from.is_some_and(|from| from <= now)
    }

    /// The replica for which the shard was released.
    fn given_to(&self, me: &str) -> Option<&str> {
        let given = self.released || self.holder.as_deref() == Some(me);
        self.wish.as_ref().filter(|_| given && !self.ours).map(|(by, _)| by.as_str())
    }
}

/// What to do with a free shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Take {
    Now,
    /// Leave the shard to other replicas until this time.
    From(Instant),
    /// Leave the shard to other replicas until something changes.
    No,
}

/// All shards, as observed by one replica.
#[derive(Clone, Debug)]
pub(crate) struct Shares<'a> {
    pub(crate) me: &'a str,
    pub(crate) timing: Timing,
    pub(crate) shards: Vec<&'a View>,
    /// Holders that did not hand over a requested shard, and the times from which they may be asked again.
    pub(crate) refused: &'a BTreeMap<String, Instant>,
}

type Counts<'a> = BTreeMap<&'a str, usize>;

impl<'a> Shares<'a> {
    /// How many shards each known replica, including this replica, holds or is about to get.
    fn counts(&self, now: Instant) -> Counts<'a> {
        let mut counts = BTreeMap::from([(self.me, 0)]);
        for shard in self.shards.iter().copied() {
            let holder = if shard.ours || shard.taking {
                shard.closing.as_deref().or(Some(self.me))
            } else if shard.is_free(now) {
                shard.given_to(self.me).filter(|_| self.is_reserved(shard, now))
            } else {
                shard.holder.as_deref()
            };
            if let Some(holder) = holder {
                *counts.entry(holder).or_default() += 1;
            }
        }
        counts
    }

    /// Whether a free shard is reserved for the replica for which it was released.
    fn is_reserved(&self, shard: &View, now: Instant) -> bool {
        shard.given_to(self.me).is_some()
            && shard.free_from.is_some_and(|from| now < from + 2 * self.timing.retry)
    }

    /// All shards, starting at a shard that depends on the replica's name, so that two replicas rarely compete for the same shard.
    fn in_order(&self) -> impl Iterator<Item = (usize, &'a View)> {
        let first = first(self.me, self.shards.len());
        let (before, from) = self.shards.split_at(first);
        let number = move |(at, shard)| (at + first, shard);
        from.iter().copied().enumerate().map(number).chain(before.iter().copied().enumerate())
    }

    /// The free shards that are not reserved, in this replica's order.
    fn open(&self, now: Instant) -> impl Iterator<Item = usize> {
        self.in_order()
            .filter(move |(_, shard)| shard.is_free(now) && !self.is_reserved(shard, now))
            .map(|(at, _)| at)
    }

    /// Returns how many open shards this replica may take, if each goes to the replica with the fewest shards, and to this replica in a tie.
    fn due(&self, now: Instant) -> usize {
        let mut counts = self.counts(now);
        let mut ours = counts.remove(self.me).unwrap_or_default();
        let before = ours;
        for _ in self.open(now) {
            match counts.values_mut().min() {
                Some(fewest) if *fewest < ours => *fewest += 1,
                Some(_) | None => ours += 1,
            }
        }
        ours - before
    }

    pub(crate) fn take(&self, at: usize, now: Instant) -> Take {
        let Some((shard, from)) = self.shards.get(at).and_then(|shard| Some((*shard, shard.free_from?)))
        else {
            return Take::No;
        };
        if now < from {
            return Take::From(from);
        }
        if self.is_reserved(shard, now) {
            let given = shard.given_to(self.me) == Some(self.me);
            return if given { Take::Now } else { Take::From(from + 2 * self.timing.retry) };
        }
        if self.shards.iter().filter(|shard| shard.taking).count() >= TAKEN_AT_A_TIME {
            return Take::No;
        }
        let latest = from + self.timing.retry;
        let due = self.open(now).take(self.due(now)).any(|due| due == at);
        if due || now >= latest { Take::Now } else { Take::From(latest) }
    }

    /// Returns the shards of other replicas that this replica asks for.
    pub(crate) fn asks(&self, now: Instant) -> Vec<usize> {
        let mut counts = self.counts(now);
        let mine = counts.remove(self.me).unwrap_or_default();
        let mut ours = mine + self.due(now);
        counts.retain(|holder, _| self.refused.get(*holder).is_none_or(|until| *until <= now));
        let mut asked = Vec::new();
        while let Some((holder, most)) = counts.iter_mut().max_by_key(|(_, shards)| **shards) {
            if *most < ours + 2 {
                break;
            }
            let holder = *holder;
            if let Some(shard) = self.one_of(holder, &asked, now) {
                *most -= 1;
                ours += 1;
                asked.push(shard);
            } else {
                counts.remove(holder);
            }
        }
        asked
    }

    /// Returns a shard of this holder to ask for, preferably a shard that this replica has asked for already.
    fn one_of(&self, holder: &str, asked: &[usize], now: Instant) -> Option<usize> {
        let held =
            |shard: &View| !shard.ours && !shard.is_free(now) && shard.holder.as_deref() == Some(holder);
        let others = |shard: &View| {
            shard
                .wish
                .as_ref()
                .is_some_and(|(by, since)| by != self.me && now < *since + self.timing.duration)
        };
        let mine = |shard: &View| shard.wish.as_ref().is_some_and(|(by, _)| by == self.me);
        let mut free =
            self.in_order().filter(|(at, shard)| held(shard) && !others(shard) && !asked.contains(at));
        let first = free.next()?;
        let asked_before = std::iter::once(first).chain(free).find(|(_, shard)| mine(shard));
        Some(asked_before.unwrap_or(first).0)
    }

    /// Returns the replica to which a shard of this process should be handed over.
    pub(crate) fn grant(&self, at: usize, now: Instant) -> Option<&'a str> {
        let mut counts = self.counts(now);
        let mut wishes: Vec<(usize, &str)> = self
            .shards
            .iter()
            .copied()
            .enumerate()
            .filter_map(|(at, shard)| {
                let (by, since) = shard.wish.as_ref()?;
                let is_recent = now < *since + self.timing.duration && by != self.me;
                (shard.ours && shard.closing.is_none() && is_recent).then_some((at, by.as_str()))
            })
            .collect();
        loop {
            let has = |by: &str| counts.get(by).copied().unwrap_or_default();
            let fewest =
                (0..wishes.len()).min_by_key(|n| wishes.get(*n).map(|(at, by)| (has(by), *by, *at)))?;
            let (shard, by) = wishes.swap_remove(fewest);
            if has(self.me) < has(by) + 2 {
                return None;
            }
            if shard == at {
                return Some(by);
            }
            *counts.entry(self.me).or_default() -= 1;
            *counts.entry(by).or_default() += 1;
        }
    }

    /// Returns the next time at which the decision may change without a new observation.
    pub(crate) fn next(&self, now: Instant) -> Option<Instant> {
        let Timing { duration, retry, .. } = self.timing;
        let times = self.shards.iter().filter(|shard| !shard.ours).flat_map(|shard| {
            let freed =
                shard.free_from.into_iter().flat_map(move |from| [from, from + retry, from + 2 * retry]);
            freed.chain(shard.wish.as_ref().map(|(_, since)| *since + duration))
        });
        times.chain(self.refused.values().copied()).filter(|at| *at > now).min()
    }
}

/// FNV-1a hash: the same in all versions of this program, and sufficient to start at different shards.
fn first(name: &str, shards: usize) -> usize {
    let hash =
        name.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    usize::try_from(hash).unwrap_or_default().checked_rem(shards).unwrap_or_default()
}

#[cfg(test)]
mod tests;
