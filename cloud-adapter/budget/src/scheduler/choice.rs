//! Chooses the next call: the one with the smallest start tag (see `fair_queueing`) of all calls that may be sent now.

use std::cmp::Reverse;

use super::{Scheduler, earliest};
use crate::{
    Class, Mode, Time,
    bucket::{Bucket, Need},
    queue::{Candidate, LaneKey, QueueHead},
    tree::PathId,
};

/// Results that one decision has already computed, by kind of call. There are many leaves (one for each class of each controller), but most
/// of them have calls of the same few kinds.
pub(super) type Known<T> = Vec<(Kind, T)>;

/// Calls of one kind: the same buckets and circuit breakers admit them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kind {
    path: PathId,
    self_check: bool,
    cost: u64,
}

impl Kind {
    fn of(Candidate { lane: LaneKey { path, self_check, .. }, cost, .. }: &Candidate) -> Self {
        Self { path: *path, self_check: *self_check, cost: *cost }
    }
}

/// Returns the result for the candidate's kind, and computes it unless this decision has already done so.
fn known<T: Copy>(known: &mut Known<T>, candidate: &Candidate, find_out: impl FnOnce() -> T) -> T {
    let kind = Kind::of(candidate);
    if let Some((_, found)) = known.iter().find(|(one, _)| *one == kind) {
        return *found;
    }
    let found = find_out();
    known.push((kind, found));
    found
}

impl Scheduler {
    /// The call to serve now, or the time of the next attempt, if known.
    pub(super) fn choose(&mut self, now: Time) -> Result<Candidate, Option<Time>> {
        self.decision += 1;
        let mut candidates = std::mem::take(&mut self.candidates);
        candidates.clear();
        let wake = self.find_open(now, &mut candidates);
        let wake = earliest(wake, self.keep_reserve(now, &mut candidates));
        let chosen = self.compete(now, &mut candidates);
        self.candidates = candidates;
        chosen.ok_or(wake)
    }

    /// Collects in `open` the candidates that could be sent now if no bucket kept a reserve. Returns the earliest time at which another
    /// candidate could be sent.
    fn find_open(&mut self, now: Time, open: &mut Vec<Candidate>) -> Option<Time> {
        let mut wake = None;
        let mut openings = std::mem::take(&mut self.openings);
        openings.clear();
        for candidate in self.queue.candidates() {
            match known(&mut openings, &candidate, || self.open_at(now, &candidate, 0.0)) {
                Some(at) if at <= now => open.push(candidate),
                at => wake = earliest(wake, at),
            }
        }
        self.openings = openings;
        wake
    }

    /// Drops candidates that would use the reserve without permission. Returns the earliest time at which a dropped candidate may be sent.
    ///
    /// An exhausted reserve is ignored, because calls that may use it must wait anyway, and reserves of other buckets do not help them. The
    /// weights then decide. Otherwise a constant load of urgent calls would starve all other calls.
    fn keep_reserve(&mut self, now: Time, candidates: &mut Vec<Candidate>) -> Option<Time> {
        for candidate in candidates.iter().filter(|candidate| candidate.lane.reserve) {
            self.tree.each(candidate.lane.path, |bucket| bucket.entitle(self.decision, candidate.cost));
        }
        let mut wake = None;
        let mut openings = std::mem::take(&mut self.openings);
        openings.clear();
        candidates.retain(|candidate| {
            if candidate.lane.reserve {
                return true;
            }
            let at = known(&mut openings, candidate, || {
                let spent = |bucket: &Bucket| bucket.is_spent(now, self.decision, candidate.cost);
                if self.tree.along(candidate.lane.path).any(|(_, bucket)| spent(bucket)) {
                    return Some(now);
                }
                self.open_at(now, candidate, self.config.reserve)
            });
            wake = earliest(wake, at.filter(|at| *at > now));
            at.is_some_and(|at| at <= now)
        });
        self.openings = openings;
        wake
    }

    /// The next call. A bucket that cannot serve all candidates lets only one of them compete for its parents, so that a leaf with many
    /// calls in one family is not delayed in another family.
    fn compete(&mut self, now: Time, candidates: &mut Vec<Candidate>) -> Option<Candidate> {
        for candidate in candidates.iter() {
            self.tree.each(candidate.lane.path, |bucket| bucket.compete(self.decision, candidate.cost));
        }
        for (id, bucket) in self.tree.narrowest_first() {
            let room = self.families.room(now, &bucket.name);
            if bucket.is_tight(now, self.decision, room, self.config.reserve) {
                let here = candidates.iter().filter(|candidate| self.tree.pays(candidate.lane.path, id));
                let first =
                    here.min_by_key(|candidate| self.order(candidate, bucket)).map(|first| first.ticket);
                candidates.retain(|candidate| {
                    Some(candidate.ticket) == first || !self.tree.pays(candidate.lane.path, id)
                });
            }
        }
        let at_the_top = |candidate: &&Candidate| {
            self.tree.root(candidate.lane.path).map(|root| self.order(candidate, root))
        };
        candidates.iter().min_by_key(at_the_top).copied()
    }

    fn order(&self, candidate: &Candidate, bucket: &Bucket) -> (u64, Reverse<Class>, QueueHead) {
        (bucket.start_tags().start(candidate.leaf), Reverse(candidate.class), candidate.turn)
    }

    /// Time at which all buckets and circuit breakers admit the call, if the fraction `kept` of each burst must remain. `None` if the call
    /// is admitted only after another call returns.
    fn open_at(&self, now: Time, candidate: &Candidate, kept: f64) -> Option<Time> {
        let gate = match self.config.mode {
            Mode::Enforce => self.gate(now, candidate)?,
            Mode::Shadow => now,
        };
        let need = Need { cost: candidate.cost, kept };
        let mut buckets = self.tree.along(candidate.lane.path);
        buckets.try_fold(gate, |at, (_, bucket)| Some(at.max(bucket.ready_at(need)?)))
    }

    /// Time at which the circuit breakers and the limit of calls in flight admit the call.
    fn gate(&self, now: Time, candidate: &Candidate) -> Option<Time> {
        let path = self.tree.at(candidate.lane.path)?;
        let family = self.families.ready_at(now, path.family)?;
        if self.credentials.admits(now, candidate.lane.self_check) {
            return Some(family);
        }
        // A successful self-check ends the rejection of all other calls.
        let retry_at = self.credentials_open_until(now).filter(|_| candidate.lane.self_check)?;
        Some(family.max(retry_at))
    }
}
