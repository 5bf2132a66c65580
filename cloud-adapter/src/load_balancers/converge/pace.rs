//! How long the cloud takes to make a change, learned from polls, so that a waiting user's poll comes when the change should be done.
//!
//! Pure: callers pass the times. The state is two bounds for each vendor operation, and a poll between them halves their distance.

use std::{collections::BTreeMap, time::Duration};

/// Maximum delay before a poll, so that a change that fails early is noticed.
const DELAY_MAX: Duration = Duration::from_secs(15);
/// Bounds closer than this part of the upper bound are not narrowed by further polls.
const CLOSE: u32 = 8;
/// Each change that is done at the first poll lowers the lower bound by this part, so that a faster cloud is noticed. This costs about one
/// additional poll in eight changes.
const LOWER: u32 = 64;

/// The learned durations of the changes of a cloud.
#[derive(Clone, Debug)]
pub(super) struct Pace {
    /// The driver's delay before a first poll, of which polls that are late or have no bounds use a part.
    poll: Duration,
    bounds: BTreeMap<&'static str, Bounds>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Bounds {
    /// The longest time after which the cloud was still making the change.
    busy: Duration,
    /// The shortest time after which the change was done. `None`: unknown, or the cloud has become slower.
    done: Option<Duration>,
}

impl Pace {
    pub(super) fn new(poll: Duration) -> Self {
        Self { poll, bounds: BTreeMap::new() }
    }

    /// Returns the delay before the next poll of a change by `operation`, whose write was answered `elapsed` ago.
    pub(super) fn delay(&self, operation: &str, elapsed: Duration) -> Duration {
        let bounds = self.bounds.get(operation).copied().unwrap_or_default();
        let expected = bounds.expected().unwrap_or(self.poll / 2);
        if let Some(rest) = expected.checked_sub(elapsed).filter(|rest| !rest.is_zero()) {
            return rest.min(DELAY_MAX);
        }
        // The change takes longer than expected. The delay grows with the time that it has taken so far.
        let grown = if bounds.done.is_some() { elapsed / 4 } else { elapsed / 2 };
        grown.clamp(self.poll / 10, DELAY_MAX)
    }

    /// A poll that began `elapsed` after the write was answered has shown that the cloud is still making the change.
    pub(super) fn busy(&mut self, operation: &'static str, elapsed: Duration) {
        let bounds = self.bounds.entry(operation).or_default();
        bounds.busy = bounds.busy.max(elapsed);
        bounds.done = bounds.done.filter(|done| *done > elapsed);
    }

    /// A poll that ended `elapsed` after the write was answered has shown that the change is done.
    pub(super) fn done(&mut self, operation: &'static str, elapsed: Duration) {
        let bounds = self.bounds.entry(operation).or_default();
        bounds.done = Some(bounds.done.map_or(elapsed, |done| done.min(elapsed)));
        bounds.busy -= bounds.busy / LOWER;
        if bounds.busy >= elapsed {
            bounds.busy = elapsed - elapsed / CLOSE;
        }
    }
}

impl Bounds {
    /// Returns the time after which a poll should show that the change is done.
    fn expected(self) -> Option<Duration> {
        let done = self.done?;
        let gap = done.saturating_sub(self.busy);
        Some(if gap > done / CLOSE { self.busy + gap / 2 } else { done })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: Duration = Duration::from_millis(20);

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// Makes one change that takes `takes`. Returns the number of polls, and how much later than necessary the last poll began.
    fn change(pace: &mut Pace, takes: Duration) -> (u32, Duration) {
        let (mut elapsed, mut polls) = (Duration::ZERO, 0);
        loop {
            elapsed += pace.delay("create", elapsed);
            polls += 1;
            if elapsed >= takes {
                pace.done("create", elapsed + ANSWER);
                return (polls, elapsed - takes);
            }
            pace.busy("create", elapsed);
            elapsed += ANSWER;
        }
    }

    /// Returns the mean number of polls of the last 20 of 40 changes, and their longest delay.
    fn settled(pace: &mut Pace, takes: impl Fn(u64) -> Duration) -> (f64, Duration) {
        let all: Vec<_> = (0..40).map(|number| change(pace, takes(number))).collect();
        let last = &all[20..];
        let polls: u32 = last.iter().map(|(polls, _)| polls).sum();
        (f64::from(polls) / 20.0, last.iter().map(|(_, late)| *late).max().unwrap_or_default())
    }

    #[test]
    fn changes_of_equal_duration_cost_little_more_than_one_poll_each() {
        for (poll, takes) in [(250, 300), (250, 100), (2_000, 45_000), (2_000, 700), (250, 0)] {
            let mut pace = Pace::new(ms(poll));
            let (polls, late) = settled(&mut pace, |_| ms(takes));
            let long = ms(takes).div_duration_f64(DELAY_MAX).floor();
            assert!(polls <= 1.2 + long, "{takes} ms: {polls} polls");
            assert!(late <= ms(takes) / 6 + ANSWER + ms(poll) / 10, "{takes} ms: {late:?} late");
        }
    }

    #[test]
    fn first_change_is_polled_with_growing_delays() {
        let (polls, late) = change(&mut Pace::new(ms(2_000)), ms(45_000));
        assert!(polls <= 12 && late <= DELAY_MAX, "{polls} polls, {late:?} late");
    }

    #[test]
    fn pace_follows_a_cloud_that_changes_its_speed() {
        let mut pace = Pace::new(ms(250));
        settled(&mut pace, |_| ms(300));
        let (polls, late) = settled(&mut pace, |_| ms(1_500));
        assert!(polls <= 1.3 && late <= ms(300), "slower: {polls} polls, {late:?} late");
        settled(&mut pace, |_| ms(300));
        settled(&mut pace, |_| ms(300));
        let (polls, late) = settled(&mut pace, |_| ms(300));
        assert!(polls <= 1.3 && late <= ms(100), "faster: {polls} polls, {late:?} late");
    }

    #[test]
    fn changes_of_unequal_duration_cost_few_polls() {
        let mut pace = Pace::new(ms(2_000));
        let (polls, late) = settled(&mut pace, |number| ms(1_000 + number * 7_919 % 3_000));
        assert!(polls <= 2.5 && late <= ms(3_000), "{polls} polls, {late:?} late");
    }

    #[test]
    fn operations_have_paces_of_their_own() {
        let mut pace = Pace::new(ms(250));
        settled(&mut pace, |_| ms(5_000));
        assert_eq!(pace.delay("update", Duration::ZERO), ms(125));
    }
}
