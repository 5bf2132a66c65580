//! What people were told and lasts: told when it begins, and again before the API server forgets it.

use std::{collections::BTreeMap, time::Duration};

use controller_core::events::REMIND;

use super::{Memory, News, Topic};
use crate::plan::{Step, members::Members};

/// The last word on each topic.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Told(BTreeMap<Topic, Said>);

#[derive(Clone, Debug, Default, PartialEq)]
struct Said {
    /// Which trouble it is now, though its words may vary.
    name: String,
    /// By name: the words that were told, which a reminder repeats, and when they were told last, since the start of the process. Troubles
    /// that take turns are told once each.
    told: BTreeMap<String, (News, Duration)>,
    /// As far as the last look found. Who finds it again later has no news.
    stands: bool,
}

impl Said {
    fn current(&self) -> Option<&(News, Duration)> {
        self.told.get(&self.name)
    }

    fn current_mut(&mut self) -> Option<&mut (News, Duration)> {
        self.told.get_mut(&self.name)
    }
}

impl Told {
    /// What of this people shall hear now: it is another trouble than those of late, or was told long ago.
    pub(super) fn hears(&mut self, topic: Topic, name: &str, news: News, now: Duration) -> Vec<News> {
        let said = self.0.entry(topic).or_default();
        said.told.retain(|known, (_, at)| known == name || now.saturating_sub(*at) < REMIND);
        (said.name, said.stands) = (name.to_owned(), true);
        if said.current().is_some() {
            return self.again(topic, now).into_iter().collect();
        }
        said.told.insert(name.to_owned(), (news.clone(), now));
        vec![news]
    }

    /// What was told of this topic, if that is long ago.
    pub(super) fn again(&mut self, topic: Topic, now: Duration) -> Option<News> {
        let said = self.0.get_mut(&topic)?.current_mut();
        let (news, at) = said.filter(|(_, at)| now.saturating_sub(*at) >= REMIND)?;
        *at = now;
        Some(news.clone())
    }

    /// It is over: the next trouble is news again.
    pub(super) fn over(&mut self, topic: Topic) {
        self.0.remove(&topic);
    }

    /// A look begins that finds these anew, if they last.
    fn doubt(&mut self, topics: &[Topic]) {
        self.0
            .iter_mut()
            .filter(|(topic, _)| topics.contains(topic))
            .for_each(|(_, said)| said.stands = false);
    }

    /// All troubles that last, and when each was told.
    fn troubles(&self) -> impl Iterator<Item = (&News, Duration)> {
        let lasting = self.0.iter().filter(|(topic, said)| **topic != Topic::Progress && said.stands);
        lasting.filter_map(|(_, said)| said.current().map(|(news, at)| (news, *at)))
    }

    /// These troubles were told again meanwhile, each at its time.
    fn reminded(&mut self, times: impl Iterator<Item = Duration>) {
        let lasting = self.0.iter_mut().filter(|(topic, said)| **topic != Topic::Progress && said.stands);
        let troubles = lasting.filter_map(|(_, said)| said.current_mut());
        troubles.zip(times).for_each(|((_, said), at)| *said = at);
    }
}

impl Memory {
    /// A trouble, if it is another one than last time or lasts.
    pub(crate) fn trouble(&mut self, step: &Step, text: &str, now: Duration) -> Vec<News> {
        self.trouble_named(Topic::of(step), text, News::Failed(step.clone(), text.to_owned()), now)
    }

    /// A trouble whose text may vary from try to try; only its name tells whether it is another one.
    pub(crate) fn trouble_named(&mut self, topic: Topic, name: &str, news: News, now: Duration) -> Vec<News> {
        self.told.hears(topic, name, news, now)
    }

    /// The troubles that last, as they were told, and when.
    pub(crate) fn troubles(&self) -> impl Iterator<Item = (&News, Duration)> {
        self.told.troubles()
    }

    /// A look begins. The troubles that last were told again since the last one, each at its time. What the adapter said once, and will not
    /// be asked about for now, lasts until it is asked again; all else this look finds anew or not.
    pub(crate) fn looks(&mut self, reminded: impl Iterator<Item = Duration>) {
        self.told.reminded(reminded);
        self.told.doubt(&[Topic::Wish, Topic::Members, Topic::Release]);
        if !self.is_degraded() {
            self.told.doubt(&[Topic::Work]);
        }
    }

    /// It has so many members, more than a new one may have. `None`: it has not.
    pub(crate) fn grown(&mut self, members: Option<Members>, now: Duration) -> Vec<News> {
        match members {
            Some(members) => self.trouble_named(Topic::Members, "", News::Grown(members), now),
            None => {
                self.told.over(Topic::Members);
                Vec::new()
            }
        }
    }

    /// There is no Service any more that could wish for something.
    pub(crate) fn wishes_nothing(&mut self) {
        self.told.over(Topic::Wish);
        self.told.over(Topic::Refused);
    }

    /// Something about load balancers without a Service, if it is not what people were told last.
    pub(crate) fn once(&mut self, news: News, now: Duration) -> Vec<News> {
        self.trouble_named(Topic::Work, &format!("{news:?}"), news, now)
    }

    /// Something begins that may take long.
    pub(super) fn begins(&mut self, news: News, now: Duration) -> Vec<News> {
        self.told.over(Topic::Progress);
        self.told.hears(Topic::Progress, "", news, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lasts_is_told_again_in_the_words_of_the_first_time() {
        let (mut told, minute) = (Told::default(), Duration::from_mins(1));
        let failed = |words: &str| News::Failed(Step::Sync, words.to_owned());
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
        assert_eq!(told.troubles().count(), 0, "nobody has found it again");
        assert_eq!(
            told.hears(Topic::Work, "quota", failed("full"), minute * 61),
            [],
            "and if so it is no news"
        );
        assert_eq!(told.troubles().count(), 1);
        assert_eq!(
            told.hears(Topic::Work, "throttled", failed("wait 9 s"), minute * 62),
            [failed("wait 9 s")]
        );
        assert_eq!(told.hears(Topic::Work, "quota", failed("full"), minute * 63), [], "they take turns");
        assert_eq!(told.troubles().next(), Some((&failed("full"), minute * 59)));
        told.over(Topic::Work);
        assert_eq!(told.again(Topic::Work, minute * 99), None);
        assert_eq!(told.troubles().count(), 0);
    }
}
