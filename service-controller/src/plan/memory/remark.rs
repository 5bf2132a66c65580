//! Events that are emitted once, although each round, and each restart, observes their cause again.

/// An informational Event whose cause may change.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Remark<T> {
    /// The cause in the last round. `None`: there was no round.
    seen: Option<T>,
    /// The cause in the last Event.
    told: Option<T>,
}

impl<T> Default for Remark<T> {
    fn default() -> Self {
        Self { seen: None, told: None }
    }
}

impl<T: Clone + PartialEq> Remark<T> {
    /// Whether to emit the Event: its cause changed since an earlier round, or the load balancer is built now, which emits other Events,
    /// too.
    ///
    /// In the first round for an existing load balancer, an earlier process has already emitted the Event.
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

    // Behaviour: S21
    #[test]
    fn informational_event_only_on_build_or_change() {
        let mut remark = Remark::default();
        let looks =
            [("a", false), ("a", true), ("a", true), ("b", false), ("b", false), ("a", false), ("a", true)];
        let news: Vec<bool> = looks.iter().map(|(now, builds)| remark.is_news(now, *builds)).collect();
        assert_eq!(news, [false, true, false, true, false, true, false]);
    }
}
