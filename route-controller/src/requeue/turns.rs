//! Whose condition is written first, when not all of them can be in one pass, and whose was just now. Time is an argument.
//!
//! Keeps nothing that the last pass did not ask for, so it is bounded by the nodes.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::plan::condition::{Change, Network};

/// For so long the mirror may lag behind what was written, and nothing is written twice.
const ECHO: Duration = Duration::from_secs(5);

/// Who had a turn, and in which order.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    n_turns: u64,
    /// By the node's UID.
    last: BTreeMap<String, u64>,
    /// By the node's UID, what was written and when, as long as the mirror does not show it.
    written: BTreeMap<String, (Network, Instant)>,
    /// When the oldest of those was written that the last pass would have written again.
    held_back: Option<Instant>,
}

impl Turns {
    /// Those that had no turn yet, then those that had theirs the longest ago, without what was written just now. Forgets all others.
    pub(crate) fn in_turn(&mut self, mut changes: Vec<Change>, now: Instant) -> Vec<Change> {
        let mut written = std::mem::take(&mut self.written);
        self.held_back = None;
        changes.retain(|change| match written.remove_entry(&change.node_uid) {
            Some((uid, (network, at))) if network == change.network && now < at + ECHO => {
                self.written.insert(uid, (network, at));
                self.held_back = self.held_back.into_iter().chain([at]).min();
                false
            }
            Some(_) | None => true,
        });
        let mut before = std::mem::take(&mut self.last);
        for change in &changes {
            self.last.extend(before.remove_entry(&change.node_uid));
        }
        // Stable: whoever is equal keeps the order of the plan.
        changes.sort_by_key(|change| self.last.get(&change.node_uid).copied());
        changes
    }

    /// It was written.
    pub(crate) fn wrote(&mut self, change: &Change, now: Instant) {
        self.written.insert(change.node_uid.clone(), (change.network, now));
    }

    /// After that the mirror has no excuse: if it still shows something else than was written, somebody wrote that.
    pub(crate) fn rest(&self, now: Instant) -> Option<Duration> {
        self.held_back.map(|written| (written + ECHO).duration_since(now))
    }

    /// It was tried, whatever came of it.
    pub(crate) fn had(&mut self, change: &Change) {
        self.n_turns = self.n_turns.saturating_add(1);
        self.last.insert(change.node_uid.clone(), self.n_turns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::condition::Network;

    fn changes(names: &str) -> Vec<Change> {
        let change = |name: char| Change {
            node_name: name.to_string(),
            node_uid: name.to_string(),
            network: Network::Available,
        };
        names.chars().map(change).collect()
    }

    fn order(turns: &mut Turns, names: &str) -> String {
        turns.in_turn(changes(names), Instant::now()).into_iter().map(|change| change.node_name).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_written_is_not_written_again_while_the_mirror_may_lag() {
        let mut turns = Turns::default();
        assert_eq!(order(&mut turns, "wx"), "wx");
        changes("wx").iter().for_each(|change| turns.wrote(change, Instant::now()));
        assert_eq!(turns.rest(Instant::now()), None);
        tokio::time::advance(ECHO / 2).await;
        assert_eq!(order(&mut turns, "wxy"), "y");
        assert_eq!(turns.rest(Instant::now()), Some(ECHO / 2));
        let other = Change { network: Network::Unavailable, ..changes("x").remove(0) };
        let changes = turns.in_turn(vec![changes("w").remove(0), other.clone()], Instant::now());
        assert_eq!(changes, [other], "another word is news");
        tokio::time::advance(ECHO / 2).await;
        assert_eq!(order(&mut turns, "w"), "w", "somebody else wrote it");
        assert_eq!(turns.rest(Instant::now()), None);
    }

    #[test]
    fn who_waited_longest_is_first_and_who_is_served_is_forgotten() {
        let mut turns = Turns::default();
        assert_eq!(order(&mut turns, "wxyz"), "wxyz");
        changes("xw").iter().for_each(|change| turns.had(change));
        assert_eq!(order(&mut turns, "wxyz"), "yzxw");
        changes("y").iter().for_each(|change| turns.had(change));
        assert_eq!(order(&mut turns, "wyz"), "zwy");
        assert_eq!(order(&mut turns, "wxyz"), "xzwy");
    }
}
