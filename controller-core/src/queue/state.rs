//! What the queue knows: pure, every time is an argument.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use tokio::time::Instant;

use super::Backoff;
use crate::Again;

/// A key is in at most one of `ready` and `delayed`; a running key may be in `dirty` or `delayed` besides.
#[derive(Debug)]
pub(super) struct State<K> {
    /// In the order in which they were added.
    ready: VecDeque<K>,
    /// The same keys, and since when they wait.
    added: BTreeMap<K, Instant>,
    running: BTreeMap<K, Instant>,
    /// Added while running: ready again when that is over.
    dirty: BTreeSet<K>,
    delayed: BTreeMap<K, Instant>,
    /// The same keys by time.
    timers: BTreeSet<(Instant, K)>,
    /// Failures in a row.
    failures: BTreeMap<K, u32>,
}

/// A key whose turn it is.
#[derive(Debug)]
pub(super) struct Taken<K> {
    pub(super) key: K,
    pub(super) added: Instant,
    pub(super) failures: u32,
}

impl<K> Default for State<K> {
    fn default() -> Self {
        Self {
            ready: VecDeque::new(),
            added: BTreeMap::new(),
            running: BTreeMap::new(),
            dirty: BTreeSet::new(),
            delayed: BTreeMap::new(),
            timers: BTreeSet::new(),
            failures: BTreeMap::new(),
        }
    }
}

impl<K: Ord + Clone> State<K> {
    /// Whether that made a difference.
    pub(super) fn add(&mut self, key: K, now: Instant) -> bool {
        self.cancel_timer(&key);
        if self.running.contains_key(&key) {
            return self.dirty.insert(key);
        }
        if self.added.contains_key(&key) {
            return false;
        }
        self.added.insert(key.clone(), now);
        self.ready.push_back(key);
        true
    }

    pub(super) fn after(&mut self, key: K, due: Instant) {
        let sooner = self.delayed.get(&key).is_some_and(|other| *other <= due);
        if sooner || self.added.contains_key(&key) || self.dirty.contains(&key) {
            return;
        }
        self.cancel_timer(&key);
        self.delayed.insert(key.clone(), due);
        self.timers.insert((due, key));
    }

    pub(super) fn forget(&mut self, key: &K) {
        self.failures.remove(key);
    }

    /// The next key that nobody works on.
    pub(super) fn take(&mut self, now: Instant) -> Option<Taken<K>> {
        while self.timers.first().is_some_and(|(due, _)| *due <= now) {
            if let Some((_, key)) = self.timers.pop_first() {
                self.delayed.remove(&key);
                self.add(key, now);
            }
        }
        let key = self.ready.pop_front()?;
        let added = self.added.remove(&key).unwrap_or(now);
        self.running.insert(key.clone(), now);
        let failures = self.failures.get(&key).copied().unwrap_or_default();
        Some(Taken { key, added, failures })
    }

    /// When the first delayed key is due.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.timers.first().map(|(due, _)| *due)
    }

    /// The worker of `key` is through with it.
    pub(super) fn done(&mut self, key: &K, again: Again, backoff: &Backoff, now: Instant) {
        self.running.remove(key);
        let due = match again {
            Again::Done | Again::OnChange => {
                self.failures.remove(key);
                None
            }
            Again::After(delay) => Some(now + delay),
            Again::Backoff => {
                let failures = self.failures.entry(key.clone()).or_default();
                *failures = failures.saturating_add(1);
                Some(now + backoff.pause(*failures))
            }
        };
        if self.dirty.remove(key) {
            self.add(key.clone(), now);
        } else if let Some(due) = due {
            self.after(key.clone(), due);
        }
    }

    pub(super) fn depth(&self) -> usize {
        self.ready.len()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.ready.is_empty() && self.running.is_empty()
    }

    /// Since when each running key is worked on.
    pub(super) fn running(&self) -> impl Iterator<Item = Instant> + '_ {
        self.running.values().copied()
    }

    pub(super) fn longest_running(&self, now: Instant) -> Option<Duration> {
        self.running().min().map(|began| now.duration_since(began))
    }

    fn cancel_timer(&mut self, key: &K) {
        if let Some(due) = self.delayed.remove(key) {
            self.timers.remove(&(due, key.clone()));
        }
    }
}
