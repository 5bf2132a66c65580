//! Counts all refusals but logs only some of them, since a refused caller may retry at any rate.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use cloud_api_proto::AdapterError;
use tokio::time::Instant;

use crate::auth::{Caller, metrics::Metrics};

/// Number of log lines that may be written at once, and the time after which another line may be written.
const LINES: u32 = 10;
const ONE_MORE: Duration = Duration::from_secs(6);

/// Counts and logs refusals. Clones share their state.
#[derive(Clone, Debug)]
pub struct Refusals {
    metrics: Metrics,
    lines: Arc<Mutex<Lines>>,
}

impl Refusals {
    /// Creates a counter without any refusals.
    #[must_use]
    pub fn new(metrics: Metrics) -> Self {
        Self { metrics, lines: Arc::new(Mutex::new(Lines { paid: Instant::now(), suppressed: 0 })) }
    }

    /// Records a call that was refused because of the caller's identity. `caller` is `None` if the caller did not prove an identity.
    pub fn note(&self, caller: Option<&Caller>, method: &str, error: &AdapterError) {
        let reason = error.reason.word();
        self.metrics.refused(caller.map(|caller| caller.role), reason);
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(suppressed) = lines.take() else { return };
        drop(lines);
        let subject = caller.map_or("unknown", |caller| &caller.subject);
        // The caller is not trusted, so its input is quoted and truncated.
        let method: String = method.chars().take(100).collect();
        let error = error.message.as_str();
        tracing::warn!(
            subject,
            ?method,
            reason,
            error,
            suppressed,
            "Refused a call because of the caller's identity"
        );
    }
}

#[derive(Debug)]
struct Lines {
    /// From this time on, `LINES` log lines may be written at once again.
    paid: Instant,
    suppressed: u64,
}

impl Lines {
    /// Returns the number of lines that were suppressed before this line. `None`: this line is suppressed, too.
    fn take(&mut self) -> Option<u64> {
        let now = Instant::now();
        let paid = self.paid.max(now) + ONE_MORE;
        if paid > now + ONE_MORE * LINES {
            self.suppressed += 1;
            return None;
        }
        self.paid = paid;
        Some(std::mem::take(&mut self.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_flood_of_refusals_is_logged_in_few_lines_with_a_count() {
        let mut lines = Lines { paid: Instant::now(), suppressed: 0 };
        let mut said = 0;
        for _ in 0..1000 {
            said += u64::from(lines.take().is_some());
        }
        assert_eq!(said, u64::from(LINES));
        tokio::time::advance(ONE_MORE).await;
        assert_eq!(lines.take(), Some(1000 - said));
        assert_eq!(lines.take(), None);
        tokio::time::advance(ONE_MORE * LINES * 2).await;
        assert_eq!(lines.take(), Some(1));
    }
}
