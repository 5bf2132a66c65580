//! Keeps the order of condition writes for passes that cannot make all writes, and keeps the writes that the cache does not show yet. Time
//! is an argument.
//!
//! Entries that the last pass does not need are dropped, so the number of nodes bounds the number of entries.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::plan::condition::{Change, Network};

/// Maximum lag of the cache behind a write. No write is repeated within this time.
const CACHE_LAG: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
pub(crate) struct WriteOrder {
    n_attempts: u64,
    /// The sequence number of the last attempt, by the node's UID.
    last: BTreeMap<String, u64>,
    /// The last written value and its time, by the node's UID, while the cache does not show the write.
    written: BTreeMap<String, (Network, Instant)>,
    /// The oldest write that the last pass skipped because the cache lags.
    held_back: Option<Instant>,
}

impl WriteOrder {
    /// Sorts changes: changes without an attempt come first, then the changes that waited longest. Leaves out recent writes, and drops the
    /// state of all other nodes.
    pub(crate) fn sort(&mut self, mut changes: Vec<Change>, now: Instant) -> Vec<Change> {
        let mut written = std::mem::take(&mut self.written);
        self.held_back = None;
        changes.retain(|change| match written.remove_entry(&change.node_uid) {
            Some((uid, (network, at))) if network == change.network && now < at + CACHE_LAG => {
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
        // The sort is stable: changes without an earlier attempt keep the order of the plan.
        changes.sort_by_key(|change| self.last.get(&change.node_uid).copied());
        changes
    }

    pub(crate) fn wrote(&mut self, change: &Change, now: Instant) {
        self.written.insert(change.node_uid.clone(), (change.network, now));
    }

    /// Returns the time until the cache must show the writes. If the cache still differs then, another client has overwritten the writes.
    pub(crate) fn rest(&self, now: Instant) -> Option<Duration> {
        self.held_back.map(|written| (written + CACHE_LAG).duration_since(now))
    }

    /// Records an attempt with any outcome.
    pub(crate) fn attempted(&mut self, change: &Change) {
        self.n_attempts = self.n_attempts.saturating_add(1);
        self.last.insert(change.node_uid.clone(), self.n_attempts);
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

    fn order(turns: &mut WriteOrder, names: &str) -> String {
        turns.sort(changes(names), Instant::now()).into_iter().map(|change| change.node_name).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn write_is_not_repeated_while_the_cache_may_lag() {
        let mut turns = WriteOrder::default();
        assert_eq!(order(&mut turns, "wx"), "wx");
        changes("wx").iter().for_each(|change| turns.wrote(change, Instant::now()));
        assert_eq!(turns.rest(Instant::now()), None);
        tokio::time::advance(CACHE_LAG / 2).await;
        assert_eq!(order(&mut turns, "wxy"), "y");
        assert_eq!(turns.rest(Instant::now()), Some(CACHE_LAG / 2));
        let other = Change { network: Network::Unavailable, ..changes("x").remove(0) };
        let changes = turns.sort(vec![changes("w").remove(0), other.clone()], Instant::now());
        assert_eq!(changes, [other], "a different value is written");
        tokio::time::advance(CACHE_LAG / 2).await;
        assert_eq!(order(&mut turns, "w"), "w", "another client overwrote it");
        assert_eq!(turns.rest(Instant::now()), None);
    }

    #[test]
    fn longest_waiting_node_is_first() {
        let mut turns = WriteOrder::default();
        assert_eq!(order(&mut turns, "wxyz"), "wxyz");
        changes("xw").iter().for_each(|change| turns.attempted(change));
        assert_eq!(order(&mut turns, "wxyz"), "yzxw");
        changes("y").iter().for_each(|change| turns.attempted(change));
        assert_eq!(order(&mut turns, "wyz"), "zwy");
        assert_eq!(order(&mut turns, "wxyz"), "xzwy");
    }
}
