//! One shared listing per collection: one refresher, any number of readers and watchers.
//!
//! A listing replaces the content only once it is complete; a failed one changes nothing but the last error. Readers say how
//! fresh an answer must be, and whoever needs a fresher one lists for everybody who waits.

mod log;
#[cfg(test)]
mod tests;
mod watch;

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use cloud_api_proto::{AdapterError, v1alpha1::Priority};
use tokio::{sync::watch as signal, time::Instant};

use self::log::{Change, Log};
pub(crate) use self::watch::{Frame, WatchOptions, Watcher};
use crate::{
    driver::{Collection, Fault, Item, VendorError},
    metrics::Metrics,
    vendor::{Purpose, Session, Vendor},
};

/// No vendor has this many pages; a cursor that never ends is a defect.
const PAGES_MAX: usize = 10_000;
/// For how long it is remembered that an item was there.
const DEPARTED_KEPT: Duration = Duration::from_mins(10);
/// How soon a failed listing is tried again by the refresher.
const RETRY: Duration = Duration::from_secs(5);

/// What the vendor has, as of a known time.
#[derive(Debug)]
pub(crate) struct Snapshot<T> {
    state: Mutex<State<T>>,
    /// Held while a listing runs: who waits for it finds out whether that listing was fresh enough.
    listing: tokio::sync::Mutex<()>,
    /// Grows with each change of the state; watchers wait on it.
    revision: signal::Sender<u64>,
    watchers: AtomicUsize,
    target_age: Duration,
    metrics: Metrics,
}

#[derive(Debug)]
struct State<T> {
    items: BTreeMap<String, Arc<T>>,
    /// When the first page of the last complete listing was asked for.
    observed: Option<Instant>,
    /// The last attempt to list: when it began, and why it failed.
    attempt: Option<(Instant, Option<VendorError>)>,
    /// When items were last written or looked up by us: a listing that may not show it must not bring back the old state.
    touched: BTreeMap<String, Instant>,
    /// Items that were seen and are no more, for a while.
    departed: BTreeMap<String, Instant>,
    /// For how long reads may lag behind writes.
    horizon: Duration,
    log: Log<T>,
}

/// A copy of the whole collection.
#[derive(Clone, Debug)]
pub(crate) struct View<T> {
    pub(crate) items: Vec<Arc<T>>,
    pub(crate) observed: Instant,
}

impl<T: Item> Snapshot<T> {
    pub(crate) fn new(target_age: Duration, horizon: Duration, metrics: Metrics) -> Self {
        Self {
            state: Mutex::new(State {
                items: BTreeMap::new(),
                observed: None,
                attempt: None,
                touched: BTreeMap::new(),
                departed: BTreeMap::new(),
                horizon,
                log: Log::default(),
            }),
            listing: tokio::sync::Mutex::default(),
            revision: signal::Sender::new(0),
            watchers: AtomicUsize::new(0),
            target_age,
            metrics,
        }
    }

    /// The collection as it was at `bound` or later; `None` takes any complete listing.
    ///
    /// Cost: no vendor call if the snapshot is fresh enough or somebody else's listing is; else one a page.
    ///
    /// # Errors
    /// Those of the listing. Never an empty collection instead of an error.
    pub(crate) async fn at_least(
        &self,
        bound: Option<Instant>,
        source: &impl Collection<T>,
        session: &Session,
    ) -> Result<View<T>, VendorError> {
        if let Some(view) = self.view(bound) {
            return Ok(view);
        }
        let shared = self.share(bound, source, session);
        let Some(deadline) = session.purpose().deadline else { return shared.await };
        let late = |_elapsed| {
            let text = format!("the {} are not listed before the deadline", T::COLLECTION);
            Err(VendorError::new(Fault::Budget, text))
        };
        tokio::time::timeout_at(deadline, shared).await.unwrap_or_else(late)
    }

    /// Lists, or waits for who does. Knows no deadline: what fails here fails for all who wait.
    async fn share(
        &self,
        bound: Option<Instant>,
        source: &impl Collection<T>,
        session: &Session,
    ) -> Result<View<T>, VendorError> {
        let asked = Instant::now();
        let _listing = self.listing.lock().await;
        if let Some(view) = self.view(bound) {
            session.meter().coalesced();
            return Ok(view);
        }
        if let Some(error) = self.failed_since(asked) {
            session.meter().coalesced();
            return Err(error);
        }
        self.list(source, &session.patient()).await
    }

    /// The collection, if it is known well enough.
    pub(crate) fn view(&self, bound: Option<Instant>) -> Option<View<T>> {
        self.with(|state| {
            let observed = state.observed.filter(|observed| bound.is_none_or(|bound| *observed >= bound))?;
            Some(View { items: state.items.values().cloned().collect(), observed })
        })
    }

    /// When the collection was last listed, how many items it has, its revision, and why the last attempt failed.
    pub(crate) fn report(&self) -> (Option<Instant>, usize, u64, Option<VendorError>) {
        self.with(|state| {
            let error = state.attempt.as_ref().and_then(|(_, error)| error.clone());
            (state.observed, state.items.len(), state.log.end(), error)
        })
    }

    pub(crate) fn target_age(&self) -> Duration {
        self.target_age
    }

    /// The oldest observation that is at most `age` old.
    pub(crate) fn no_older_than(age: Duration) -> Instant {
        let now = Instant::now();
        now.checked_sub(age).unwrap_or(now)
    }

    /// Puts in what a look-up or a write brought. Listings that may not show it yet do not overwrite it.
    pub(crate) fn upsert(&self, item: T) {
        let now = Instant::now();
        self.change(|state| {
            let key = item.key().to_owned();
            state.touched.insert(key.clone(), now);
            state.put(key, Some(Arc::new(item)));
        });
    }

    /// Takes out what a write removed. Listings that may still show it do not bring it back.
    pub(crate) fn remove(&self, key: &str) {
        let now = Instant::now();
        self.change(|state| {
            state.touched.insert(key.to_owned(), now);
            state.put(key.to_owned(), None);
        });
    }

    /// Whether an item was seen and is no more: then it is no newborn that reads do not show yet.
    pub(crate) fn departed(&self, key: &str) -> bool {
        self.with(|state| state.departed.contains_key(key))
    }

    /// Lists again whenever the listing is older than its target age and somebody watches. Never ends.
    pub(crate) async fn keep_fresh(&self, source: &impl Collection<T>, vendor: &Arc<Vendor>) {
        let mut changed = self.revision.subscribe();
        let mut failing = false;
        loop {
            let due = self.with(|state| state.due(self.target_age));
            if self.watchers.load(Ordering::Relaxed) == 0 || due > Instant::now() {
                tokio::select! {
                    () = tokio::time::sleep_until(due), if self.watchers.load(Ordering::Relaxed) > 0 => (),
                    // A new watcher, or a listing that a reader made.
                    _ = changed.changed() => (),
                }
                continue;
            }
            let session = vendor.session(Purpose::own(Priority::Background, "refresh"));
            match self.at_least(Some(Instant::now()), source, &session).await {
                Ok(_) if failing => {
                    failing = false;
                    tracing::info!(collection = T::COLLECTION, "Listing works again");
                }
                Err(error) if !failing => {
                    failing = true;
                    tracing::warn!(collection = T::COLLECTION, %error, "Listing failed: the old one stays");
                }
                Ok(_) | Err(_) => (),
            }
        }
    }

    /// Reads all pages and swaps the content.
    async fn list(&self, source: &impl Collection<T>, session: &Session) -> Result<View<T>, VendorError> {
        let began = Instant::now();
        let listed = list_all(source, session).await;
        self.metrics.refreshed(T::COLLECTION, listed.as_ref().ok().map(BTreeMap::len));
        match listed {
            Ok(items) => {
                self.change(|state| state.replace(items, began));
                self.view(None).ok_or_else(|| VendorError::nonsense("a complete listing left no snapshot"))
            }
            Err(error) => {
                self.change(|state| state.attempt = Some((began, Some(error.clone()))));
                Err(error)
            }
        }
    }

    /// Why the last attempt failed, if it began at `bound` or later.
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

    fn wake(&self) {
        self.revision.send_modify(|revision| *revision += 1);
    }
}

impl<T: Item> State<T> {
    /// When the refresher lists next.
    fn due(&self, target_age: Duration) -> Instant {
        match &self.attempt {
            None => Instant::now(),
            Some((at, Some(error))) => {
                let asked = AdapterError::from(error.clone()).retry_after.unwrap_or_default();
                *at + asked.max(RETRY)
            }
            Some((at, None)) => *at + target_age,
        }
    }

    /// Swaps the content for a complete listing, except what was written or looked up since it began.
    fn replace(&mut self, mut listed: BTreeMap<String, Arc<T>>, began: Instant) {
        self.touched.retain(|_, at| *at + self.horizon > began);
        self.departed.retain(|_, at| *at + DEPARTED_KEPT > began);
        for key in self.touched.keys() {
            match self.items.get(key) {
                Some(current) => listed.insert(key.clone(), Arc::clone(current)),
                None => listed.remove(key),
            };
        }
        let gone: Vec<String> = self.items.keys().filter(|key| !listed.contains_key(*key)).cloned().collect();
        for key in gone {
            self.put(key, None);
        }
        for (key, item) in listed {
            self.put(key, Some(item));
        }
        self.observed = Some(began);
        self.attempt = Some((began, None));
    }

    /// Changes one item, and notes it for the watchers if it really changes.
    fn put(&mut self, key: String, new: Option<Arc<T>>) {
        let old = match &new {
            Some(new) => {
                self.departed.remove(&key);
                self.items.insert(key, Arc::clone(new))
            }
            None => {
                let old = self.items.remove(&key);
                if old.is_some() {
                    self.departed.insert(key, Instant::now());
                }
                old
            }
        };
        if old != new {
            self.log.push(Change { old, new });
        }
    }
}

/// Reads all pages. A page that repeats the cursor or a listing that never ends is an error.
async fn list_all<T: Item>(
    source: &impl Collection<T>,
    session: &Session,
) -> Result<BTreeMap<String, Arc<T>>, VendorError> {
    let mut items = BTreeMap::new();
    let mut cursor: Option<String> = None;
    for _ in 0..PAGES_MAX {
        let page = source.list_page(session, cursor.as_deref()).await?;
        items.extend(page.items.into_iter().map(|item| (item.key().to_owned(), Arc::new(item))));
        match page.next {
            None => return Ok(items),
            next if next == cursor => return Err(VendorError::nonsense("the listing repeats its cursor")),
            next => cursor = next,
        }
    }
    Err(VendorError::nonsense("the listing does not end"))
}
