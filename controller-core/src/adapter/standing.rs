//! Whether the adapter takes this controller's calls at all.
//!
//! Some refusals concern every object alike: the caller may not, nobody leads, the queue is full. They are told once in the log and
//! on `/readyz` for as long as they last, and at the objects that wait; not at each object for each attempt.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use cloud_api_proto::{AdapterError, Reason};
use tokio::time::Instant;
use tracing::{info, warn};

/// A leader that hands over, or a queue that is full for a moment, is nobody's concern.
const PATIENCE: Duration = Duration::from_secs(10);
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

/// Whether the adapter does not let this controller in.
#[must_use]
pub fn is_caller_refused(reason: Reason) -> bool {
    matches!(reason, Reason::CallerForbidden | Reason::CallerUnauthenticated)
}

/// What the adapter refuses altogether, by call. Cloning gives another handle.
#[derive(Clone, Debug, Default)]
pub struct Standing(Arc<Mutex<BTreeMap<&'static str, Refusal>>>);

#[derive(Debug)]
struct Refusal {
    why: String,
    patience: Duration,
    since: Instant,
    last: Instant,
    told: Option<Instant>,
}

impl Standing {
    /// Notes how a call ended.
    pub(crate) fn heard(&self, call: &'static str, outcome: Result<(), &AdapterError>) {
        let mut refusals = self.refusals();
        match outcome {
            Err(error) if concerns_all(error.reason) => {
                refusals.entry(call).or_insert_with(Refusal::begin).repeat(call, error);
            }
            // Whatever else it says, it took the call.
            Ok(()) | Err(_) => {
                if refusals.remove(call).is_some_and(|refusal| refusal.told.is_some()) {
                    info!(call, "The cloud adapter takes this call again");
                }
            }
        }
    }

    /// Whether people should hear of a refusal of this call: it lasts, or will not pass by itself.
    #[must_use]
    pub fn is_refused(&self, call: &str) -> bool {
        self.refusals().get(call).is_some_and(|refusal| refusal.lasts(Instant::now()))
    }

    /// Readiness: the adapter refuses no call altogether.
    ///
    /// # Errors
    /// The text for `/readyz`.
    pub fn readiness(&self) -> Result<(), String> {
        let now = Instant::now();
        let refusals = self.refusals();
        let lasting = refusals.iter().filter(|(_, refusal)| refusal.lasts(now));
        let texts: Vec<String> = lasting.map(|(call, refusal)| format!("{call}: {}", refusal.why)).collect();
        if texts.is_empty() { Ok(()) } else { Err(format!("cloud adapter refuses {}", texts.join("; "))) }
    }

    fn refusals(&self) -> MutexGuard<'_, BTreeMap<&'static str, Refusal>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
    use super::*;

    fn refused(standing: &Standing, reason: Reason) {
        standing.heard("ApplyRoutes", Err(&AdapterError::new(reason, "why")));
    }

    #[tokio::test(start_paused = true)]
    async fn who_may_not_call_hears_of_it_at_once_and_until_it_may() {
        let standing = Standing::default();
        refused(&standing, Reason::CallerForbidden);
        let text = standing.readiness().expect_err("refused");
        assert_eq!(text, "cloud adapter refuses ApplyRoutes: CALLER_FORBIDDEN: why");
        standing.heard("GetInfo", Ok(()));
        assert!(standing.is_refused("ApplyRoutes"), "another call says nothing about this one");
        standing.heard("ApplyRoutes", Err(&AdapterError::new(Reason::VendorQuota, "50 routes")));
        assert_eq!(standing.readiness(), Ok(()), "the adapter takes the call, the vendor does not");
    }

    #[tokio::test(start_paused = true)]
    async fn what_passes_by_itself_is_told_when_it_lasts() {
        for reason in [Reason::NotLeader, Reason::QueueFull] {
            let standing = Standing::default();
            refused(&standing, reason);
            assert_eq!(standing.readiness(), Ok(()), "{reason} has just begun");
            tokio::time::advance(PATIENCE / 2).await;
            standing.heard("ApplyRoutes", Ok(()));
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
