//! Events about lasting conditions. They are emitted when a condition begins, and re-emitted before the API server drops the Event.

use std::{collections::BTreeMap, time::Duration};

use controller_core::{
    Again,
    events::{REMIND, Repeat, gist},
};

use super::super::{Fact, Operation, cloud::WriteFailure, foreign::Foreign, members::Members};

/// Minimum duration of a wait for the call budget that is reported.
const LONG_WAIT: Duration = Duration::from_secs(10);

/// What an Event is about. Each topic has at most one lasting condition, which is reported at its beginning and then at intervals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Topic {
    /// The Service's settings are invalid.
    Wish,
    /// The adapter refuses the Service's settings.
    Refused,
    /// Any other failure.
    Work,
    /// The backends could not be updated after a change of nodes.
    Hosts,
    /// The load balancer has more members than a new load balancer may have.
    Members,
    /// An entry of the ConfigMap that releases orphans is invalid.
    Release,
    /// Progress of the creation or deletion of a load balancer, which is slow but has not failed.
    Progress,
    /// The wait of the current work for the call budget, which is not a failure.
    Budget,
}

impl Topic {
    pub(crate) fn of(step: &Operation) -> Self {
        match step {
            Operation::Sync | Operation::LeftOver => Self::Work,
            Operation::Hosts(_) => Self::Hosts,
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Reported {
    conditions: BTreeMap<Topic, Condition>,
    budget: BudgetWaits,
    foreign: OneTimeEvent<Foreign>,
    /// Whether the adapter chose the load balancer's name because it does not support the template.
    unnamed: OneTimeEvent<bool>,
}

#[derive(Clone, Debug, PartialEq)]
struct Condition {
    /// The name that identifies the current condition. The text of a condition may vary.
    name: String,
    /// The first Event of each condition, keyed by the condition's name. If several conditions alternate, each is emitted once.
    facts: BTreeMap<String, Fact>,
    /// The names of the emitted conditions, and the times since the start of the process.
    emitted: Repeat<String, Duration>,
    /// Whether the last reconcile observed the condition. Observing the condition again is then not a change. Never set for work in
    /// progress.
    lasts: bool,
}

impl Condition {
    fn new() -> Self {
        Self { name: String::new(), facts: BTreeMap::new(), emitted: Repeat::every(REMIND), lasts: false }
    }

    fn emit(&mut self, now: Duration) -> Option<Fact> {
        if !self.emitted.is_due(&self.name, now) {
            return None;
        }
        self.emitted.reported(self.name.clone(), now);
        self.facts.get(&self.name).cloned()
    }

    fn current(&self) -> Option<(&Fact, Duration)> {
        self.facts.get(&self.name).zip(self.emitted.last(&self.name))
    }
}

impl Reported {
    /// Returns the Event about a condition if the Event is due, because it was not emitted recently or as a reminder. `name` identifies the
    /// condition.
    pub(crate) fn report(&mut self, topic: Topic, name: &str, fact: Fact, now: Duration) -> Option<Fact> {
        let condition = self.conditions.entry(topic).or_insert_with(Condition::new);
        condition.name = name.to_owned();
        condition.lasts = !matches!(topic, Topic::Progress | Topic::Budget);
        let Condition { facts, emitted, .. } = condition;
        emitted.end(now, |known| known == name, |_alternates| true);
        facts.retain(|known, _fact| emitted.last(known).is_some());
        facts.entry(name.to_owned()).or_insert(fact);
        condition.emit(now)
    }

    /// Like [`Self::report`], for a failure that is identified by its text.
    pub(crate) fn report_failure(&mut self, step: &Operation, text: &str, now: Duration) -> Option<Fact> {
        self.report(Topic::of(step), text, Fact::Failed(step.clone(), text.to_owned()), now)
    }

    /// Like [`Self::report`], for a vendor write that fails repeatedly. The name matches that of the adapter's error if the task ends with
    /// the same failure.
    pub(crate) fn report_write(
        &mut self,
        step: &Operation,
        failure: &WriteFailure,
        now: Duration,
    ) -> Option<Fact> {
        let fact = Fact::WriteFailed(step.clone(), failure.clone());
        self.report(Topic::of(step), &gist(&failure.error), fact, now)
    }

    /// Like [`Self::report`], for a condition that only a user, an operator or another controller can change.
    pub(crate) fn report_wait(&mut self, fact: Fact, now: Duration) -> Option<Fact> {
        self.report(Topic::Work, &format!("{fact:?}"), fact, now)
    }

    /// Reports the beginning of work that may take long.
    pub(super) fn begin(&mut self, fact: Fact, now: Duration) -> Option<Fact> {
        self.resolve(Topic::Progress);
        self.report(Topic::Progress, "", fact, now)
    }

    /// Returns the Events about the work in progress that are due. `budget`: the adapter's text if the load balancer waits for the call
    /// budget.
    pub(super) fn progress(&mut self, budget: Option<String>, now: Duration) -> Vec<Fact> {
        let progress = self.conditions.get_mut(&Topic::Progress).and_then(|condition| condition.emit(now));
        let text = self.budget.answered(budget, now);
        let waits = text.and_then(|text| self.report(Topic::Budget, "", Fact::WaitsForBudget(text), now));
        progress.into_iter().chain(waits).collect()
    }

    pub(super) fn end(&mut self) {
        self.resolve(Topic::Progress);
        self.resolve(Topic::Budget);
        self.budget = BudgetWaits::default();
    }

    /// Records that the condition is over, so that the next condition of this topic is reported at once.
    pub(crate) fn resolve(&mut self, topic: Topic) {
        self.conditions.remove(&topic);
    }

    /// Begins a reconcile. `reminded` contains the times at which conditions were re-emitted since the last reconcile. A refusal by the
    /// adapter and a degraded state last until the next call. This reconcile must observe all other conditions again.
    pub(super) fn begin_round(&mut self, reminded: impl Iterator<Item = Duration>, degraded: bool) {
        let lasting = self.conditions.values_mut().filter(|condition| condition.lasts);
        lasting.zip(reminded).for_each(|(it, at)| it.emitted.reported(it.name.clone(), at));
        for (topic, condition) in &mut self.conditions {
            condition.lasts &= match topic {
                Topic::Wish | Topic::Members | Topic::Release => false,
                Topic::Work => degraded,
                Topic::Refused | Topic::Hosts | Topic::Progress | Topic::Budget => true,
            };
        }
    }

    /// Returns the lasting conditions whose Events must be re-emitted until the next reconcile, with the time of each last report. Nothing
    /// else re-triggers these Events. `again`: when the Service is reconciled again; a retry emits its own Events.
    pub(crate) fn to_remind(&self, again: Again) -> impl Iterator<Item = (&Fact, Duration)> {
        let rests = matches!(again, Again::Done | Again::OnChange);
        self.problems().filter(move |_| rests)
    }

    fn problems(&self) -> impl Iterator<Item = (&Fact, Duration)> {
        self.conditions.values().filter(|condition| condition.lasts).filter_map(Condition::current)
    }

    /// Returns the Event about a load balancer that exceeds the member limit for new load balancers, if the Event is due. `members` is
    /// `None` if the limit is not exceeded.
    pub(crate) fn report_members(&mut self, members: Option<Members>, now: Duration) -> Option<Fact> {
        let Some(members) = members else {
            self.resolve(Topic::Members);
            return None;
        };
        self.report(Topic::Members, "", Fact::Grown(members), now)
    }

    /// Returns the informational Events about annotations of another controller, and about a name that differs from the template. `builds`:
    /// whether the plan creates or changes a load balancer, so that other Events of the Service are emitted, too.
    pub(crate) fn informational_facts(
        &mut self,
        foreign: &Foreign,
        unnamed: Option<bool>,
        builds: bool,
    ) -> Vec<Fact> {
        let mut facts = Vec::new();
        let foreign = Foreign { refusals: Vec::new(), ..foreign.clone() };
        if self.foreign.is_due(&foreign, builds) {
            let Foreign { understood, ignored, .. } = foreign;
            let rows = [(understood, Fact::Compatible as fn(_) -> _), (ignored, Fact::Ignored)];
            facts.extend(
                rows.into_iter().filter(|(lines, _)| !lines.is_empty()).map(|(lines, fact)| fact(lines)),
            );
        }
        if let Some(unnamed) = unnamed
            && self.unnamed.is_due(&unnamed, builds)
            && unnamed
        {
            facts.push(Fact::Unnamed);
        }
        facts
    }
}

/// Measures how long the work in progress waits for the call budget. A wait is reported when it becomes long.
#[derive(Clone, Debug, Default, PartialEq)]
struct BudgetWaits {
    /// Time of the last call, since the start of the process. Set only if the load balancer waited for the budget at that time.
    since: Option<Duration>,
    waited: Duration,
}

impl BudgetWaits {
    /// Processes an answer of the adapter. `text` is the adapter's text if the load balancer waits for the budget. Returns the text if the
    /// wait is long.
    fn answered(&mut self, text: Option<String>, now: Duration) -> Option<String> {
        if let Some(since) = self.since {
            self.waited = self.waited.saturating_add(now.saturating_sub(since));
        }
        self.since = text.as_ref().map(|_| now);
        text.filter(|_| self.waited >= LONG_WAIT)
    }
}

/// An informational Event. It is emitted once, although each reconcile, also after a restart, observes its cause again.
#[derive(Clone, Debug, PartialEq)]
struct OneTimeEvent<T> {
    /// The cause that was observed last. `None`: nothing was observed yet.
    seen: Option<T>,
    emitted: Option<T>,
}

impl<T> Default for OneTimeEvent<T> {
    fn default() -> Self {
        Self { seen: None, emitted: None }
    }
}

impl<T: Clone + PartialEq> OneTimeEvent<T> {
    /// Whether to emit the Event. It is emitted if its cause changed since an earlier observation. It is also emitted while the load
    /// balancer is built, together with other Events.
    ///
    /// When an existing load balancer is observed for the first time, an earlier process has already emitted the Event.
    fn is_due(&mut self, now: &T, builds: bool) -> bool {
        let changed = self.seen.as_ref().is_some_and(|seen| seen != now);
        let is_due = (changed || builds) && self.emitted.as_ref() != Some(now);
        if changed || self.seen.is_none() {
            self.seen = Some(now.clone());
        }
        if is_due {
            self.emitted = Some(now.clone());
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lasting_condition_is_re_emitted_with_first_text() {
        let (mut reported, minute) = (Reported::default(), Duration::from_mins(1));
        let failed = |text: &str| Fact::Failed(Operation::Sync, text.to_owned());
        let mut report =
            |minutes: u32, name, text| reported.report(Topic::Work, name, failed(text), minute * minutes);
        assert_eq!(report(0, "throttled", "wait 3 s"), Some(failed("wait 3 s")));
        assert_eq!(report(29, "throttled", "wait 5 s"), None);
        assert_eq!(report(30, "throttled", "wait 7 s"), Some(failed("wait 3 s")));
        assert_eq!(report(59, "throttled", "wait 9 s"), None);
        assert_eq!(report(59, "quota", "full"), Some(failed("full")));
        assert_eq!(report(60, "quota", "full"), None);
        assert_eq!(reported.problems().count(), 1);
        reported.begin_round([].into_iter(), false);
        assert_eq!(reported.problems().count(), 0, "the round has not found it again");
        let mut report =
            |minutes: u32, name, text| reported.report(Topic::Work, name, failed(text), minute * minutes);
        assert_eq!(report(61, "quota", "full"), None, "finding it again is not a change");
        assert_eq!(report(62, "throttled", "wait 9 s"), Some(failed("wait 9 s")));
        assert_eq!(report(63, "quota", "full"), None, "conditions that alternate");
        let problem = Some((&failed("full"), minute * 59));
        for (again, want) in [
            (Again::Done, problem),
            (Again::OnChange, problem),
            (Again::Backoff, None),
            (Again::After(minute), None),
        ] {
            assert_eq!(reported.to_remind(again).next(), want, "a retry emits its own Events: {again:?}");
        }
        reported.resolve(Topic::Work);
        assert_eq!(reported.problems().count(), 0);
    }

    // Behaviour: S21
    #[test]
    fn informational_event_only_on_build_or_change() {
        let mut event = OneTimeEvent::default();
        let rounds =
            [("a", false), ("a", true), ("a", true), ("b", false), ("b", false), ("a", false), ("a", true)];
        let due: Vec<bool> = rounds.iter().map(|(now, builds)| event.is_due(now, *builds)).collect();
        assert_eq!(due, [false, true, false, true, false, true, false]);
    }
}
