//! What is judged: each thing that happens, whether it takes too long, and the calls that it takes.

use std::time::Duration;

use crate::{
    Question, Scenario,
    report::{Bound, BucketUse},
};

/// What takes longer is worth a word.
pub(crate) const PATIENCE: Duration = Duration::from_mins(5);
/// A rate that was just enough would leave nothing for what else happens.
const ROOM: f64 = 1.1;
/// As good as no limit: more is refused in a file.
const UNLIMITED: f64 = 100_000.0;

/// Something that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Adapter and controllers start.
    Start,
    /// The same, and users make Services meanwhile.
    Users,
    /// A node joins.
    Joins,
}

/// Something that happens, and what came of it.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) kind: Kind,
    /// Whether somebody waits too long.
    pub(crate) late: bool,
    /// What limits it.
    pub(crate) bound_by: Option<Bound>,
    /// The calls that it takes. Where it never ends, of a run that does: what was not sent yet was not counted.
    pub(crate) whole: Scenario,
}

impl Case {
    /// `waited`: how long people wait, if they live to see it. `run` lets it happen under other limits.
    pub(crate) fn of(
        question: &Question,
        (kind, scenario): (Kind, &Scenario),
        waited: Option<f64>,
        run: impl Fn(&Question) -> Scenario,
    ) -> Self {
        let late = waited.is_none_or(|seconds| seconds > PATIENCE.as_secs_f64());
        let whole = match scenario.converged_seconds {
            Some(_) => scenario.clone(),
            // How many reads are shared depends on the rate.
            None => run(&enough(question, &run(&unlimited(question)))),
        };
        Self { kind, late, bound_by: scenario.bound_by.clone(), whole }
    }

    /// The rate at which its calls of a bucket are made within some time.
    pub(crate) fn wanted(&self, used: &BucketUse, burst: u32, within: Duration) -> f64 {
        rate(self.waiting(used, burst), within)
    }

    /// The calls of a bucket that are not in its burst, which is spent at a start.
    pub(crate) fn waiting(&self, used: &BucketUse, burst: u32) -> f64 {
        let burst = if self.kind == Kind::Joins { u64::from(burst) } else { 0 };
        count(used.awaited.saturating_sub(burst))
    }
}

/// Nothing waits for a token.
fn unlimited(question: &Question) -> Question {
    let mut free = question.clone();
    free.config.limits.buckets.values_mut().for_each(|bucket| bucket.limit.rate = UNLIMITED);
    free
}

/// With the rates that the calls of a run need.
fn enough(question: &Question, run: &Scenario) -> Question {
    let mut faster = question.clone();
    for used in &run.buckets {
        if let Some(bucket) = faster.config.limits.buckets.get_mut(&used.bucket) {
            bucket.limit.rate = bucket.limit.rate.max(rate(count(used.awaited), PATIENCE));
        }
    }
    faster
}

/// The rate at which so many calls are made within some time.
fn rate(calls: f64, within: Duration) -> f64 {
    calls * ROOM / within.as_secs_f64()
}

#[expect(clippy::cast_precision_loss, reason = "a run has far fewer than 2^52 calls")]
fn count(calls: u64) -> f64 {
    calls as f64
}
