//! What is known of a collection. Pure but for the time that it is told.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio::time::Instant;

use super::log::{Change, Log};
use crate::driver::{Item, VendorError};

/// For how long it is remembered that an item was there.
const DEPARTED_KEPT: Duration = Duration::from_mins(10);

/// What is known of a collection.
#[derive(Debug)]
pub(super) struct State<T> {
    pub(super) items: BTreeMap<String, Entry<T>>,
    /// When the first page of the last complete listing was asked for.
    pub(super) observed: Option<Instant>,
    /// Vendor calls that the last complete listing took.
    pub(super) pages: Option<usize>,
    /// The last attempt to list: when it began, and why it failed.
    pub(super) attempt: Option<(Instant, Option<VendorError>)>,
    /// The oldest listing that will do for every watcher.
    pub(super) wanted: Option<Instant>,
    /// When we wrote items whose new state is known: reads that lag behind must not bring back the old one.
    written: BTreeMap<String, Instant>,
    /// When we wrote items whose new state is not known: what is shown of them is older than the write.
    doubts: BTreeMap<String, Instant>,
    /// Items that were seen and are no more, for a while.
    pub(super) departed: BTreeMap<String, Departed>,
    /// For how long reads may lag behind writes.
    horizon: Duration,
    pub(super) log: Log<T>,
}

/// One item.
#[derive(Debug)]
pub(super) struct Entry<T> {
    pub(super) item: Arc<T>,
    /// The first of the unbroken row of reads that show it.
    pub(super) since: Instant,
    /// When it was last asked for alone.
    looked_up: Option<Instant>,
}

/// An item, and when the vendor was asked that showed it.
pub(crate) type Sight<T> = (Arc<T>, Instant);

/// An item that was seen and is no more.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Departed {
    /// The last read that showed it.
    pub(crate) last_seen: Instant,
    /// The first read that did not.
    pub(crate) since: Instant,
    /// Others went with it and none stayed: rather the place that was looked at changed than what is in it.
    pub(crate) en_masse: bool,
}

/// What look-ups by ID brought, asked for at one time.
#[derive(Debug)]
pub(crate) struct LookedUp<T> {
    pub(crate) asked: Instant,
    pub(crate) found: Vec<T>,
    /// Keys of which the vendor said that there is nothing.
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

    /// When an item was asked for that the vendor showed.
    pub(super) fn seen(&self, entry: &Entry<T>) -> Option<Instant> {
        self.observed.max(entry.looked_up)
    }

    pub(super) fn sight(&self, key: &str) -> Option<Sight<T>> {
        let entry = self.items.get(key)?;
        Some((Arc::clone(&entry.item), self.seen(entry).unwrap_or(entry.since)))
    }

    /// Swaps the content for a complete listing, except what was written or looked up since it began.
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

    /// Takes over what was looked up, unless something newer is known.
    pub(super) fn learn(&mut self, news: LookedUp<T>) {
        let LookedUp { asked, found, gone } = news;
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

    /// Puts in what a write made. Listings that do not show it yet do not undo it.
    pub(super) fn wrote(&mut self, item: T, now: Instant) {
        let key = item.key().to_owned();
        self.written.insert(key.clone(), now);
        self.put(key, Arc::new(item), now);
    }

    /// Takes out what a write removed. Listings that still show it do not bring it back.
    pub(super) fn unmade(&mut self, key: &str, now: Instant) {
        self.written.insert(key.to_owned(), now);
        self.depart(key, now, false);
    }

    /// Notes that what is shown of an item is older than a write.
    pub(super) fn doubt(&mut self, key: &str, now: Instant) {
        self.doubts.insert(key.to_owned(), now);
    }

    pub(super) fn doubted(&self, key: &str) -> bool {
        let seen = self.items.get(key).and_then(|entry| self.seen(entry));
        self.doubts.get(key).is_some_and(|at| seen.is_none_or(|seen| seen < *at))
    }

    /// Changes one item, and notes it for the watchers if it really changes.
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

    /// Takes out what a read did not show any more.
    pub(super) fn depart(&mut self, key: &str, read: Instant, en_masse: bool) {
        let Some((key, entry)) = self.items.remove_entry(key) else { return };
        let last_seen = self.observed.max(entry.looked_up).unwrap_or(entry.since);
        self.departed.insert(key.clone(), Departed { last_seen, since: read, en_masse });
        self.log.push(Change { key, old: Some(entry.item) });
    }

    /// Forgets those that left too long before a read.
    pub(super) fn forget_departed(&mut self, read: Instant) {
        self.departed.retain(|_, one| one.since + DEPARTED_KEPT > read);
    }

    /// Forgets everything: it was another place. Watchers begin anew.
    pub(super) fn forget(&mut self) {
        let mut log = std::mem::take(&mut self.log);
        log.interrupt();
        *self = Self { log, wanted: self.wanted, ..Self::new(self.horizon) };
    }

    /// Whether an item was written, looked up or listed after a read that was asked for then.
    fn newer(&self, key: &str, asked: Instant) -> bool {
        let written = self.written.get(key).is_some_and(|at| *at + self.horizon > asked);
        let seen = self.items.get(key).is_some_and(|entry| self.seen(entry) > Some(asked));
        written || seen || self.departed.get(key).is_some_and(|one| one.since > asked)
    }
}
