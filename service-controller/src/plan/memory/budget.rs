//! For how long a Service has waited for its turn at the cloud: people hear of a long wait, and again while it lasts.

use std::time::Duration;

use controller_core::events::REMIND;

/// Shorter waits are nobody's concern.
const LONG: Duration = Duration::from_secs(10);

/// The waits of what is going on, all together.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct BudgetWaits {
    /// It waited when it was asked about last, at this time since the start of the process.
    since: Option<Duration>,
    waited: Duration,
    /// In which words people heard of it, and when last.
    told: Option<(String, Duration)>,
}

impl BudgetWaits {
    /// The adapter answered: in these words it waits for the budget, or for something else. Returns the words that people shall hear.
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
