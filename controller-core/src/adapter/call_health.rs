//! Records whether the adapter accepts this controller's calls, and whether it answers them.
//!
//! Some refusals concern all objects: the caller is not permitted, no replica leads, or the queue is full. Such a refusal is reported in
//! the log, on `/readyz` while it lasts, and on the waiting objects, but not for each attempt. Calls that reach their deadline are
//! reported, too, since an adapter or vendor that hangs gives no reason.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use cloud_api_proto::{AdapterError, Reason};
use tokio::time::Instant;
use tonic::Code;
use tracing::{info, warn};

/// Time after which a refusal is reported. A change of leaders or a full queue causes short refusals, which are not reported.
const REFUSAL_GRACE: Duration = Duration::from_secs(10);
/// How long calls may have no answer before the process becomes unready.
const ANSWER_TIMEOUT: Duration = Duration::from_mins(1);
/// Interval at which a lasting refusal is logged again.
const REMIND: Duration = Duration::from_mins(1);
/// Time after which a refusal that was not repeated is forgotten, because no object needs the call any more. The time is longer than any
/// backoff.
const FORGET: Duration = Duration::from_mins(10);

/// Whether the reason concerns the caller or the adapter rather than the requested object. Source: contract, section 4.
#[must_use]
pub fn concerns_all(reason: Reason) -> bool {
    is_caller_refused(reason)
        || matches!(reason, Reason::NotLeader | Reason::Starting | Reason::Draining | Reason::QueueFull)
}

/// Whether a call reached its deadline without an answer.
#[must_use]
pub(super) fn is_late(error: &AdapterError) -> bool {
    error.reason == Reason::OutcomeUnknown
        && error.code == Code::DeadlineExceeded
        && error.retry_after.is_none()
}

/// Whether the adapter rejects this controller's identity.
#[must_use]
pub fn is_caller_refused(reason: Reason) -> bool {
    matches!(reason, Reason::CallerForbidden | Reason::CallerUnauthenticated)
}

/// The calls that the adapter refuses for all objects, and the calls that it does not answer. Clones share the state.
#[derive(Clone, Debug, Default)]
pub struct CallHealth(Arc<Mutex<Calls>>);

#[derive(Debug, Default)]
struct Calls {
    refusals: BTreeMap<&'static str, Refusal>,
    unanswered: BTreeMap<&'static str, Unanswered>,
}

/// Repeated calls of an RPC without an answer.
#[derive(Clone, Copy, Debug)]
struct Unanswered {
    /// The time when the first of these calls began.
    since: Instant,
    /// The time when the last of these calls ended.
    last: Instant,
}

impl Unanswered {
    fn lasts(&self, now: Instant) -> bool {
        now.duration_since(self.since) >= ANSWER_TIMEOUT && now.duration_since(self.last) < FORGET
    }
}

#[derive(Debug)]
struct Refusal {
    why: String,
    grace: Duration,
    since: Instant,
    last: Instant,
    logged: Option<Instant>,
}

impl CallHealth {
    pub(crate) fn record(&self, call: &'static str, began: Instant, outcome: Result<(), &AdapterError>) {
        let (mut calls, now) = (self.calls(), Instant::now());
        match outcome {
            Err(error) if is_late(error) => calls.unanswered(call, began, now),
            // A broken connection also counts as an answer here, since the next call reaches another process.
            Ok(()) | Err(_) => calls.answered(call, now),
        }
        match outcome {
            Err(error) if concerns_all(error.reason) => {
                calls
                    .refusals
                    .entry(call)
                    .or_insert_with(|| Refusal::begin(began))
                    .repeat(call, began, error);
            }
            // Any other answer means that the adapter accepted the call.
            Ok(()) | Err(_) => {
                if calls.refusals.remove(call).is_some_and(|refusal| refusal.logged.is_some()) {
                    info!(call, "The cloud adapter accepts this call again");
                }
            }
        }
    }

    /// Whether a refusal of this call should be reported to users: it lasts, or will not end by itself.
    #[must_use]
    pub fn is_refused(&self, call: &str) -> bool {
        self.calls().refusals.get(call).is_some_and(|refusal| refusal.lasts(Instant::now()))
    }

    /// Checks readiness: the adapter accepts all kinds of calls, and answers them.
    ///
    /// Errors: The text for `/readyz`.
    pub fn readiness(&self) -> Result<(), String> {
        let (calls, now) = (self.calls(), Instant::now());
        let lasting = calls.refusals.iter().filter(|(_, refusal)| refusal.lasts(now));
        let refused: Vec<String> =
            lasting.map(|(call, refusal)| format!("{call}: {}", refusal.why)).collect();
        let unanswered = calls.unanswered.iter().filter(|(_, calls)| calls.lasts(now));
        let unanswered: Vec<String> = unanswered
            .map(|(call, calls)| format!("{call} for {} s", now.duration_since(calls.since).as_secs()))
            .collect();
        let mut texts = Vec::new();
        if !refused.is_empty() {
            texts.push(format!("cloud adapter refuses {}", refused.join("; ")));
        }
        if !unanswered.is_empty() {
            texts.push(format!("cloud adapter has not answered {}", unanswered.join("; ")));
        }
        if texts.is_empty() { Ok(()) } else { Err(texts.join("; ")) }
    }

    fn calls(&self) -> MutexGuard<'_, Calls> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Calls {
    fn unanswered(&mut self, call: &'static str, began: Instant, now: Instant) {
        let calls = self.unanswered.entry(call).or_insert(Unanswered { since: began, last: now });
        if now.duration_since(calls.last) >= FORGET {
            calls.since = began;
        }
        calls.last = now;
        if calls.lasts(now) {
            let waited_seconds = now.duration_since(calls.since).as_secs();
            warn!(call, waited_seconds, "The cloud adapter did not answer this call before its deadline");
        }
    }

    fn answered(&mut self, call: &'static str, now: Instant) {
        if self.unanswered.remove(call).is_some_and(|calls| calls.lasts(now)) {
            info!(call, "The cloud adapter answers this call again");
        }
    }
}

impl Refusal {
    /// `began`: when the call began. A call may have waited for a replica that serves before it was refused.
    fn begin(began: Instant) -> Self {
        let last = Instant::now();
        Self { why: String::new(), grace: REFUSAL_GRACE, since: began, last, logged: None }
    }

    fn repeat(&mut self, call: &'static str, began: Instant, error: &AdapterError) {
        let now = Instant::now();
        if now.duration_since(self.last) >= FORGET {
            *self = Self::begin(began);
        }
        let (why, grace_period) = (error.to_string(), grace(error.reason));
        (self.why, self.grace, self.last) = (why, grace_period, now);
        if self.lasts(now) && self.logged.is_none_or(|at| now.duration_since(at) >= REMIND) {
            self.logged = Some(now);
            let waited_seconds = now.duration_since(self.since).as_secs();
            warn!(call, %error, waited_seconds, "The cloud adapter rejects each call of this kind, whatever the object");
        }
    }

    fn lasts(&self, now: Instant) -> bool {
        now.duration_since(self.since) >= self.grace && now.duration_since(self.last) < FORGET
    }
}

/// Returns after what time a refusal is reported. A rejected identity is reported at once, because only the operator can fix it.
fn grace(reason: Reason) -> Duration {
    if is_caller_refused(reason) { Duration::ZERO } else { REFUSAL_GRACE }
}

#[cfg(test)]
mod tests {
    use tonic::Status;

    use super::*;

    fn refused(health: &CallHealth, reason: Reason) {
        record(health, "ApplyRoutes", Err(&AdapterError::new(reason, "why")));
    }

    fn record(health: &CallHealth, call: &'static str, outcome: Result<(), &AdapterError>) {
        health.record(call, Instant::now(), outcome);
    }

    async fn hung(health: &CallHealth, call: &'static str) {
        let began = Instant::now();
        tokio::time::advance(Duration::from_secs(30)).await;
        health.record(call, began, Err(&super::super::typed(&Status::deadline_exceeded("no answer"))));
    }

    #[tokio::test(start_paused = true)]
    async fn calls_without_an_answer_are_reported_after_a_minute() {
        let health = CallHealth::default();
        hung(&health, "BatchGetInstances").await;
        record(&health, "GetInfo", Ok(()));
        assert_eq!(health.readiness(), Ok(()), "one late answer");
        hung(&health, "BatchGetInstances").await;
        let text = health.readiness().expect_err("unanswered");
        assert_eq!(text, "cloud adapter has not answered BatchGetInstances for 60 s");
        assert!(!health.is_refused("BatchGetInstances"), "it is not refused");

        record(&health, "BatchGetInstances", Err(&AdapterError::new(Reason::VendorUnavailable, "why")));
        assert_eq!(health.readiness(), Ok(()), "an error is an answer");
        hung(&health, "BatchGetInstances").await;
        assert_eq!(health.readiness(), Ok(()), "the time counts from the last answer");
    }

    #[tokio::test(start_paused = true)]
    async fn a_forbidden_call_is_reported_at_once_and_until_it_succeeds() {
        let health = CallHealth::default();
        refused(&health, Reason::CallerForbidden);
        let text = health.readiness().expect_err("refused");
        assert_eq!(text, "cloud adapter refuses ApplyRoutes: CALLER_FORBIDDEN: why");
        record(&health, "GetInfo", Ok(()));
        assert!(health.is_refused("ApplyRoutes"), "a refusal of one call does not concern another");
        record(&health, "ApplyRoutes", Err(&AdapterError::new(Reason::VendorQuota, "50 routes")));
        assert_eq!(health.readiness(), Ok(()), "the adapter accepts the call, the vendor does not");
    }

    #[tokio::test(start_paused = true)]
    async fn temporary_refusals_are_reported_only_if_they_last() {
        for reason in [Reason::NotLeader, Reason::QueueFull] {
            let health = CallHealth::default();
            refused(&health, reason);
            assert_eq!(health.readiness(), Ok(()), "{reason} has just begun");
            tokio::time::advance(REFUSAL_GRACE / 2).await;
            record(&health, "ApplyRoutes", Ok(()));
            refused(&health, reason);
            tokio::time::advance(REFUSAL_GRACE / 2).await;
            refused(&health, reason);
            assert_eq!(health.readiness(), Ok(()), "{reason} was interrupted");
            tokio::time::advance(REFUSAL_GRACE / 2).await;
            refused(&health, reason);
            assert!(health.readiness().is_err() && health.is_refused("ApplyRoutes"), "{reason} lasts");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_lasts_since_its_call_began() {
        let (health, starting) = (CallHealth::default(), AdapterError::new(Reason::Starting, "why"));
        for reported in [false, true] {
            let began = Instant::now();
            tokio::time::advance(REFUSAL_GRACE / 2).await;
            health.record("ApplyRoutes", began, Err(&starting));
            assert_eq!(health.is_refused("ApplyRoutes"), reported);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn refusals_of_unused_calls_are_forgotten() {
        let health = CallHealth::default();
        refused(&health, Reason::CallerUnauthenticated);
        tokio::time::advance(FORGET).await;
        assert_eq!(health.readiness(), Ok(()));
    }
}
