//! Decides how a failed reconcile is reported. This module is pure.

use std::time::Duration;

use controller_core::Again;

use super::{
    Fact,
    conditions::Readiness,
    memory::{Memory, Topic},
};

/// Delay before the next reconcile while the adapter is away for a short time.
const QUIET_DELAY: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reporting {
    /// Another replica has a newer fence. This process stops and emits no Events for individual Services.
    Stop,
    /// The adapter has been away for less than the grace period, which is not reported.
    Quiet,
    /// Another part of the controller reports the error if it lasts.
    Elsewhere,
    Log,
    Event,
}

/// An error that ended a reconcile, reduced to what its report depends on.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) topic: Topic,
    /// Identifies the error.
    pub(crate) name: String,
    pub(crate) fact: Fact,
    /// What the error means for the conditions. `None`: nothing.
    pub(crate) readiness: Option<Readiness>,
    pub(crate) again: Again,
}

/// What to do about an error, apart from its log line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) event: Option<Fact>,
    /// Whether this Event has the text of this error. A reminder repeats the text of an earlier Event.
    pub(crate) is_current: bool,
    pub(crate) again: Again,
}

/// Decides what to do about an error. The memory keeps when an Event about the error was emitted, and what the error means for the
/// conditions.
pub(crate) fn report(memory: &mut Memory, reporting: Reporting, failure: Failure, now: Duration) -> Report {
    let Failure { topic, name, fact, readiness, again } = failure;
    match reporting {
        Reporting::Stop | Reporting::Elsewhere | Reporting::Log => {
            Report { event: None, is_current: false, again }
        }
        Reporting::Quiet => Report { event: None, is_current: false, again: Again::After(QUIET_DELAY) },
        Reporting::Event => {
            memory.readiness = readiness.or(memory.readiness.take());
            let event = memory.reported.report(topic, &name, fact.clone(), now);
            Report { is_current: event.as_ref() == Some(&fact), event, again }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Operation;

    fn fact(text: &str) -> Fact {
        Fact::Failed(Operation::Sync, text.to_owned())
    }

    fn failure(text: &str) -> Failure {
        Failure {
            topic: Topic::Work,
            name: "away".to_owned(),
            fact: fact(text),
            readiness: Some(Readiness::failing("Away", text)),
            again: Again::Backoff,
        }
    }

    #[test]
    fn only_reported_errors_have_events_and_conditions() {
        for (reporting, again, emits) in [
            (Reporting::Stop, Again::Backoff, false),
            (Reporting::Quiet, Again::After(QUIET_DELAY), false),
            (Reporting::Elsewhere, Again::Backoff, false),
            (Reporting::Log, Again::Backoff, false),
            (Reporting::Event, Again::Backoff, true),
        ] {
            let mut memory = Memory::default();
            let event = emits.then(|| fact("a"));
            let want = Report { event, is_current: emits, again };
            assert_eq!(report(&mut memory, reporting, failure("a"), Duration::ZERO), want, "{reporting:?}");
            assert_eq!(memory.readiness.is_some(), emits, "{reporting:?}");
        }
    }

    #[test]
    fn reminder_has_the_text_of_the_first_event() {
        let mut memory = Memory::default();
        let mut at = |minutes, text| {
            let now = Duration::from_mins(minutes);
            let Report { event, is_current, .. } = report(&mut memory, Reporting::Event, failure(text), now);
            (event, is_current)
        };
        assert_eq!(at(0, "wait 3 s"), (Some(fact("wait 3 s")), true));
        assert_eq!(at(1, "wait 5 s"), (None, false));
        assert_eq!(at(30, "wait 7 s"), (Some(fact("wait 3 s")), false));
    }

    #[test]
    fn error_without_a_condition_keeps_what_was_found_out() {
        let (mut memory, found) = (Memory::default(), Some(Readiness::Pending));
        memory.readiness.clone_from(&found);
        let failure = Failure { readiness: None, ..failure("a") };
        report(&mut memory, Reporting::Event, failure, Duration::ZERO);
        assert_eq!(memory.readiness, found);
    }
}
