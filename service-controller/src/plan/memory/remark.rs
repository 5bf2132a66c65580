//! What people hear once, though it is as true at each look and after each restart.

/// Something to say that is no trouble, and that may change.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Remark<T> {
    /// As it was at the last look. `None`: there was none.
    seen: Option<T>,
    /// As it was told last.
    told: Option<T>,
}

impl<T> Default for Remark<T> {
    fn default() -> Self {
        Self { seen: None, told: None }
    }
}

impl<T: Clone + PartialEq> Remark<T> {
    /// Whether people shall hear of it as it is now: it became so while we watched, or something is made and they hear of that, too.
    ///
    /// At a first look at what is there already they heard of it from an earlier process.
    pub(super) fn is_news(&mut self, now: &T, builds: bool) -> bool {
        let changed = self.seen.as_ref().is_some_and(|seen| seen != now);
        let news = (changed || builds) && self.told.as_ref() != Some(now);
        if changed || self.seen.is_none() {
            self.seen = Some(now.clone());
        }
        if news {
            self.told = Some(now.clone());
        }
        news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_told_when_something_is_made_or_when_it_changes_and_then_no_more() {
        let mut remark = Remark::default();
        let looks =
            [("a", false), ("a", true), ("a", true), ("b", false), ("b", false), ("a", false), ("a", true)];
        let news: Vec<bool> = looks.iter().map(|(now, builds)| remark.is_news(now, *builds)).collect();
        assert_eq!(news, [false, true, false, true, false, true, false]);
    }
}
