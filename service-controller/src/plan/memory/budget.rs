//! Tracks how long a load balancer waits for the call budget. A long wait is reported when it becomes long, and at intervals while it
//! lasts.

use std::time::Duration;

use controller_core::events::REMIND;

/// Shorter waits are not reported.
const LONG: Duration = Duration::from_secs(10);

/// The waiting times in the work in progress.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct BudgetWaits {
    /// Time of the last call if the load balancer waited for the budget then, since the start of the process.
    since: Option<Duration>,
    waited: Duration,
    /// Text and time of the last Event.
    told: Option<(String, Duration)>,
}

impl BudgetWaits {
    /// Processes an answer of the adapter; `words`: its text if the load balancer waits for the budget. Returns the text of an Event, if
    /// one is due.
    pub(super) fn answered(&mut self, words: Option<String>, now: Duration) -> Option<String> {
        if let Some(since) = self.since {
            self.waited = self.waited.saturating_add(now.saturating_sub(since));
        }
        self.since = words.as_ref().map(|_| now);
        let words = words.filter(|_| self.waited >= LONG)?;
        let (words, _) = match self.told.take() {
            Some(told @ (_, at)) if now.saturating_sub(at) < REMIND => {
                self.told = Some(told);
                return None;
            }
            Some(told) => told,
            None => (words, now),
        };
        self.told = Some((words.clone(), now));
        Some(words)
    }
}
