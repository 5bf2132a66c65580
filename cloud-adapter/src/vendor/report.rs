//! Reports the state of the budget as messages of the contract.

use std::time::Duration;

use cloud_api_proto::v1alpha1::{Breaker, Budget, breaker::State};
use cloud_budget::{BreakerState, BucketConfig, BucketReport, QueueReport, Report, Time};
use tokio::time::Instant;

use super::{Family, Vendor, Write};
use crate::clock::Clock;

const ACCOUNT: &str = "account";
/// The circuit breaker of the credentials, which stops all families.
pub(crate) const CREDENTIALS: &str = "credentials";

/// The obstacle that currently prevents calls of a family from being sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HeldUp {
    /// The text about a pause, with the name of the bucket. Callers whose call waits for a budget get a text about that call instead.
    pub(crate) pause: Option<String>,
    /// The remaining time of the pause that the vendor requested; for an exhausted budget, an estimate.
    pub(crate) rest: Duration,
}

/// Maximum estimate for an exhausted budget. It is low, because the caller's call may be one of the first in the queue.
const SPENT_MAX: Duration = Duration::from_secs(15);

/// Returns the obstacle at one bucket, if any. `paused` is the remaining time of the vendor's pause.
fn held_up(bucket: &BucketReport, paused: Option<Duration>) -> Option<HeldUp> {
    let BucketReport { name, rate, tokens, queued, .. } = bucket;
    if let Some(rest) = paused {
        let seconds = rest.as_secs_f64().ceil();
        return Some(HeldUp {
            pause: Some(format!("the vendor paused the bucket {name} for {seconds} s")),
            rest,
        });
    }
    if *queued == 0 || *tokens >= 1.0 {
        return None;
    }
    let rest =
        Duration::try_from_secs_f64(*queued as f64 / rate).map_or(SPENT_MAX, |rest| rest.min(SPENT_MAX));
    Some(HeldUp { pause: None, rest })
}

impl Vendor {
    /// Returns the obstacle that currently blocks calls of a family. Of several obstacles, returns the one that lasts longest.
    #[must_use]
    pub(crate) fn held_up(&self, family: Family) -> Option<HeldUp> {
        let (now, report) = self.dispatcher.report();
        let shared = |bucket: &&BucketReport| bucket.name == family.word() || bucket.name == ACCOUNT;
        let paused = |until: Time| (until > now).then(|| until.since(now));
        let held = report.buckets.iter().filter(shared);
        let held = held.filter_map(|bucket| held_up(bucket, bucket.paused_until.and_then(paused)));
        held.max_by_key(|held| held.rest)
    }

    /// The current rate of a family, in calls a second.
    #[must_use]
    pub(crate) fn rate(&self, family: Family) -> f64 {
        let (_, report) = self.dispatcher.report();
        let bucket = report.buckets.iter().find(|bucket| bucket.name == family.word());
        bucket.map_or_else(|| BucketConfig::unconfigured().limit.rate, |bucket| bucket.rate)
    }

    /// The end of the vendor's pause of a family, or of the whole account. Pauses of single operations are ignored.
    #[must_use]
    pub(super) fn paused_until(&self, family: Family) -> Option<Instant> {
        let (_, report) = self.dispatcher.report();
        let shared = |bucket: &BucketReport| bucket.name == family.word() || bucket.name == ACCOUNT;
        let until =
            report.buckets.into_iter().filter(shared).filter_map(|bucket| bucket.paused_until).max()?;
        Some(self.dispatcher.instant(until)).filter(|until| *until > Instant::now())
    }

    #[must_use]
    pub(crate) fn report(&self) -> (Time, Report) {
        self.dispatcher.report()
    }

    #[must_use]
    pub(crate) fn queues(&self) -> Vec<QueueReport> {
        self.dispatcher.queues()
    }

    /// The last writes to the vendor, the newest first.
    #[must_use]
    pub(crate) fn last_writes(&self) -> Vec<Write> {
        self.writes.all()
    }

    #[must_use]
    pub(crate) fn instant(&self, time: Time) -> Instant {
        self.dispatcher.instant(time)
    }

    #[must_use]
    pub(crate) fn status(&self, clock: &Clock) -> (Vec<Budget>, Vec<Breaker>) {
        let (_, report) = self.dispatcher.report();
        let budgets = report.buckets.into_iter().map(|bucket| self.budget(bucket, clock)).collect();
        let families = report.breakers.into_iter();
        let credentials = report.credentials.map(|state| (CREDENTIALS.to_owned(), state));
        let breakers =
            families.chain(credentials).map(|(family, state)| self.breaker(family, state, clock)).collect();
        (budgets, breakers)
    }

    fn budget(&self, bucket: BucketReport, clock: &Clock) -> Budget {
        let BucketReport { name, rate, ceiling, tokens, paused_until, queued, calls, throttled, .. } = bucket;
        Budget {
            bucket: name,
            rate,
            ceiling,
            tokens,
            queued,
            paused_until: paused_until.map(|until| clock.at(self.dispatcher.instant(until)).into()),
            calls_total: calls,
            throttled_total: throttled,
        }
    }

    fn breaker(&self, family: String, state: BreakerState, clock: &Clock) -> Breaker {
        let (state, retry_at) = match state {
            BreakerState::Closed => (State::Closed, None),
            BreakerState::HalfOpen => (State::HalfOpen, None),
            BreakerState::Open { retry_at } => (State::Open, Some(retry_at)),
        };
        let retry_at = retry_at.map(|at| clock.at(self.dispatcher.instant(at)).into());
        Breaker { family, state: state.into(), retry_at }
    }
}
