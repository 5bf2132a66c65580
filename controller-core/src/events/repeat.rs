//! Decides when a lasting condition is reported: when it begins, and again at an interval while it lasts. The code is pure: every time is
//! an argument.
//! [`is_over`] is the rule for the interval, and [`super::Reminders`] follows it, too.
//!
//! A controller that checks all objects finds the same conditions again every few seconds. The memory is bounded, because each remembered
//! condition is either present or was reported within the interval.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Add,
    time::Duration,
};

use tokio::time::Instant;

/// Interval at which the Event of a lasting condition is re-emitted. The API server keeps Events for an hour by default, and an Event that
/// still applies must not expire.
pub const REMIND: Duration = Duration::from_mins(30);

/// Whether a condition that was reported at `last` must be reported again.
pub(super) fn is_over<T: Copy + Ord + Add<Duration, Output = T>>(
    last: T,
    interval: Duration,
    now: T,
) -> bool {
    now >= last + interval
}

/// When each condition was reported last. Times are instants, or durations since a common start.
#[derive(Clone, Debug, PartialEq)]
pub struct Repeat<K, T = Instant> {
    interval: Duration,
    reported: BTreeMap<K, T>,
}

impl<K: Clone + Ord, T: Copy + Ord + Add<Duration, Output = T>> Repeat<K, T> {
    /// Starts without reported conditions. While a condition lasts, it is reported again at this interval.
    #[must_use]
    pub const fn every(interval: Duration) -> Self {
        Self { interval, reported: BTreeMap::new() }
    }

    /// Returns when a condition was reported last.
    #[must_use]
    pub fn last(&self, condition: &K) -> Option<T> {
        self.reported.get(condition).copied()
    }

    /// Whether a condition must be reported now.
    #[must_use]
    pub fn is_due(&self, condition: &K, now: T) -> bool {
        self.last(condition).is_none_or(|last| is_over(last, self.interval, now))
    }

    /// Records that a condition was reported.
    pub fn reported(&mut self, condition: K, now: T) {
        self.reported.insert(condition, now);
    }

    /// Forgets the conditions that are not present. When such a condition begins again, it is reported at once. A condition for which
    /// `alternates` is true is still remembered for the interval, so that alternating conditions are reported once each.
    pub fn end(&mut self, now: T, is_present: impl Fn(&K) -> bool, alternates: impl Fn(&K) -> bool) {
        let interval = self.interval;
        self.reported.retain(|condition, last| {
            is_present(condition) || (alternates(condition) && !is_over(*last, interval, now))
        });
    }

    /// Handles one check of all objects, in which all present conditions were observed. Returns and records the conditions that must be
    /// reported now. Ends the conditions that are not present, as [`Self::end`] does.
    pub fn observe<'a>(
        &mut self,
        present: impl IntoIterator<Item = &'a K>,
        now: T,
        alternates: impl Fn(&K) -> bool,
    ) -> Vec<&'a K> {
        let present: BTreeSet<&K> = present.into_iter().collect();
        let due: Vec<&K> = present.iter().copied().filter(|condition| self.is_due(condition, now)).collect();
        self.end(now, |condition| present.contains(condition), alternates);
        self.reported.extend(due.iter().map(|condition| ((*condition).clone(), now)));
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lasting_condition_is_reported_when_it_begins_and_repeatedly() {
        let mut repeat = Repeat::every(Duration::from_mins(30));
        for (minutes, present, due) in [
            (0, vec!["rain"], vec!["rain"]),
            (1, vec!["rain", "snow"], vec!["snow"]),
            (29, vec!["rain", "snow"], vec![]),
            (30, vec!["rain", "snow"], vec!["rain"]),
            (31, vec!["snow"], vec!["snow"]),
            (32, vec!["rain", "snow"], vec!["rain"]),
        ] {
            let found = repeat.observe(&present, Duration::from_mins(minutes), |_| false);
            assert_eq!(found.into_iter().copied().collect::<Vec<_>>(), due, "after {minutes} min");
        }
    }

    #[test]
    fn alternating_conditions_are_reported_once_each_and_forgotten() {
        let mut repeat = Repeat::every(Duration::from_mins(30));
        for (minutes, present, is_due) in
            [(0, "rain", true), (1, "snow", true), (2, "rain", false), (3, "snow", false), (31, "rain", true)]
        {
            let due = repeat.observe([&present], Duration::from_mins(minutes), |_| true);
            assert_eq!(!due.is_empty(), is_due, "{present} after {minutes} min");
        }
        assert_eq!((repeat.last(&"rain"), repeat.last(&"snow")), (Some(Duration::from_mins(31)), None));
    }
}
