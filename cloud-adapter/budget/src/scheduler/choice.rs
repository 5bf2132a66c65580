//! Whose turn it is: of the calls that may go now, the one with the smallest tag.

use super::{Scheduler, earliest};
use crate::{Mode, Time, bucket::Need, queue::Candidate};

impl Scheduler {
    /// The call to serve now; else when to look again, if that is known.
    ///
    /// A call without the right to it leaves the reserve alone. It does not as long as calls with that right stand ready for
    /// the same bucket, though: then weights decide, or it would starve.
    pub(super) fn choose(&mut self, now: Time) -> Result<Candidate, Option<Time>> {
        self.decision += 1;
        let mut open = std::mem::take(&mut self.candidates);
        open.clear();
        let mut wake = None;
        for candidate in self.queue.candidates() {
            match self.open_at(now, &candidate, 0.0) {
                Some(at) if at <= now => open.push(candidate),
                at => wake = earliest(wake, at),
            }
        }
        for candidate in open.iter().filter(|candidate| candidate.lane.reserve) {
            self.tree.each(candidate.lane.path, |bucket| bucket.want(self.decision));
        }
        let mut first: Option<Candidate> = None;
        for candidate in &open {
            if !self.may_go(now, candidate) {
                wake = earliest(wake, self.open_at(now, candidate, self.config.reserve));
            } else if first.is_none_or(|first| candidate.order < first.order) {
                first = Some(*candidate);
            }
        }
        self.candidates = open;
        first.ok_or(wake)
    }

    /// When everything lets it pass, if `kept` of each burst has to stay. `None`: not before another call comes back.
    fn open_at(&self, now: Time, candidate: &Candidate, kept: f64) -> Option<Time> {
        let gate = match self.config.mode {
            Mode::Enforce => self.gate(now, candidate)?,
            Mode::Shadow => now,
        };
        let need = Need { cost: candidate.cost, kept };
        let mut buckets = self.tree.along(candidate.lane.path);
        buckets.try_fold(gate, |at, (_, bucket)| Some(at.max(bucket.ready_at(now, need)?)))
    }

    /// When breakers and calls in flight let it pass.
    fn gate(&self, now: Time, candidate: &Candidate) -> Option<Time> {
        let path = self.tree.at(candidate.lane.path)?;
        let family = self.families.ready_at(now, path.family)?;
        if self.credentials.admits(now, candidate.lane.self_check) {
            return Some(family);
        }
        // Other calls than self-checks are let in by a self-check that passes.
        let retry_at = self.credentials_open_until(now).filter(|_| candidate.lane.self_check)?;
        Some(family.max(retry_at))
    }

    /// Whether the reserve lets a call pass that otherwise could go.
    fn may_go(&self, now: Time, candidate: &Candidate) -> bool {
        let need = Need { cost: candidate.cost, kept: self.config.reserve };
        candidate.lane.reserve
            || self.tree.along(candidate.lane.path).all(|(_, bucket)| {
                bucket.wanted(self.decision) || bucket.ready_at(now, need).is_some_and(|at| at <= now)
            })
    }
}
