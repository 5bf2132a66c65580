//! For how long a Service has waited for its turn at the cloud: people hear of a long wait, once.

use std::time::Duration;

/// Shorter waits are nobody's concern.
const LONG: Duration = Duration::from_secs(10);

/// The waits of what is going on, all together.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct BudgetWaits {
    /// It waited when it was asked about last, at this time since the start of the process.
    since: Option<Duration>,
    waited: Duration,
    told: bool,
}

impl BudgetWaits {
    /// The adapter answered: in these words it waits for the budget, or for something else. Returns the words that people shall hear.
    pub(super) fn answered(&mut self, words: Option<String>, now: Duration) -> Option<String> {
        if let Some(since) = self.since {
            self.waited = self.waited.saturating_add(now.saturating_sub(since));
        }
        self.since = words.as_ref().map(|_| now);
        let words = words.filter(|_| self.waited >= LONG && !self.told)?;
        self.told = true;
        Some(words)
    }
}
