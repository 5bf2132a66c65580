//! The reasons to delay calls and writes for a Service. They do not depend on the state of the load balancer.

use std::time::Duration;

use super::{
    super::{
        Action,
        conditions::Conditions,
        service::{FINALIZER, Ingress, Service},
    },
    Event, LAG,
};

/// Delay before the third identical write. Each further identical write doubles the delay.
const FIRST_DELAY: Duration = Duration::from_secs(1);
const MAX_DELAY: Duration = Duration::from_mins(5);
/// If no identical write happens for this duration, the count starts again.
const RESET_AFTER: Duration = MAX_DELAY.saturating_mul(2);

/// Number of consecutive reconciles in which a call to the API server must fail before the failure is reported.
const LASTING_FAILURES: u32 = 3;

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Pacing {
    /// This controller's last write to the Service, kept until the cache shows the write.
    written: Option<Written>,
    status: Pace,
    finalizer: Pace,
    release: Pace,
    /// Time before which the adapter must not be called, at its own request. Counted from the start of the process.
    held_until: Option<Duration>,
    /// The call to the API server that failed in the last reconcile, and the number of consecutive reconciles in which it failed.
    failing: Option<(&'static str, u32)>,
    /// Time since which another controller's finalizer blocks the deletion.
    blocked_since: Option<Duration>,
}

#[derive(Clone, Debug, PartialEq)]
struct Written {
    /// The version of the Service in the cache at the time of the write.
    over: String,
    finalizer: bool,
    ingress: Vec<Ingress>,
    conditions: Conditions,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Write {
    Finalizer,
    Status,
    /// Only conditions.
    Conditions,
    /// Removes the finalizer.
    Release,
}

impl Pacing {
    /// Returns the Service as it is after the last write, even if the cache does not show that write yet. Otherwise the controller would
    /// repeat the write.
    pub(crate) fn overlay(&mut self, mut service: Service) -> Service {
        self.written.take_if(|written| written.over != service.version);
        if let Some(written) = &self.written {
            service.finalizer = written.finalizer;
            service.ingress.clone_from(&written.ingress);
            service.conditions.clone_from(&written.conditions);
        }
        service
    }

    /// Records that `service` was written. `service` has the version that the cache showed before the write.
    pub(crate) fn wrote(&mut self, write: Write, service: &Service, now: Duration) {
        match write {
            Write::Finalizer => self.finalizer.wrote(FINALIZER, now),
            Write::Status => self.status.wrote(&format!("{:?}", service.ingress), now),
            // No change of a condition triggers a reconcile, so no other client can cause a loop.
            Write::Conditions => (),
            // While the Service is being deleted, no client can restore its finalizer.
            Write::Release if service.deleting => (),
            Write::Release => self.release.wrote(FINALIZER, now),
        }
        self.written = Some(Written {
            over: service.version.clone(),
            finalizer: service.finalizer,
            ingress: service.ingress.clone(),
            conditions: service.conditions.clone(),
        });
    }

    /// Returns the remaining delay before this action may be executed. The adapter may have asked for the delay, or another client reverts
    /// the write each time.
    pub(super) fn delay(&self, action: &Action, service: &Service, now: Duration) -> Option<Duration> {
        match action {
            Action::AddFinalizer => self.finalizer.delay(FINALIZER, now),
            Action::Ensure(_) | Action::Delete(_) => self.held(now),
            Action::WriteStatus(ingress) => self.status.delay(&format!("{ingress:?}"), now),
            // A client that restores the finalizer each time also causes a deletion each time, so the delay must come before the deletion.
            Action::Release => self.release.delay(FINALIZER, now).filter(|_| !service.deleting),
            Action::Forget => None,
        }
    }

    /// Remaining time for which the removal of the finalizer is remembered, although a Service without finalizer is no longer managed.
    pub(crate) fn release_lasts(&self, now: Duration) -> Option<Duration> {
        rest(self.release.last.as_ref()?.at + RESET_AFTER, now)
    }

    /// Records a failed reconcile. Returns whether the same call to the API server failed in several consecutive reconciles; single
    /// failures are not reported. `hold`: the time for which the adapter must not be called, even if the Service changes.
    pub(crate) fn failed(
        &mut self,
        call: Option<&'static str>,
        hold: Option<Duration>,
        now: Duration,
    ) -> bool {
        self.held_until = hold.map(|delay| now + delay).or(self.held_until);
        call.is_some_and(|call| self.lasts(call))
    }

    /// Remaining delay before the adapter may be called.
    pub(crate) fn held(&self, now: Duration) -> Option<Duration> {
        self.held_until.and_then(|until| rest(until, now))
    }

    fn lasts(&mut self, call: &'static str) -> bool {
        let times = self.failing.filter(|(before, _)| *before == call).map_or(1, |(_, times)| times + 1);
        self.failing = Some((call, times.min(LASTING_FAILURES)));
        times >= LASTING_FAILURES
    }

    /// Returns the remaining grace period while another controller's finalizer blocks the deletion. `None`: the period is over, and the
    /// wait must be reported.
    pub(crate) fn grace_period(&mut self, now: Duration) -> Option<Duration> {
        let since = *self.blocked_since.get_or_insert(now);
        rest(since + LAG, now)
    }

    /// The delays after an event. They end when everything is in sync.
    pub(super) fn step(self, event: &Event<'_>) -> Self {
        if matches!(event, Event::InSync { .. }) {
            Self { held_until: None, failing: None, ..self }
        } else {
            self
        }
    }

    /// Forgets all but the last write and the pace of finalizer removals, because the load balancer is gone.
    pub(super) fn reset(self) -> Self {
        Self { written: self.written, release: self.release, ..Self::default() }
    }
}

/// Counts consecutive identical writes, to slow down a write that another client reverts each time. Otherwise both clients would write as
/// fast as their watches report changes.
#[derive(Clone, Debug, Default, PartialEq)]
struct Pace {
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
    fn wrote(&mut self, what: &str, now: Duration) {
        let times = self.of(what, now).map_or(1, |last| last.times.saturating_add(1));
        self.last = Some(Last { what: what.to_owned(), times, at: now });
    }

    /// Remaining delay before the same write may be made. The first write and its first repetition are not delayed.
    fn delay(&self, what: &str, now: Duration) -> Option<Duration> {
        let last = self.of(what, now)?;
        let doubled = 1_u32.checked_shl(last.times.checked_sub(2)?).unwrap_or(u32::MAX);
        rest(last.at + FIRST_DELAY.saturating_mul(doubled).min(MAX_DELAY), now)
    }

    fn of(&self, what: &str, now: Duration) -> Option<&Last> {
        self.last.as_ref().filter(|last| last.what == what && now.saturating_sub(last.at) < RESET_AFTER)
    }
}

/// Returns the time from `now` to `until`. `None`: `until` has passed.
pub(super) fn rest(until: Duration, now: Duration) -> Option<Duration> {
    until.checked_sub(now).filter(|rest| !rest.is_zero())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_writes_are_slowed_down_and_others_are_not() {
        let (mut pace, mut now, mut delays) = (Pace::default(), Duration::from_secs(100), Vec::new());
        for _ in 0..13 {
            let delay = pace.delay("a", now).unwrap_or_default();
            delays.push(delay.as_secs());
            now += delay;
            pace.wrote("a", now);
        }
        assert_eq!(delays, [0, 0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
        assert_eq!(pace.delay("b", now), None);
        assert_eq!(pace.delay("a", now + RESET_AFTER), None, "the other client has stopped");
        pace.wrote("b", now);
        assert_eq!(pace.delay("a", now), None);
    }
}
