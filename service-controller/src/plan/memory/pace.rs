//! Slows down a write that another client reverts each time. Otherwise both clients would write as fast as their watches report changes.

use std::time::Duration;

use super::{FINALIZER, Memory, Service};

/// Delay before the third identical write, doubled for each further one.
const FIRST: Duration = Duration::from_secs(1);
/// Maximum delay.
const LONGEST: Duration = Duration::from_mins(5);
/// If no identical write happens for this duration, the count starts again.
const OVER: Duration = LONGEST.saturating_mul(2);

/// Counts consecutive identical writes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Pace {
    last: Option<Last>,
}

#[derive(Clone, Debug, PartialEq)]
struct Last {
    what: String,
    times: u32,
    /// Time of the last write, since the start of the process.
    at: Duration,
}

impl Pace {
    /// Records a write.
    pub(super) fn wrote(&mut self, what: &str, now: Duration) {
        let times = self.of(what, now).map_or(1, |last| last.times.saturating_add(1));
        self.last = Some(Last { what: what.to_owned(), times, at: now });
    }

    /// Remaining delay before the same write may be made. The first write and its first repetition are not delayed.
    pub(super) fn rest(&self, what: &str, now: Duration) -> Option<Duration> {
        let last = self.of(what, now)?;
        let doubled = 1_u32.checked_shl(last.times.checked_sub(2)?).unwrap_or(u32::MAX);
        let pause = FIRST.saturating_mul(doubled).min(LONGEST);
        (last.at + pause).checked_sub(now).filter(|rest| !rest.is_zero())
    }

    /// Remaining time in which the next write may count as a repetition.
    fn lasts(&self, now: Duration) -> Option<Duration> {
        (self.last.as_ref()?.at + OVER).checked_sub(now).filter(|rest| !rest.is_zero())
    }

    fn of(&self, what: &str, now: Duration) -> Option<&Last> {
        self.last.as_ref().filter(|last| last.what == what && now.saturating_sub(last.at) < OVER)
    }
}

impl Memory {
    /// Remaining delay before the finalizer may be removed again. While the Service is being deleted, no client can restore its finalizer,
    /// so there is no delay.
    pub(crate) fn release_paced(&self, service: &Service, now: Duration) -> Option<Duration> {
        self.release_pace.rest(FINALIZER, now).filter(|_| !service.deleting)
    }

    /// Records that the finalizer was removed.
    pub(crate) fn wrote_release(&mut self, service: &Service, now: Duration) {
        if !service.deleting {
            self.release_pace.wrote(FINALIZER, now);
        }
        self.wrote(service);
    }

    /// Remaining time for which the removal of the finalizer is remembered, although a Service without finalizer is no longer managed.
    pub(crate) fn release_lasts(&self, now: Duration) -> Option<Duration> {
        self.release_pace.lasts(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_writes_are_slowed_down_and_others_are_not() {
        let (mut pace, mut now, mut pauses) = (Pace::default(), Duration::from_secs(100), Vec::new());
        for _ in 0..13 {
            let rest = pace.rest("a", now).unwrap_or_default();
            pauses.push(rest.as_secs());
            now += rest;
            pace.wrote("a", now);
        }
        assert_eq!(pauses, [0, 0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
        assert_eq!(pace.rest("b", now), None);
        assert_eq!(pace.rest("a", now + OVER), None, "the other client has stopped");
        pace.wrote("b", now);
        assert_eq!(pace.rest("a", now), None);
    }
}
