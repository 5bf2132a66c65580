//! Paces a write that somebody else undoes each time: two that know no better must not write as fast as a watch can tell.

use std::time::Duration;

use super::{FINALIZER, Memory, Service};

/// Before the third equal write; doubled with each.
const FIRST: Duration = Duration::from_secs(1);
/// Never longer than this.
const LONGEST: Duration = Duration::from_mins(5);
/// After so long without one the next is the first again.
const OVER: Duration = LONGEST.saturating_mul(2);

/// How often one thing was written in a row.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Pace {
    last: Option<Last>,
}

#[derive(Clone, Debug, PartialEq)]
struct Last {
    what: String,
    times: u32,
    /// Since the start of the process.
    at: Duration,
}

impl Pace {
    /// Notes a write.
    pub(super) fn wrote(&mut self, what: &str, now: Duration) {
        let times = self.of(what, now).map_or(1, |last| last.times.saturating_add(1));
        self.last = Some(Last { what: what.to_owned(), times, at: now });
    }

    /// For how much longer the same write has to wait. The first and its first repeat never do.
    pub(super) fn rest(&self, what: &str, now: Duration) -> Option<Duration> {
        let last = self.of(what, now)?;
        let doubled = 1_u32.checked_shl(last.times.checked_sub(2)?).unwrap_or(u32::MAX);
        let pause = FIRST.saturating_mul(doubled).min(LONGEST);
        (last.at + pause).checked_sub(now).filter(|rest| !rest.is_zero())
    }

    /// For how much longer the next write may be one of a row.
    fn lasts(&self, now: Duration) -> Option<Duration> {
        (self.last.as_ref()?.at + OVER).checked_sub(now).filter(|rest| !rest.is_zero())
    }

    fn of(&self, what: &str, now: Duration) -> Option<&Last> {
        self.last.as_ref().filter(|last| last.what == what && now.saturating_sub(last.at) < OVER)
    }
}

impl Memory {
    /// For how much longer our finalizer must not be taken off again. Nobody can put it back on a Service that goes.
    pub(crate) fn release_paced(&self, service: &Service, now: Duration) -> Option<Duration> {
        self.release_pace.rest(FINALIZER, now).filter(|_| !service.deleting)
    }

    /// The finalizer was taken off.
    pub(crate) fn wrote_release(&mut self, service: &Service, now: Duration) {
        if !service.deleting {
            self.release_pace.wrote(FINALIZER, now);
        }
        self.wrote(service);
    }

    /// For how much longer it counts that the finalizer was taken off, though the Service is none of our business without it.
    pub(crate) fn release_lasts(&self, now: Duration) -> Option<Duration> {
        self.release_pace.lasts(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_writes_come_ever_slower_and_others_at_once() {
        let (mut pace, mut now, mut pauses) = (Pace::default(), Duration::from_secs(100), Vec::new());
        for _ in 0..13 {
            let rest = pace.rest("a", now).unwrap_or_default();
            pauses.push(rest.as_secs());
            now += rest;
            pace.wrote("a", now);
        }
        assert_eq!(pauses, [0, 0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
        assert_eq!(pace.rest("b", now), None);
        assert_eq!(pace.rest("a", now + OVER), None, "the other one has given up");
        pace.wrote("b", now);
        assert_eq!(pace.rest("a", now), None);
    }
}
