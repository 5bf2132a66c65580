//! Events about lasting conditions. They are emitted when a condition begins, and re-emitted before the API server drops the Event.

use std::{collections::BTreeMap, time::Duration};

use controller_core::events::REMIND;

use super::{Fact, Memory, Topic};
use crate::plan::{Operation, members::Members};

/// The last Event of each topic.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Reported(BTreeMap<Topic, Said>);

#[derive(Clone, Debug, Default, PartialEq)]
struct Said {
    /// Identifies the current condition, because its text may vary.
    name: String,
    /// The emitted Events by the name of their condition, each with the time of its last emission since the start of the process.
    /// Conditions that alternate are emitted once each.
    told: BTreeMap<String, (Fact, Duration)>,
    /// Set while the last round saw the condition; seeing it again is not a change.
    stands: bool,
}

impl Said {
    fn current(&self) -> Option<&(Fact, Duration)> {
        self.told.get(&self.name)
    }

    fn current_mut(&mut self) -> Option<&mut (Fact, Duration)> {
        self.told.get_mut(&self.name)
    }
}

impl Reported {
    /// Returns the Event to emit now: because its condition was not reported recently, or as a reminder.
    pub(super) fn hears(&mut self, topic: Topic, name: &str, news: Fact, now: Duration) -> Vec<Fact> {
        let said = self.0.entry(topic).or_default();
        said.told.retain(|known, (_, at)| known == name || now.saturating_sub(*at) < REMIND);
        (said.name, said.stands) = (name.to_owned(), true);
        if said.current().is_some() {
            return self.again(topic, now).into_iter().collect();
        }
        said.told.insert(name.to_owned(), (news.clone(), now));
        vec![news]
    }

    /// Returns the last Event of this topic if it must be re-emitted by now.
    pub(super) fn again(&mut self, topic: Topic, now: Duration) -> Option<Fact> {
        let said = self.0.get_mut(&topic)?.current_mut();
        let (news, at) = said.filter(|(_, at)| now.saturating_sub(*at) >= REMIND)?;
        *at = now;
        Some(news.clone())
    }

    /// Records that the condition is over, so that the next one is reported at once.
    pub(super) fn over(&mut self, topic: Topic) {
        self.0.remove(&topic);
    }

    /// Begins a round, which must observe these conditions again.
    fn doubt(&mut self, topics: &[Topic]) {
        self.0
            .iter_mut()
            .filter(|(topic, _)| topics.contains(topic))
            .for_each(|(_, said)| said.stands = false);
    }

    /// All lasting conditions, and the time of the last report of each.
    fn troubles(&self) -> impl Iterator<Item = (&Fact, Duration)> {
        let lasting = self.0.iter().filter(|(topic, said)| **topic != Topic::Progress && said.stands);
        lasting.filter_map(|(_, said)| said.current().map(|(news, at)| (news, *at)))
    }

    /// Records when these conditions were re-emitted.
    fn reminded(&mut self, times: impl Iterator<Item = Duration>) {
        let lasting = self.0.iter_mut().filter(|(topic, said)| **topic != Topic::Progress && said.stands);
        let troubles = lasting.filter_map(|(_, said)| said.current_mut());
        troubles.zip(times).for_each(|((_, said), at)| *said = at);
    }
}

impl Memory {
    /// Returns the Event about a failure, if the failure differs from the last one or a reminder is due.
    pub(crate) fn trouble(&mut self, step: &Operation, text: &str, now: Duration) -> Vec<Fact> {
        self.trouble_named(Topic::of(step), text, Fact::Failed(step.clone(), text.to_owned()), now)
    }

    /// Like [`Self::trouble`], for a failure whose text varies between retries; `name` identifies the failure.
    pub(crate) fn trouble_named(&mut self, topic: Topic, name: &str, news: Fact, now: Duration) -> Vec<Fact> {
        self.told.hears(topic, name, news, now)
    }

    /// The lasting conditions, with their Events and the times at which these were emitted.
    pub(crate) fn troubles(&self) -> impl Iterator<Item = (&Fact, Duration)> {
        self.told.troubles()
    }

    /// Begins a round. `reminded`: when conditions were re-emitted since the last round. A refusal by the adapter lasts until the next
    /// call; this round must observe all other conditions again.
    pub(crate) fn looks(&mut self, reminded: impl Iterator<Item = Duration>) {
        self.told.reminded(reminded);
        self.told.doubt(&[Topic::Wish, Topic::Members, Topic::Release]);
        if !self.is_degraded() {
            self.told.doubt(&[Topic::Work]);
        }
    }

    /// Reports that the load balancer has more members than a new one may have. `None`: it does not.
    pub(crate) fn grown(&mut self, members: Option<Members>, now: Duration) -> Vec<Fact> {
        match members {
            Some(members) => self.trouble_named(Topic::Members, "", Fact::Grown(members), now),
            None => {
                self.told.over(Topic::Members);
                Vec::new()
            }
        }
    }

    /// Clears refusals of settings, because the Service no longer exists.
    pub(crate) fn wishes_nothing(&mut self) {
        self.told.over(Topic::Wish);
        self.told.over(Topic::Refused);
    }

    /// Returns the Event about a load balancer without a Service, unless it equals the last one.
    pub(crate) fn once(&mut self, news: Fact, now: Duration) -> Vec<Fact> {
        self.trouble_named(Topic::Work, &format!("{news:?}"), news, now)
    }

    /// Reports work that may take long.
    pub(super) fn begins(&mut self, news: Fact, now: Duration) -> Vec<Fact> {
        self.told.over(Topic::Progress);
        self.told.hears(Topic::Progress, "", news, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lasting_condition_is_re_emitted_with_first_text() {
        let (mut told, minute) = (Reported::default(), Duration::from_mins(1));
        let failed = |words: &str| Fact::Failed(Operation::Sync, words.to_owned());
        let mut hears =
            |minutes: u32, name, words| told.hears(Topic::Work, name, failed(words), minute * minutes);
        assert_eq!(hears(0, "throttled", "wait 3 s"), [failed("wait 3 s")]);
        assert_eq!(hears(29, "throttled", "wait 5 s"), []);
        assert_eq!(hears(30, "throttled", "wait 7 s"), [failed("wait 3 s")]);
        assert_eq!(hears(59, "throttled", "wait 9 s"), []);
        assert_eq!(hears(59, "quota", "full"), [failed("full")]);
        assert_eq!(hears(60, "quota", "full"), []);
        assert_eq!(told.troubles().count(), 1);
        told.doubt(&[Topic::Work]);
        assert_eq!(told.troubles().count(), 0, "the round has not found it again");
        assert_eq!(
            told.hears(Topic::Work, "quota", failed("full"), minute * 61),
            [],
            "finding it again is not a change"
        );
        assert_eq!(told.troubles().count(), 1);
        assert_eq!(
            told.hears(Topic::Work, "throttled", failed("wait 9 s"), minute * 62),
            [failed("wait 9 s")]
        );
        assert_eq!(
            told.hears(Topic::Work, "quota", failed("full"), minute * 63),
            [],
            "conditions that alternate"
        );
        assert_eq!(told.troubles().next(), Some((&failed("full"), minute * 59)));
        told.over(Topic::Work);
        assert_eq!(told.again(Topic::Work, minute * 99), None);
        assert_eq!(told.troubles().count(), 0);
    }
}
