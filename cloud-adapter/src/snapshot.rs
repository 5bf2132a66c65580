//! One shared listing per collection, with one refresher and any number of readers and watches.
//!
//! A complete listing replaces the content. A failed listing only sets the last error. Readers specify the required freshness. If the
//! content is older, one reader lists for all waiting readers.

mod feed;
mod listing;
mod log;
mod refresh;
mod state;
#[cfg(test)]
mod tests;
mod watch;
mod watch_slots;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{sync::watch as signal, time::Instant};

use self::{listing::Listing, log::Change, state::State, watch_slots::WatchSlots};
pub(crate) use self::{
    state::{Departed, LookedUp, ObservedAt},
    watch::{Frame, WatchOptions, Watcher, checksum},
};
use crate::{
    config::CollectionSettings,
    driver::{Collection, Item, VendorError},
    metrics::{Coalesced, Metrics, SnapshotAge},
    vendor::{Session, Waiters},
};

/// Maximum age at which an interrupted listing is continued, because cursors expire.
const CONTINUE_MAX: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(crate) struct Snapshot<T> {
    state: Mutex<State<T>>,
    /// The reader that lists for all waiting readers holds this lock. An interrupted listing stays here for the next reader to continue.
    listing: tokio::sync::Mutex<Option<Listing<T>>>,
    /// The waiting readers. The most urgent reader determines the priority of the listing.
    waiters: Arc<Waiters>,
    /// The number of changes of the state. Each change wakes the watches.
    revision: signal::Sender<u64>,
    watches: WatchSlots,
    /// The interval between listings. `None`: the collection is not refreshed automatically.
    target: Mutex<Option<Duration>>,
    settings: Mutex<CollectionSettings>,
    metrics: Metrics,
}

#[derive(Clone, Debug)]
pub(crate) struct View<T> {
    pub(crate) items: Vec<Arc<T>>,
    pub(crate) observed: Instant,
}

impl<T: Item> Snapshot<T> {
    /// `horizon` is the maximum time by which the vendor's reads lag behind writes.
    pub(crate) fn new(settings: CollectionSettings, horizon: Duration, metrics: Metrics) -> Self {
        Self {
            state: Mutex::new(State::new(horizon)),
            listing: tokio::sync::Mutex::default(),
            waiters: Arc::default(),
            revision: signal::Sender::new(0),
            watches: WatchSlots::default(),
            target: Mutex::default(),
            settings: Mutex::new(settings),
            metrics,
        }
    }

    /// Creates an empty snapshot whose age is a metric.
    pub(crate) fn measured(settings: CollectionSettings, horizon: Duration, metrics: &Metrics) -> Arc<Self> {
        let snapshot = Arc::new(Self::new(settings, horizon, metrics.clone()));
        let weak = Arc::downgrade(&snapshot);
        let age = move || weak.upgrade().map(|snapshot| snapshot.age()).unwrap_or_default();
        metrics.read_age(T::COLLECTION, age);
        snapshot
    }

    pub(crate) fn configure(&self, settings: CollectionSettings) {
        *self.settings.lock().unwrap_or_else(PoisonError::into_inner) = settings;
        self.wake();
    }

    /// Returns the collection as observed at `bound` or later. If `bound` is `None`, any complete listing is accepted.
    ///
    /// Cost: no vendor call if the snapshot, or a listing in progress, is fresh enough. Otherwise one call per page.
    ///
    /// Returns the error of the listing. An error is never returned as an empty collection.
    pub(crate) async fn at_least(
        &self,
        bound: Option<Instant>,
        source: &impl Collection<T>,
        session: &Session,
    ) -> Result<View<T>, VendorError> {
        if let Some(view) = self.view(bound) {
            self.saved(session, Coalesced::Snapshot);
            return Ok(view);
        }
        let mut waiter = self.waiters.join(session);
        let payer = session.shared(&self.waiters);
        let late = async {
            match session.own_deadline() {
                Some(deadline) => tokio::time::sleep_until(deadline).await,
                None => self.waiters.follow(session).await,
            }
        };
        tokio::select! {
            biased;
            view = self.share(bound, source, &payer) => view,
            error = waiter.refused() => Err(error),
            () = late => {
                let text = format!("the {} cannot be listed before the deadline", T::COLLECTION);
                Err(session.late(T::FAMILY, text))
            }
        }
    }

    /// Lists, or waits for another reader that is listing. The listing has no deadline, because its error applies to all waiting readers.
    async fn share(
        &self,
        bound: Option<Instant>,
        source: &impl Collection<T>,
        session: &Session,
    ) -> Result<View<T>, VendorError> {
        let asked = Instant::now();
        let mut under_way = self.listing.lock().await;
        if let Some(view) = self.view(bound) {
            self.saved(session, Coalesced::SingleFlight);
            return Ok(view);
        }
        if let Some(error) = self.failed_since(asked) {
            self.saved(session, Coalesced::SingleFlight);
            return Err(error);
        }
        let oldest = bound.unwrap_or_else(|| Self::no_older_than(CONTINUE_MAX));
        if under_way.as_ref().is_some_and(|left| left.began < oldest) {
            *under_way = None;
        }
        let listing = under_way.get_or_insert_with(Listing::begin);
        let (page_size, known) = (self.settings().page_size, |item| self.known(item));
        // The future is boxed, because thousands of readers may wait but only one of these readers lists.
        let ended = Box::pin(listing.complete(source, session, page_size, &known)).await;
        let began = listing.began;
        let listed = ended.map(|()| under_way.take());
        *under_way = None;
        self.metrics
            .refreshed(T::COLLECTION, listed.as_ref().ok().and_then(|one| Some(one.as_ref()?.items.len())));
        match listed {
            Ok(Some(Listing { items, pages, .. })) => {
                self.change(|state| {
                    state.replace(items, began);
                    state.pages = Some(pages);
                });
                self.view(None).ok_or_else(|| VendorError::nonsense("a complete listing left no snapshot"))
            }
            Ok(None) => Err(VendorError::nonsense("the snapshot has no complete listing")),
            Err(error) => {
                self.change(|state| state.attempt = Some((began, Some(error.clone()))));
                Err(error)
            }
        }
    }

    /// Returns the cached item instead of an item that was read, if they are equal. So a listing without changes needs little more memory
    /// than a page.
    fn known(&self, item: T) -> Arc<T> {
        let here = self.with(|state| {
            let entry = state.items.get(item.key())?;
            (*entry.item == item).then(|| Arc::clone(&entry.item))
        });
        here.unwrap_or_else(|| Arc::new(item))
    }

    /// Counts a listing that was not needed.
    fn saved(&self, session: &Session, how: Coalesced) {
        if how == Coalesced::SingleFlight {
            session.meter().coalesced();
        }
        self.metrics.coalesced(T::COLLECTION, how);
    }

    pub(crate) fn view(&self, bound: Option<Instant>) -> Option<View<T>> {
        self.with(|state| {
            let observed = state.observed.filter(|observed| bound.is_none_or(|bound| *observed >= bound))?;
            Some(View {
                items: state.items.values().map(|entry| Arc::clone(&entry.item)).collect(),
                observed,
            })
        })
    }

    /// Returns the time of the last listing, the number of items, the revision, and the error of the last attempt.
    pub(crate) fn report(&self) -> (Option<Instant>, usize, u64, Option<VendorError>) {
        self.with(|state| {
            let error = state.attempt.as_ref().and_then(|(_, error)| error.clone());
            (state.observed, state.items.len(), state.log.end(), error)
        })
    }

    /// Returns the number of items in each group. Cost: reads all items once.
    pub(crate) fn tally(&self, group: impl Fn(&T) -> &str) -> BTreeMap<String, u64> {
        self.with(|state| {
            let mut tally = BTreeMap::<String, u64>::new();
            for entry in state.items.values() {
                let group = group(&entry.item);
                match tally.get_mut(group) {
                    Some(number) => *number += 1,
                    None => drop(tally.insert(group.to_owned(), 1)),
                }
            }
            tally
        })
    }

    fn age(&self) -> SnapshotAge {
        let age = self.with(|state| state.observed).map(|observed| observed.elapsed());
        SnapshotAge { age, target: *self.target.lock().unwrap_or_else(PoisonError::into_inner) }
    }

    pub(crate) fn target_age(&self) -> Duration {
        self.settings().max_age
    }

    fn settings(&self) -> CollectionSettings {
        *self.settings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the oldest acceptable observation time for a maximum age of `age`.
    pub(crate) fn no_older_than(age: Duration) -> Instant {
        let now = Instant::now();
        now.checked_sub(age).unwrap_or(now)
    }

    /// Adds the result of a write. Later listings that may not show the write yet do not undo the result.
    pub(crate) fn upsert(&self, item: T) {
        self.change(|state| state.wrote(item, Instant::now()));
    }

    /// Removes a deleted item. Later listings that may still show the item do not restore the item.
    pub(crate) fn remove(&self, key: &str) {
        self.change(|state| state.unmade(key, Instant::now()));
    }

    /// Records that an item was written with an unknown result. The cached state of the item is older than the write.
    pub(crate) fn doubt(&self, key: &str) {
        self.change(|state| state.doubt(key, Instant::now()));
    }

    /// Returns whether an item was written after it was last observed, so that its cached state may be outdated.
    pub(crate) fn doubted(&self, key: &str) -> bool {
        self.with(|state| state.doubted(key))
    }

    pub(crate) fn learn(&self, read: LookedUp<T>) {
        self.change(|state| state.learn(read));
    }

    /// Returns an item, if it exists, and the time at which the read that showed the item began.
    pub(crate) fn observed_item(&self, key: &str) -> Option<ObservedAt<T>> {
        self.with(|state| state.observed_item(key))
    }

    /// Returns, for each key, the item if it exists and was observed at `bound` or later. The result is consistent: all items are taken at
    /// one moment.
    pub(crate) fn observed_items<'a>(
        &self,
        keys: impl IntoIterator<Item = Option<&'a str>>,
        bound: Option<Instant>,
    ) -> Vec<Option<ObservedAt<T>>> {
        self.with(|state| {
            let fresh = |(_, seen): &ObservedAt<T>| bound.is_none_or(|bound| *seen >= bound);
            keys.into_iter().map(|key| state.observed_item(key?).filter(fresh)).collect()
        })
    }

    /// Returns the items that were shown by reads since `bound`: each key, and the time since which the item is seen.
    pub(crate) fn seen_since(&self, bound: Instant) -> Vec<(String, Instant)> {
        self.with(|state| {
            let seen = state.items.iter().filter(|(_, entry)| state.seen(entry) >= Some(bound));
            seen.map(|(key, entry)| (key.clone(), entry.since)).collect()
        })
    }

    /// Returns a sample of keys that are far apart. Each `round` returns different keys.
    pub(crate) fn sample(&self, count: usize, round: usize) -> Vec<String> {
        self.with(|state| {
            let stride = state.items.len().div_ceil(count.max(1)).max(1);
            state.items.keys().skip(round % stride).step_by(stride).take(count).cloned().collect()
        })
    }

    /// Returns the number of vendor calls of the last complete listing.
    pub(crate) fn pages(&self) -> Option<usize> {
        self.with(|state| state.pages)
    }

    pub(crate) fn departed(&self, key: &str) -> Option<Departed> {
        self.with(|state| state.departed.get(key).copied())
    }

    /// Returns when the last read that showed an item began, even if the item has disappeared.
    pub(crate) fn last_seen(&self, key: &str) -> Option<Instant> {
        self.observed_item(key).map(|(_, seen)| seen).or_else(|| self.departed(key).map(|one| one.last_seen))
    }

    /// Returns the error of the last attempt, if the attempt began at `bound` or later.
    pub(crate) fn failed_since(&self, bound: Instant) -> Option<VendorError> {
        self.with(|state| match &state.attempt {
            Some((at, Some(error))) if *at >= bound => Some(error.clone()),
            Some(_) | None => None,
        })
    }

    fn with<R>(&self, act: impl FnOnce(&State<T>) -> R) -> R {
        act(&self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn change(&self, act: impl FnOnce(&mut State<T>)) {
        act(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
        self.wake();
    }

    /// Makes the refresher list at once, unless a listing began at `bound` or later.
    fn want(&self, bound: Option<Instant>) {
        self.change(|state| state.wanted = state.wanted.max(bound));
    }

    fn wake(&self) {
        self.revision.send_modify(|revision| *revision += 1);
    }
}
