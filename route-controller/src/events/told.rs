//! Remembers which conditions were reported. A condition is reported when it begins, and then every half hour, not in each pass.

use std::collections::BTreeMap;

use controller_core::events::REMIND;
use tokio::time::Instant;

/// What was reported, and when.
#[derive(Debug)]
pub(crate) struct Reported<T>(BTreeMap<T, Instant>);

impl<T> Default for Reported<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T: Clone + Ord> Reported<T> {
    /// Returns those of the present conditions that must be reported now. Forgets the conditions that have ended.
    pub(crate) fn news<'a>(&mut self, all: impl IntoIterator<Item = &'a T>, now: Instant) -> Vec<&'a T>
    where
        T: 'a,
    {
        let (news, _over) = self.compare(all, now);
        news
    }

    /// Like the function above, but remembers an ended condition for a while, so that conditions that alternate are reported only once
    /// each.
    pub(crate) fn rare_news<'a>(&mut self, all: impl IntoIterator<Item = &'a T>, now: Instant) -> Vec<&'a T>
    where
        T: 'a,
    {
        let (news, mut over) = self.compare(all, now);
        over.retain(|_, told| now.duration_since(*told) < REMIND);
        self.0.extend(over);
        news
    }

    /// Returns what to report now, and what was reported before and has ended.
    fn compare<'a>(
        &mut self,
        all: impl IntoIterator<Item = &'a T>,
        now: Instant,
    ) -> (Vec<&'a T>, BTreeMap<T, Instant>)
    where
        T: 'a,
    {
        let mut before = std::mem::take(&mut self.0);
        let mut news = Vec::new();
        for trouble in all {
            let told = before.remove(trouble).filter(|told| now.duration_since(*told) < REMIND);
            if told.is_none() {
                news.push(trouble);
            }
            self.0.insert(trouble.clone(), told.unwrap_or(now));
        }
        (news, before)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn lasting_condition_is_reported_when_it_begins_and_repeatedly() {
        let (mut told, start) = (Reported::default(), Instant::now());
        for (minutes, troubles, news) in [
            (0, vec!["rain"], vec!["rain"]),
            (1, vec!["rain", "snow"], vec!["snow"]),
            (29, vec!["rain", "snow"], vec![]),
            (30, vec!["rain", "snow"], vec!["rain"]),
            (31, vec!["snow"], vec!["snow"]),
            (32, vec!["rain", "snow"], vec!["rain"]),
        ] {
            let now = start + Duration::from_mins(minutes);
            let found: Vec<_> = told.news(&troubles, now).into_iter().copied().collect();
            assert_eq!(found, news, "after {minutes} min");
        }
    }

    #[test]
    fn alternating_conditions_are_reported_once_each() {
        let (mut told, start) = (Reported::default(), Instant::now());
        for (minutes, trouble, is_news) in
            [(0, "rain", true), (1, "snow", true), (2, "rain", false), (3, "snow", false), (31, "rain", true)]
        {
            let now = start + Duration::from_mins(minutes);
            assert_eq!(!told.rare_news([&trouble], now).is_empty(), is_news, "{trouble} after {minutes} min");
        }
    }
}
