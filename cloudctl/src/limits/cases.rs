//! The cases of the simulation. Decides whether each case takes too long, and counts the calls that the case needs.

use std::time::Duration;

use crate::limits::{
    Question, Scenario,
    results::{Bound, BucketUse},
};

/// Longest acceptable time of a case. A case that takes longer gets advice.
pub(crate) const CONVERGENCE_MAX: Duration = Duration::from_mins(5);
/// Number of Services that users create during the start, at equal intervals.
pub(crate) const USERS: u32 = 20;
/// Factor by which an advised rate exceeds the need of the case, so that other calls can be sent.
const HEADROOM: f64 = 1.1;
const UNLIMITED: f64 = 100_000.0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A start: the adapter and the controllers start.
    Start,
    /// A start, during which users create Services.
    Users,
    Joins,
}

#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) kind: Kind,
    /// Whether the case takes too long.
    pub(crate) late: bool,
    pub(crate) bound_by: Option<Bound>,
    /// All calls of the case. For a case that never converges, these are the calls of a run that converges with higher limits, because
    /// unsent calls are not counted.
    pub(crate) whole: Scenario,
}

impl Case {
    /// Decides whether the case takes too long. `waited` is how long users wait, or `None` if the wait never ends. `run` simulates the case
    /// under other limits.
    pub(crate) fn of(
        question: &Question,
        kind: Kind,
        scenario: &Scenario,
        waited: Option<f64>,
        run: impl Fn(&Question) -> Scenario,
    ) -> Self {
        let late = waited.is_none_or(|seconds| seconds > CONVERGENCE_MAX.as_secs_f64());
        let whole = match scenario.converged_seconds {
            Some(_) => scenario.clone(),
            // The number of shared reads depends on the rate, so the case is simulated again.
            None => run(&enough(question, &run(&unlimited(question)))),
        };
        Self { kind, late, bound_by: scenario.bound_by.clone(), whole }
    }

    /// Returns the rate that finishes the case's calls of this bucket in time `within`.
    pub(crate) fn wanted(&self, used: &BucketUse, burst: u32, within: Duration) -> f64 {
        rate(self.waiting(used, burst), within)
    }

    /// Number of calls that must wait for the bucket. A start gets no burst, because the burst is already used.
    pub(crate) fn waiting(&self, used: &BucketUse, burst: u32) -> f64 {
        let burst = if self.kind == Kind::Joins { u64::from(burst) } else { 0 };
        count(used.awaited.saturating_sub(burst))
    }
}

fn unlimited(question: &Question) -> Question {
    let mut free = question.clone();
    free.config.limits.buckets.values_mut().for_each(|bucket| bucket.limit.rate = UNLIMITED);
    free
}

/// Returns the question with rates that are sufficient for the calls of a run.
fn enough(question: &Question, run: &Scenario) -> Question {
    let mut faster = question.clone();
    for used in &run.buckets {
        if let Some(bucket) = faster.config.limits.buckets.get_mut(&used.bucket) {
            bucket.limit.rate = bucket.limit.rate.max(rate(count(used.awaited), CONVERGENCE_MAX));
        }
    }
    faster
}

fn rate(calls: f64, within: Duration) -> f64 {
    calls * HEADROOM / within.as_secs_f64()
}

#[expect(clippy::cast_precision_loss, reason = "a run has far fewer than 2^52 calls")]
fn count(calls: u64) -> f64 {
    calls as f64
}
