//! The state of a cached collection. This module is pure: the caller passes the time.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio::time::Instant;

use super::log::{Change, Log};
use crate::driver::{Item, VendorError};

/// How long the records of items that disappeared are kept.
const DEPARTED_KEPT: Duration = Duration::from_mins(10);

#[derive(Debug)]
pub(super) struct State<T> {
    pub(super) items: BTreeMap<String, Entry<T>>,
    /// The time at which the first page of the last complete listing was requested.
    pub(super) observed: Option<Instant>,
    /// Number of vendor calls of the last complete listing.
    pub(super) pages: Option<usize>,
    /// The start and the error of the last attempt to list.
    pub(super) attempt: Option<(Instant, Option<VendorError>)>,
    /// The limit on staleness that satisfies all watches.
    pub(super) wanted: Option<Instant>,
    /// The times at which this process wrote items with a known result. Lagging reads must not restore the old state.
    written: BTreeMap<String, Instant>,
    /// The times at which this process wrote items with an unknown result. The cached states of these items are older than the writes.
    doubts: BTreeMap<String, Instant>,
    pub(super) departed: BTreeMap<String, Departed>,
    /// Maximum time by which reads lag behind writes.
    horizon: Duration,
    pub(super) log: Log<T>,
}

#[derive(Debug)]
pub(super) struct Entry<T> {
    pub(super) item: Arc<T>,
    /// The time of the first read in the unbroken series of reads that show the item.
    pub(super) since: Instant,
    /// The time at which the item was last looked up by ID.
    looked_up: Option<Instant>,
}

/// An item, and the time at which the read that showed the item began.
pub(crate) type ObservedAt<T> = (Arc<T>, Instant);

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Departed {
    /// The time of the last read that showed the item.
    pub(crate) last_seen: Instant,
    /// The time of the first read that did not show the item.
    pub(crate) since: Instant,
    /// Whether a read missed several known items and showed none of them, probably because the read was of another scope.
    pub(crate) en_masse: bool,
}

/// The results of look-ups by ID that were all requested at the same time.
#[derive(Debug)]
pub(crate) struct LookedUp<T> {
    pub(crate) asked: Instant,
    pub(crate) found: Vec<T>,
    /// The keys that the vendor reported as missing.
    pub(crate) gone: Vec<String>,
}

impl<T: Item> State<T> {
    pub(super) fn new(horizon: Duration) -> Self {
        Self {
            items: BTreeMap::new(),
            observed: None,
            pages: None,
            attempt: None,
            wanted: None,
            written: BTreeMap::new(),
            doubts: BTreeMap::new(),
            departed: BTreeMap::new(),
            horizon,
            log: Log::default(),
        }
    }

    /// Returns the time at which the last read that showed the item began.
    pub(super) fn seen(&self, entry: &Entry<T>) -> Option<Instant> {
        self.observed.max(entry.looked_up)
    }

    pub(super) fn observed_item(&self, key: &str) -> Option<ObservedAt<T>> {
        let entry = self.items.get(key)?;
        Some((Arc::clone(&entry.item), self.seen(entry).unwrap_or(entry.since)))
    }

    /// Replaces the content with a complete listing, except for items that were written or looked up after the listing began.
    pub(super) fn replace(&mut self, mut listed: BTreeMap<String, Arc<T>>, began: Instant) {
        self.written.retain(|_, at| *at + self.horizon > began);
        self.doubts.retain(|_, at| *at > began);
        self.forget_departed(began);
        for key in self.written.keys() {
            match self.items.get(key) {
                Some(current) => listed.insert(key.clone(), Arc::clone(&current.item)),
                None => listed.remove(key),
            };
        }
        for (key, entry) in &self.items {
            if entry.looked_up > Some(began) {
                listed.insert(key.clone(), Arc::clone(&entry.item));
            }
        }
        listed.retain(|key, _| self.departed.get(key).is_none_or(|one| one.since <= began));
        let left: Vec<String> = self.items.keys().filter(|key| !listed.contains_key(*key)).cloned().collect();
        let en_masse = left.len() > 1 && left.len() == self.items.len();
        for key in left {
            self.depart(&key, began, en_masse);
        }
        for (key, item) in listed {
            self.put(key, item, began);
        }
        self.observed = self.observed.max(Some(began));
        self.attempt = Some((began, None));
    }

    /// Applies results of look-ups, unless newer results are known.
    pub(super) fn learn(&mut self, read: LookedUp<T>) {
        let LookedUp { asked, found, gone } = read;
        let known = |state: &Self, key: &str| state.items.contains_key(key);
        let stayed = found.iter().any(|item| known(self, item.key()));
        let left: Vec<String> = gone.into_iter().filter(|key| known(self, key)).collect();
        let en_masse = left.len() > 1 && !stayed;
        for item in found {
            let key = item.key().to_owned();
            if !self.newer(&key, asked) {
                self.put(key.clone(), Arc::new(item), asked);
                if let Some(entry) = self.items.get_mut(&key) {
                    entry.looked_up = entry.looked_up.max(Some(asked));
                }
            }
        }
        for key in left {
            if !self.newer(&key, asked) {
                self.depart(&key, asked, en_masse);
            }
        }
    }

    pub(super) fn wrote(&mut self, item: T, now: Instant) {
        let key = item.key().to_owned();
        self.written.insert(key.clone(), now);
        self.put(key, Arc::new(item), now);
    }

    pub(super) fn unmade(&mut self, key: &str, now: Instant) {
        self.written.insert(key.to_owned(), now);
        self.depart(key, now, false);
    }

    pub(super) fn doubt(&mut self, key: &str, now: Instant) {
        self.doubts.insert(key.to_owned(), now);
    }

    pub(super) fn doubted(&self, key: &str) -> bool {
        let seen = self.items.get(key).and_then(|entry| self.seen(entry));
        self.doubts.get(key).is_some_and(|at| seen.is_none_or(|seen| seen < *at))
    }

    /// Replaces an item, and logs the change for watches if the item differs.
    pub(super) fn put(&mut self, key: String, item: Arc<T>, read: Instant) {
        self.departed.remove(&key);
        let old = match self.items.get_mut(&key) {
            Some(entry) if Arc::ptr_eq(&entry.item, &item) || entry.item == item => return,
            Some(entry) => {
                let moved = entry.item.cluster() != item.cluster();
                Some(std::mem::replace(&mut entry.item, item)).filter(|_| moved)
            }
            None => {
                self.items.insert(key.clone(), Entry { item, since: read, looked_up: None });
                None
            }
        };
        self.log.push(Change { key, old });
    }

    /// Removes an item that a read did not show.
    pub(super) fn depart(&mut self, key: &str, read: Instant, en_masse: bool) {
        let Some((key, entry)) = self.items.remove_entry(key) else { return };
        let last_seen = self.observed.max(entry.looked_up).unwrap_or(entry.since);
        self.departed.insert(key.clone(), Departed { last_seen, since: read, en_masse });
        self.log.push(Change { key, old: Some(entry.item) });
    }

    pub(super) fn forget_departed(&mut self, read: Instant) {
        self.departed.retain(|_, one| one.since + DEPARTED_KEPT > read);
    }

    /// Watches are reset.
    pub(super) fn forget(&mut self) {
        let mut log = std::mem::take(&mut self.log);
        log.interrupt();
        *self = Self { log, wanted: self.wanted, ..Self::new(self.horizon) };
    }

    /// Returns whether an item was written, looked up or listed after the start `asked` of a read.
    fn newer(&self, key: &str, asked: Instant) -> bool {
        let written = self.written.get(key).is_some_and(|at| *at + self.horizon > asked);
        let seen = self.items.get(key).is_some_and(|entry| self.seen(entry) > Some(asked));
        written || seen || self.departed.get(key).is_some_and(|one| one.since > asked)
    }
}
