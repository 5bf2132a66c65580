//! Whether the adapter takes this controller's calls at all, and answers them.
//!
//! Some refusals concern every object alike: the caller may not, nobody leads, the queue is full. They are told once in the log and
//! on `/readyz` for as long as they last, and at the objects that wait; not at each object for each attempt. Calls that run into their
//! deadline are reported there as well: a vendor that hangs, or an adapter that does, gives no reason by itself.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use cloud_api_proto::{AdapterError, Reason};
use tokio::time::Instant;
use tonic::Code;
use tracing::{info, warn};

/// A leader that hands over, or a queue that is full for a moment, is nobody's concern.
const PATIENCE: Duration = Duration::from_secs(10);
/// For how long calls may have no answer before readiness says so.
const SILENCE: Duration = Duration::from_mins(1);
/// While a refusal lasts it is told again this often.
const REMIND: Duration = Duration::from_mins(1);
/// A refusal that was not repeated for so long is forgotten: there is nothing to call for any more. Longer than any backoff.
const FORGET: Duration = Duration::from_mins(10);

/// Whether this is about the caller or the adapter, and not about what was asked. Source: contract, section 4.
#[must_use]
pub fn concerns_all(reason: Reason) -> bool {
    is_caller_refused(reason)
        || matches!(reason, Reason::NotLeader | Reason::Starting | Reason::Draining | Reason::QueueFull)
}

/// Whether a call ran into its deadline without an answer.
#[must_use]
pub(super) fn is_late(error: &AdapterError) -> bool {
    error.reason == Reason::OutcomeUnknown
        && error.code == Code::DeadlineExceeded
        && error.retry_after.is_none()
}

/// Whether the adapter does not let this controller in.
#[must_use]
pub fn is_caller_refused(reason: Reason) -> bool {
    matches!(reason, Reason::CallerForbidden | Reason::CallerUnauthenticated)
}

/// What the adapter refuses altogether, by call. Cloning gives another handle.
#[derive(Clone, Debug, Default)]
pub struct Standing(Arc<Mutex<Calls>>);

/// By call.
#[derive(Debug, Default)]
struct Calls {
    refusals: BTreeMap<&'static str, Refusal>,
    silences: BTreeMap<&'static str, Silence>,
}

/// A call that was made again and again, each time without an answer.
#[derive(Clone, Copy, Debug)]
struct Silence {
    /// When the first of these calls began.
    since: Instant,
    /// When the last of them ended.
    last: Instant,
}

impl Silence {
    fn lasts(&self, now: Instant) -> bool {
        now.duration_since(self.since) >= SILENCE && now.duration_since(self.last) < FORGET
    }
}

#[derive(Debug)]
struct Refusal {
    why: String,
    patience: Duration,
    since: Instant,
    last: Instant,
    told: Option<Instant>,
}

impl Standing {
    /// Notes how a call ended that began then.
    pub(crate) fn heard(&self, call: &'static str, began: Instant, outcome: Result<(), &AdapterError>) {
        let (mut calls, now) = (self.calls(), Instant::now());
        match outcome {
            Err(error) if is_late(error) => calls.silent(call, began, now),
            // A connection that breaks ends a silence, too: the next call reaches another process.
            Ok(()) | Err(_) => calls.spoke(call, now),
        }
        match outcome {
            Err(error) if concerns_all(error.reason) => {
                calls.refusals.entry(call).or_insert_with(Refusal::begin).repeat(call, error);
            }
            // Whatever else it says, it took the call.
            Ok(()) | Err(_) => {
                if calls.refusals.remove(call).is_some_and(|refusal| refusal.told.is_some()) {
                    info!(call, "The cloud adapter takes this call again");
                }
            }
        }
    }

    /// Whether people should hear of a refusal of this call: it lasts, or will not pass by itself.
    #[must_use]
    pub fn is_refused(&self, call: &str) -> bool {
        self.calls().refusals.get(call).is_some_and(|refusal| refusal.lasts(Instant::now()))
    }

    /// Readiness: the adapter refuses no call altogether, and answers.
    ///
    /// # Errors
    /// The text for `/readyz`.
    pub fn readiness(&self) -> Result<(), String> {
        let (calls, now) = (self.calls(), Instant::now());
        let lasting = calls.refusals.iter().filter(|(_, refusal)| refusal.lasts(now));
        let refused: Vec<String> =
            lasting.map(|(call, refusal)| format!("{call}: {}", refusal.why)).collect();
        let silent = calls.silences.iter().filter(|(_, silence)| silence.lasts(now));
        let silent: Vec<String> = silent
            .map(|(call, silence)| format!("{call} for {} s", now.duration_since(silence.since).as_secs()))
            .collect();
        let mut texts = Vec::new();
        if !refused.is_empty() {
            texts.push(format!("cloud adapter refuses {}", refused.join("; ")));
        }
        if !silent.is_empty() {
            texts.push(format!("cloud adapter has not answered {}", silent.join("; ")));
        }
        if texts.is_empty() { Ok(()) } else { Err(texts.join("; ")) }
    }

    fn calls(&self) -> MutexGuard<'_, Calls> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Calls {
    fn silent(&mut self, call: &'static str, began: Instant, now: Instant) {
        let silence = self.silences.entry(call).or_insert(Silence { since: began, last: now });
        if now.duration_since(silence.last) >= FORGET {
            silence.since = began;
        }
        silence.last = now;
        if silence.lasts(now) {
            let waited_seconds = now.duration_since(silence.since).as_secs();
            warn!(call, waited_seconds, "The cloud adapter does not answer this call before its deadline");
        }
    }

    fn spoke(&mut self, call: &'static str, now: Instant) {
        if self.silences.remove(call).is_some_and(|silence| silence.lasts(now)) {
            info!(call, "The cloud adapter answers this call again");
        }
    }
}

impl Refusal {
    fn begin() -> Self {
        let now = Instant::now();
        Self { why: String::new(), patience: PATIENCE, since: now, last: now, told: None }
    }

    fn repeat(&mut self, call: &'static str, error: &AdapterError) {
        let now = Instant::now();
        if now.duration_since(self.last) >= FORGET {
            *self = Self::begin();
        }
        let (why, patience) = (error.to_string(), patience(error.reason));
        (self.why, self.patience, self.last) = (why, patience, now);
        if self.lasts(now) && self.told.is_none_or(|told| now.duration_since(told) >= REMIND) {
            self.told = Some(now);
            let waited_seconds = now.duration_since(self.since).as_secs();
            warn!(call, %error, waited_seconds, "The cloud adapter refuses this call, whatever it is about");
        }
    }

    fn lasts(&self, now: Instant) -> bool {
        now.duration_since(self.since) >= self.patience && now.duration_since(self.last) < FORGET
    }
}

/// Who may not call, may not until a person changes that.
fn patience(reason: Reason) -> Duration {
    if is_caller_refused(reason) { Duration::ZERO } else { PATIENCE }
}

#[cfg(test)]
mod tests {
    use tonic::Status;

    use super::*;

    fn refused(standing: &Standing, reason: Reason) {
        heard(standing, "ApplyRoutes", Err(&AdapterError::new(reason, "why")));
    }

    fn heard(standing: &Standing, call: &'static str, outcome: Result<(), &AdapterError>) {
        standing.heard(call, Instant::now(), outcome);
    }

    /// A call that ends at its deadline.
    async fn hung(standing: &Standing, call: &'static str) {
        let began = Instant::now();
        tokio::time::advance(Duration::from_secs(30)).await;
        standing.heard(call, began, Err(&super::super::typed(&Status::deadline_exceeded("no answer"))));
    }

    #[tokio::test(start_paused = true)]
    async fn calls_without_an_answer_are_reported_after_a_minute() {
        let standing = Standing::default();
        hung(&standing, "BatchGetInstances").await;
        heard(&standing, "GetInfo", Ok(()));
        assert_eq!(standing.readiness(), Ok(()), "one late answer");
        hung(&standing, "BatchGetInstances").await;
        let text = standing.readiness().expect_err("silent");
        assert_eq!(text, "cloud adapter has not answered BatchGetInstances for 60 s");
        assert!(!standing.is_refused("BatchGetInstances"), "it is not refused");

        heard(&standing, "BatchGetInstances", Err(&AdapterError::new(Reason::VendorUnavailable, "why")));
        assert_eq!(standing.readiness(), Ok(()), "an error is an answer");
        hung(&standing, "BatchGetInstances").await;
        assert_eq!(standing.readiness(), Ok(()), "it counts from the last answer");
    }

    #[tokio::test(start_paused = true)]
    async fn who_may_not_call_hears_of_it_at_once_and_until_it_may() {
        let standing = Standing::default();
        refused(&standing, Reason::CallerForbidden);
        let text = standing.readiness().expect_err("refused");
        assert_eq!(text, "cloud adapter refuses ApplyRoutes: CALLER_FORBIDDEN: why");
        heard(&standing, "GetInfo", Ok(()));
        assert!(standing.is_refused("ApplyRoutes"), "another call says nothing about this one");
        heard(&standing, "ApplyRoutes", Err(&AdapterError::new(Reason::VendorQuota, "50 routes")));
        assert_eq!(standing.readiness(), Ok(()), "the adapter takes the call, the vendor does not");
    }

    #[tokio::test(start_paused = true)]
    async fn what_passes_by_itself_is_told_when_it_lasts() {
        for reason in [Reason::NotLeader, Reason::QueueFull] {
            let standing = Standing::default();
            refused(&standing, reason);
            assert_eq!(standing.readiness(), Ok(()), "{reason} has just begun");
            tokio::time::advance(PATIENCE / 2).await;
            heard(&standing, "ApplyRoutes", Ok(()));
            refused(&standing, reason);
            tokio::time::advance(PATIENCE / 2).await;
            refused(&standing, reason);
            assert_eq!(standing.readiness(), Ok(()), "{reason} was interrupted");
            tokio::time::advance(PATIENCE / 2).await;
            refused(&standing, reason);
            assert!(standing.readiness().is_err() && standing.is_refused("ApplyRoutes"), "{reason} lasts");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_not_asked_for_any_more_is_forgotten() {
        let standing = Standing::default();
        refused(&standing, Reason::CallerUnauthenticated);
        tokio::time::advance(FORGET).await;
        assert_eq!(standing.readiness(), Ok(()));
    }
}
