//! The watch protocol over a snapshot: RESET, items, SYNCED, then UPSERT, GONE and BOOKMARK.
//!
//! The stream of a watcher polls it. A watcher stores a position in the listing or the log, and at most one message. So a client that does
//! not read costs the same for any size of the collection.

use std::{
    collections::VecDeque,
    ops::Bound::{Excluded, Unbounded},
    sync::Arc,
    time::Duration,
};

use cloud_api_proto::AdapterError;
use prost::Message;
use sha2::{Digest as _, Sha256};
use tokio::{sync::watch as signal, time::Instant};

use super::{Change, Snapshot, watch_slots::WatchSlot};
use crate::{
    auth::Caller,
    driver::{Item, VendorError},
};

/// Maximum number of items in one message.
const CHUNK: usize = 512;
/// Maximum size of a message in bytes. This leaves space for framing below the promised 1 MiB.
const CHUNK_BYTES: usize = 1_000_000;
/// Maximum interval between messages. Clients may rely on this interval.
const BOOKMARK_EVERY: Duration = Duration::from_secs(30);
/// Number of changes that are read from the log at once.
const BATCH: usize = 64;

/// A message of a watch, independent of the service.
#[derive(Debug, PartialEq)]
pub(crate) enum Frame<M> {
    /// The client must drop everything that it has received so far.
    Reset,
    /// A part of the items of the listing.
    Items(Vec<M>),
    Synced {
        count: u64,
        checksum: u64,
        observed: Instant,
        token: String,
    },
    Upsert(M),
    /// A removed item with its last state.
    Gone(M),
    /// There are no other changes up to this time.
    Bookmark {
        observed: Instant,
        token: String,
    },
}

#[derive(Clone, Debug)]
pub(crate) struct WatchOptions {
    pub(crate) caller: Caller,
    pub(crate) stop_when_synced: bool,
    pub(crate) resume_token: String,
    /// The part of resume tokens that identifies the process and the view. A watch cannot resume from a token with another epoch.
    pub(crate) epoch: String,
    /// The oldest acceptable time of a listing. `None`: any complete listing is accepted.
    pub(crate) bound: Option<Instant>,
}

/// Maps an item to its message. `None`: the watch does not include the item.
type View<T, M> = Box<dyn Fn(&T) -> Option<M> + Send + Sync>;

/// The snapshot is refreshed while the watch exists.
pub(crate) struct Watcher<T: Item, M> {
    snapshot: Arc<Snapshot<T>>,
    /// The slot is released before other watchers are notified: see [`Drop`].
    slot: Option<WatchSlot>,
    view: View<T, M>,
    key: fn(&M) -> &str,
    changed: signal::Receiver<u64>,
    options: WatchOptions,
    phase: Phase,
    listed: Listed,
    ready: VecDeque<Frame<M>>,
    position: u64,
    born: Instant,
    last_frame: Instant,
    last_observed: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    /// The watch waits for a fresh enough listing.
    Waiting,
    Listing {
        observed: Instant,
    },
    Following,
    Ended,
}

/// A listing that is being sent. The log contains later changes to items that were already sent, from the position at which the listing
/// began.
#[derive(Debug, Default)]
struct Listed {
    /// The key of the last item that was sent, if there are more items.
    after: Option<String>,
    count: u64,
    checksum: u64,
}

impl<T: Item, M: Message> Watcher<T, M> {
    /// Starts a watch of the items for which `view` returns a message. `key` returns the key of a message's item, for the checksum.
    ///
    /// Returns `QUEUE_FULL` if the caller, or all callers together, have too many watches of the collection.
    pub(crate) fn new(
        snapshot: Arc<Snapshot<T>>,
        options: WatchOptions,
        view: impl Fn(&T) -> Option<M> + Send + Sync + 'static,
        key: fn(&M) -> &str,
    ) -> Result<Self, AdapterError> {
        let slot = snapshot.watches.take(T::COLLECTION, &options.caller)?;
        snapshot.want(options.bound);
        let mut watcher = Self {
            changed: snapshot.revision.subscribe(),
            snapshot,
            slot: Some(slot),
            view: Box::new(view),
            key,
            options,
            phase: Phase::Waiting,
            listed: Listed::default(),
            ready: VecDeque::new(),
            position: 0,
            born: Instant::now(),
            last_frame: Instant::now(),
            last_observed: None,
        };
        watcher.resume();
        Ok(watcher)
    }

    /// `None`: the watch has ended.
    ///
    /// Returns the error of the last attempt if there is no fresh enough listing. This error ends the watch.
    pub(crate) async fn next(&mut self) -> Option<Result<Frame<M>, VendorError>> {
        loop {
            if let Some(frame) = self.ready.pop_front() {
                self.last_frame = Instant::now();
                return Some(Ok(frame));
            }
            self.changed.mark_unchanged();
            match self.phase {
                Phase::Ended => return None,
                Phase::Listing { observed } => {
                    self.list(observed);
                    continue;
                }
                Phase::Waiting => {
                    // Errors from before this watch are ignored, because a new watch causes a new listing.
                    if !self.begin()
                        && let Some(error) = self.snapshot.failed_since(self.born)
                    {
                        self.phase = Phase::Ended;
                        return Some(Err(error));
                    }
                }
                Phase::Following => {
                    if self.follow() {
                        continue;
                    }
                }
            }
            if self.ready.is_empty() && self.phase != Phase::Ended && !self.wait().await {
                self.phase = Phase::Ended;
            }
        }
    }

    /// Resumes from the client's token, if the log still contains all later changes.
    fn resume(&mut self) {
        let Some((epoch, position)) = self.options.resume_token.rsplit_once('/') else { return };
        let Ok(position) = position.parse() else { return };
        let kept = self.snapshot.with(|state| state.log.since(position, 0).is_some());
        if epoch == self.options.epoch && kept {
            self.position = position;
            self.phase = Phase::Following;
        }
    }

    /// Starts to send a listing, if a fresh enough listing exists.
    fn begin(&mut self) -> bool {
        let begun = self.snapshot.with(|state| {
            let observed = state.observed.filter(|at| self.options.bound.is_none_or(|bound| *at >= bound))?;
            Some((observed, state.log.end()))
        });
        let Some((observed, position)) = begun else { return false };
        self.position = position;
        self.last_observed = Some(observed);
        self.listed = Listed::default();
        self.ready.push_back(Frame::Reset);
        self.phase = Phase::Listing { observed };
        true
    }

    /// Queues the next part of the listing: at most [`CHUNK`] items and about [`CHUNK_BYTES`]. After the last item, queues SYNCED. Restarts
    /// if the content was dropped, or if the log no longer contains all changes since the listing began.
    fn list(&mut self, observed: Instant) {
        let (mut items, mut bytes) = (Vec::new(), 0);
        let from = self.listed.after.take().map_or(Unbounded, Excluded);
        let read = self.snapshot.with(|state| {
            state.log.since(self.position, 0)?;
            let mut last: Option<&String> = None;
            for (key, entry) in state.items.range((from, Unbounded)) {
                let Some(message) = (self.view)(&entry.item) else { continue };
                let size = message.encoded_len();
                if items.len() == CHUNK || (bytes + size > CHUNK_BYTES && !items.is_empty()) {
                    return Some(last.cloned());
                }
                bytes += size;
                items.push(message);
                last = Some(key);
            }
            Some(None)
        });
        let Some(after) = read else {
            self.phase = Phase::Waiting;
            return;
        };
        self.listed.after = after;
        self.listed.count += u64::try_from(items.len()).unwrap_or(u64::MAX);
        self.listed.checksum = self.listed.checksum.wrapping_add(checksum(items.iter().map(self.key)));
        if !items.is_empty() {
            self.ready.push_back(Frame::Items(items));
        }
        if self.listed.after.is_none() {
            let (Listed { count, checksum, .. }, token) = (std::mem::take(&mut self.listed), self.token());
            self.ready.push_back(Frame::Synced { count, checksum, observed, token });
            self.phase = if self.options.stop_when_synced { Phase::Ended } else { Phase::Following };
        }
    }

    /// Queues the changes since the position. Queues a BOOKMARK if a newer listing contains no other changes, or after a long time without
    /// messages. Returns whether more changes can be read at once.
    fn follow(&mut self) -> bool {
        let read = self.snapshot.with(|state| {
            let changes = state.log.since(self.position, BATCH)?;
            let count = changes.len();
            let now = |change: Change<T>| {
                let new = state.items.get(&change.key).map(|entry| Arc::clone(&entry.item));
                (change.old, new)
            };
            Some((latest(changes).into_iter().map(now).collect::<Vec<_>>(), count, state.observed))
        });
        let Some((changes, count, observed)) = read else {
            self.phase = Phase::Waiting;
            return true;
        };
        for (old, new) in changes {
            let old = old.as_deref().and_then(|item| (self.view)(item));
            match (old, new.as_deref().and_then(|item| (self.view)(item))) {
                (_, Some(new)) => self.ready.push_back(Frame::Upsert(new)),
                (Some(old), None) => self.ready.push_back(Frame::Gone(old)),
                (None, None) => (),
            }
        }
        self.position += u64::try_from(count).unwrap_or(0);
        if count == BATCH {
            return true;
        }
        let quiet = self.last_frame.elapsed() >= BOOKMARK_EVERY;
        if let Some(observed) = observed.filter(|at| quiet || self.last_observed != Some(*at)) {
            self.last_observed = Some(observed);
            let token = self.token();
            self.ready.push_back(Frame::Bookmark { observed, token });
        } else if self.options.stop_when_synced {
            self.phase = Phase::Ended;
        }
        false
    }

    /// Waits for a possible change, or until a bookmark is due. Returns false if the snapshot no longer exists.
    async fn wait(&mut self) -> bool {
        let due = self.last_frame + BOOKMARK_EVERY;
        tokio::select! {
            changed = self.changed.changed() => changed.is_ok(),
            () = tokio::time::sleep_until(due), if self.phase == Phase::Following => true,
        }
    }

    fn token(&self) -> String {
        format!("{}/{}", self.options.epoch, self.position)
    }
}

impl<T: Item, M> Drop for Watcher<T, M> {
    fn drop(&mut self) {
        drop(self.slot.take());
        self.snapshot.wake();
    }
}

/// Keeps only the latest change of each item. The kept change contains the state before the first change.
fn latest<T>(changes: Vec<Change<T>>) -> Vec<Change<T>> {
    let mut latest: Vec<Change<T>> = Vec::with_capacity(changes.len());
    for mut change in changes {
        if let Some(at) = latest.iter().position(|one| one.key == change.key) {
            let before = latest.remove(at);
            change.old = before.old.or(change.old);
        }
        latest.push(change);
    }
    latest
}

/// Returns the checksum of a listing with these keys. Source: `Synced.checksum` in the contract.
pub(crate) fn checksum<'a>(keys: impl Iterator<Item = &'a str>) -> u64 {
    keys.map(digest).fold(0, u64::wrapping_add)
}

/// Returns the contribution of one key to the checksum.
fn digest(key: &str) -> u64 {
    Sha256::digest(key).iter().take(8).fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}
