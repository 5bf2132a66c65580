//! The last changes of a collection, numbered by position. A slow watch continues from the position that it has reached. If later changes
//! were already dropped, the watch is reset.

use std::{collections::VecDeque, sync::Arc};

/// Maximum number of changes. A watch that is further behind gets a RESET, so no unlimited buffer is needed.
const KEPT: usize = 4096;

/// An added, changed or removed item. Its current state is in the collection. Watches do not need intermediate states, which would take too
/// much memory.
#[derive(Debug)]
pub(super) struct Change<T> {
    pub(super) key: String,
    /// The former state. It is for watches that included the item before and may not include the item now.
    pub(super) old: Option<Arc<T>>,
}

impl<T> Clone for Change<T> {
    fn clone(&self) -> Self {
        Self { key: self.key.clone(), old: self.old.clone() }
    }
}

/// Positions count from the start of the process.
#[derive(Debug)]
pub(super) struct Log<T> {
    changes: VecDeque<Change<T>>,
    end: u64,
}

impl<T> Default for Log<T> {
    fn default() -> Self {
        Self { changes: VecDeque::new(), end: 0 }
    }
}

impl<T> Log<T> {
    pub(super) fn push(&mut self, change: Change<T>) {
        if self.changes.len() == KEPT {
            self.changes.pop_front();
        }
        self.changes.push_back(change);
        self.end += 1;
    }

    /// Interrupts the sequence, so that watches at earlier positions are reset.
    pub(super) fn interrupt(&mut self) {
        self.changes.clear();
        self.end += 1;
    }

    /// Returns the position after the newest change.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// Returns at most `max` changes from `position` on. `None`: some of these changes were dropped, or the position belongs to another
    /// process.
    pub(super) fn since(&self, position: u64, max: usize) -> Option<Vec<Change<T>>> {
        let behind = usize::try_from(self.end.checked_sub(position)?).ok()?;
        let skip = self.changes.len().checked_sub(behind)?;
        Some(self.changes.iter().skip(skip).take(max).cloned().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(changes: usize) -> Log<()> {
        let mut log = Log::default();
        for number in 0..changes {
            log.push(Change { key: number.to_string(), old: None });
        }
        log
    }

    #[test]
    fn a_reader_goes_on_where_it_was() {
        let changes = log(10).since(7, 2).expect("kept");
        let keys: Vec<_> = changes.iter().map(|change| change.key.as_str()).collect();
        assert_eq!(keys, ["7", "8"]);
    }

    #[test]
    fn reader_too_far_behind_or_foreign_is_reset() {
        let log = log(KEPT + 5);
        assert!(log.since(4, 1).is_none(), "dropped");
        assert!(log.since(5, 1).is_some(), "the oldest kept");
        assert!(log.since(KEPT as u64 + 6, 1).is_none(), "in the future");
    }
}
