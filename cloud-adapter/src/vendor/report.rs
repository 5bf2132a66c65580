//! How the budget does, in the contract's words.

use cloud_api_proto::v1alpha1::{Breaker, Budget, breaker::State};
use cloud_budget::{BreakerState, BucketConfig, BucketReport};

use tokio::time::Instant;

use super::{Family, Vendor};
use crate::clock::Clock;

/// What the whole account shares.
const ACCOUNT: &str = "account";
/// The breaker of the credentials: it stops all families.
const CREDENTIALS: &str = "credentials";

impl Vendor {
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
