//! How the budget does, in the contract's words.

use std::time::Duration;

use cloud_api_proto::v1alpha1::{Breaker, Budget, breaker::State};
use cloud_budget::{BreakerState, BucketConfig, BucketReport, QueueReport, Report, Time};
use tokio::time::Instant;

use super::{Family, Vendor, Write};
use crate::clock::Clock;

/// What the whole account shares.
const ACCOUNT: &str = "account";
/// The breaker of the credentials: it stops all families.
pub(crate) const CREDENTIALS: &str = "credentials";

/// Why calls of a family are not sent just now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HeldUp {
    /// For people, if it is a pause; names the bucket. Who waits for a budget hears of it at its own call.
    pub(crate) pause: Option<String>,
    /// How long it takes from now on. Of a pause as long as the vendor wants, of a spent budget an estimate.
    pub(crate) rest: Duration,
}

/// A spent budget is looked at again after this, however many calls wait: ours may be of the first.
const SPENT_MAX: Duration = Duration::from_secs(15);

/// Judges one bucket. `paused`: for how long the vendor wants no call that it counts.
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
    /// What keeps calls of a family, and so whoever waits for them, from going on: the longest of what there is.
    #[must_use]
    pub(crate) fn held_up(&self, family: Family) -> Option<HeldUp> {
        let (now, report) = self.dispatcher.report();
        let shared = |bucket: &&BucketReport| bucket.name == family.word() || bucket.name == ACCOUNT;
        let paused = |until: Time| (until > now).then(|| until.since(now));
        let held = report.buckets.iter().filter(shared);
        let held = held.filter_map(|bucket| held_up(bucket, bucket.paused_until.and_then(paused)));
        held.max_by_key(|held| held.rest)
    }

    /// Calls a second that a family may make now.
    #[must_use]
    pub(crate) fn rate(&self, family: Family) -> f64 {
        let (_, report) = self.dispatcher.report();
        let bucket = report.buckets.iter().find(|bucket| bucket.name == family.word());
        bucket.map_or_else(|| BucketConfig::unconfigured().limit.rate, |bucket| bucket.rate)
    }

    /// When the pause ends that the vendor wants of a family, or of the whole account. An operation's own pause is not looked at.
    #[must_use]
    pub(super) fn paused_until(&self, family: Family) -> Option<Instant> {
        let (_, report) = self.dispatcher.report();
        let shared = |bucket: &BucketReport| bucket.name == family.word() || bucket.name == ACCOUNT;
        let until =
            report.buckets.into_iter().filter(shared).filter_map(|bucket| bucket.paused_until).max()?;
        Some(self.dispatcher.instant(until)).filter(|until| *until > Instant::now())
    }

    /// How the budget does, for the status page, and at what time.
    #[must_use]
    pub(crate) fn report(&self) -> (Time, Report) {
        self.dispatcher.report()
    }

    /// What waits for which budget, by whose it is.
    #[must_use]
    pub(crate) fn queues(&self) -> Vec<QueueReport> {
        self.dispatcher.queues()
    }

    /// What the vendor was last told to change, the newest first.
    #[must_use]
    pub(crate) fn last_writes(&self) -> Vec<Write> {
        self.writes.all()
    }

    /// The instant that a report means.
    #[must_use]
    pub(crate) fn instant(&self, time: Time) -> Instant {
        self.dispatcher.instant(time)
    }

    /// All buckets and breakers.
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
