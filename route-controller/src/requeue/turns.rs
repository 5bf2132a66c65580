//! Whose condition is written first, when not all of them can be in one pass.
//!
//! Keeps nothing that the last pass did not ask for, so it is bounded by the nodes.

use std::collections::BTreeMap;

use crate::plan::condition::Change;

/// Who had a turn, and in which order.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    n_turns: u64,
    /// By the node's UID.
    last: BTreeMap<String, u64>,
}

impl Turns {
    /// Those that had no turn yet, then those that had theirs the longest ago. Forgets all others.
    pub(crate) fn in_turn(&mut self, mut changes: Vec<Change>) -> Vec<Change> {
        let mut before = std::mem::take(&mut self.last);
        for change in &changes {
            self.last.extend(before.remove_entry(&change.node_uid));
        }
        // Stable: whoever is equal keeps the order of the plan.
        changes.sort_by_key(|change| self.last.get(&change.node_uid).copied());
        changes
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
        turns.in_turn(changes(names)).into_iter().map(|change| change.node_name).collect()
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
