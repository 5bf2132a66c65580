//! A task repeats a vendor write that failed. This module records when the failures began, and decides whether to report them. This module
//! is pure.
//!
//! Failures that end the task are not counted here, because the caller gets such a failure as an error.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

/// Number of failures of the same step after which callers get a report.
const TIMES: u32 = 3;
/// Time since the first failure after which callers get a report, however often the task has tried the step.
const LASTS: Duration = Duration::from_secs(10);

/// The failures of the first step of the plan.
#[derive(Clone, Debug)]
pub(super) struct Failing<S> {
    step: Arc<S>,
    failure: Failure,
}

/// The last failure of a step that the task tries again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// The description of the step with its object, and the vendor's error.
    error: Arc<str>,
    times: u32,
    /// The time of the first failure. `None`: the cloud was changing the load balancer after that failure, so only the number of failures
    /// counts.
    since: Option<Instant>,
    /// True if it is unknown whether the vendor made the write.
    unknown: bool,
    next: Instant,
}

/// One failure.
#[derive(Clone, Copy, Debug)]
pub(super) struct Try<'a> {
    pub(super) error: &'a str,
    pub(super) unknown: bool,
    /// The estimated time of the next attempt.
    pub(super) next: Instant,
    pub(super) now: Instant,
}

impl<S: PartialEq> Failing<S> {
    /// A failure of another step replaces the earlier failures.
    pub(super) fn add(before: Option<Self>, step: &Arc<S>, failed: Try<'_>) -> Self {
        let Try { error, unknown, next, now } = failed;
        let before = before.filter(|it| it.step == *step).map(|it| it.failure);
        let (times, since) = before.map_or((0, None), |it| (it.times, it.since));
        let failure = Failure {
            error: error.into(),
            times: times.saturating_add(1),
            since: since.or(Some(now)),
            unknown,
            next,
        };
        Self { step: Arc::clone(step), failure }
    }

    /// Returns the failures that still matter when the plan begins with this step.
    pub(super) fn planned(self, step: &S) -> Option<Self> {
        Some(self).filter(|it| *it.step == *step)
    }

    /// Returns the failures that still matter while the cloud is changing the load balancer. Failures with an unknown outcome no longer
    /// matter, because the write was made. The wait for the cloud is not a failure.
    pub(super) fn cloud_works(mut self) -> Option<Self> {
        self.failure.since = None;
        Some(self).filter(|it| !it.failure.unknown)
    }

    pub(super) fn failure(&self) -> &Failure {
        &self.failure
    }
}

impl Failure {
    /// Returns the text of the report, if the failure lasts. The text before the last semicolon is constant for the same failure, apart
    /// from numbers in the vendor's words. `pause` is the time for which the adapter sends nothing.
    pub(crate) fn report(&self, now: Instant, pause: Duration) -> Option<String> {
        let lasts = self.since.is_some_and(|since| now.duration_since(since) >= LASTS);
        (lasts || self.times >= TIMES).then(|| {
            let rest = self.next.saturating_duration_since(now).max(pause);
            let check = if self.unknown { ", after a check whether the write was made" } else { "" };
            format!("{}; next try in about {} s{check}", self.error, rest.as_secs().max(1))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn failed(unknown: bool, now: Instant) -> Try<'static> {
        Try { error: "create failed (503): no", unknown, next: now + SECOND * 40, now }
    }

    fn add(before: Option<Failing<&'static str>>, step: &'static str, now: Instant) -> Failing<&'static str> {
        Failing::add(before, &Arc::new(step), failed(true, now))
    }

    fn report(failing: &Failing<&str>, now: Instant) -> Option<String> {
        failing.failure().report(now, Duration::ZERO)
    }

    #[test]
    fn failure_is_reported_after_three_times_or_ten_seconds() {
        let now = Instant::now();
        let once = add(None, "create", now);
        assert_eq!(report(&once, now + SECOND * 9), None);
        let text =
            "create failed (503): no; next try in about 30 s, after a check whether the write was made";
        assert_eq!(report(&once, now + SECOND * 10).as_deref(), Some(text));
        let twice = add(Some(once), "create", now);
        assert_eq!(report(&twice, now), None);
        assert!(report(&add(Some(twice.clone()), "create", now), now).is_some());
        assert_eq!(report(&add(Some(twice), "other", now), now), None, "another step");
    }

    #[test]
    fn wait_for_the_cloud_is_not_a_failure() {
        let (now, later) = (Instant::now(), Instant::now() + SECOND * 60);
        assert!(add(None, "create", now).cloud_works().is_none(), "the load balancer exists");
        let busy = |before| Failing::add(before, &Arc::new("change"), failed(false, now));
        let waits = busy(None).cloud_works().expect("the step is still to do");
        assert_eq!(report(&waits, later), None);
        let again = busy(busy(Some(waits)).cloud_works());
        assert!(report(&again, now).is_some(), "failed three times");
        assert!(again.clone().planned(&"change").is_some() && again.planned(&"other").is_none());
    }

    #[test]
    fn next_try_is_not_earlier_than_the_end_of_a_pause() {
        let now = Instant::now();
        let failing = add(None, "create", now);
        let text = failing.failure().report(now + SECOND * 39, SECOND * 7).expect("it lasts");
        assert!(text.contains("; next try in about 7 s"), "{text}");
    }
}
