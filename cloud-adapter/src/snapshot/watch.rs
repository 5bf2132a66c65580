//! The watch protocol over a snapshot: RESET, items, SYNCED, then UPSERT, GONE and BOOKMARK.
//!
//! A watcher is pulled by its stream. It holds a place in the listing or a position in the log, and no more than one message: what is
//! sent to clients that do not read costs the same however large the collection is. Source: contract, section 3.

use std::{
    collections::VecDeque,
    ops::Bound::{Excluded, Unbounded},
    sync::Arc,
    time::Duration,
};

use cloud_adapter_security::Caller;
use cloud_api_proto::AdapterError;
use prost::Message;
use sha2::{Digest as _, Sha256};
use tokio::{sync::watch as signal, time::Instant};

use super::{Change, Snapshot, places::Place};
use crate::driver::{Item, VendorError};

/// Items in one message.
const CHUNK: usize = 512;
/// Bytes in one message, with room for the framing below the promised 1 MiB.
const CHUNK_BYTES: usize = 1_000_000;
/// The client may rely on a sign of life this often.
const BOOKMARK_EVERY: Duration = Duration::from_secs(30);
/// Changes taken from the log at once.
const BATCH: usize = 64;

/// One message of a watch, before it is put into the words of its service.
#[derive(Debug, PartialEq)]
pub(crate) enum Frame<M> {
    /// Everything so far is void.
    Reset,
    /// Part of the listing.
    Items(Vec<M>),
    /// The listing is complete.
    Synced { count: u64, checksum: u64, observed: Instant, token: String },
    /// New or changed.
    Upsert(M),
    /// No longer there: how it looked last.
    Gone(M),
    /// Nothing else changed up to then.
    Bookmark { observed: Instant, token: String },
}

/// How a client wants to watch.
#[derive(Clone, Debug)]
pub(crate) struct WatchOptions {
    /// Who watches.
    pub(crate) caller: Caller,
    /// End after SYNCED.
    pub(crate) stop_when_synced: bool,
    /// Go on after this token.
    pub(crate) resume_token: String,
    /// Part of tokens: a token of another process, or for another view, is not continued.
    pub(crate) epoch: String,
    /// The oldest listing that will do; `None` takes any complete one.
    pub(crate) bound: Option<Instant>,
}

/// From an item to its message; `None`: this watcher does not see it.
type View<T, M> = Box<dyn Fn(&T) -> Option<M> + Send + Sync>;

/// A position in a snapshot. Counts as a reason to keep the snapshot fresh for as long as it lives.
pub(crate) struct Watcher<T: Item, M> {
    snapshot: Arc<Snapshot<T>>,
    /// Given back before anybody is told that it is: see [`Drop`].
    place: Option<Place>,
    view: View<T, M>,
    key: fn(&M) -> &str,
    changed: signal::Receiver<u64>,
    options: WatchOptions,
    phase: Phase,
    /// What was handed over of the listing.
    listed: Listed,
    ready: VecDeque<Frame<M>>,
    position: u64,
    born: Instant,
    last_frame: Instant,
    last_observed: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    /// Waits for a listing that is fresh enough.
    Waiting,
    Listing {
        observed: Instant,
    },
    Following,
    Ended,
}

/// A listing that is handed over. What changes behind its place meanwhile is in the log, from the position on at which it began.
#[derive(Debug, Default)]
struct Listed {
    /// The key of the last item that was handed over, if there are more.
    after: Option<String>,
    count: u64,
    checksum: u64,
}

impl<T: Item, M: Message> Watcher<T, M> {
    /// Begins a watch of the items for which `view` has a message. `key` names a message's item, for the checksum.
    ///
    /// # Errors
    /// `QUEUE_FULL` if the caller, or all together, watch the collection too often already.
    pub(crate) fn new(
        snapshot: Arc<Snapshot<T>>,
        options: WatchOptions,
        view: impl Fn(&T) -> Option<M> + Send + Sync + 'static,
        key: fn(&M) -> &str,
    ) -> Result<Self, AdapterError> {
        let place = snapshot.watches.take(T::COLLECTION, &options.caller)?;
        snapshot.want(options.bound);
        let mut watcher = Self {
            changed: snapshot.revision.subscribe(),
            snapshot,
            place: Some(place),
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

    /// The next message; `None` once the watch is over.
    ///
    /// # Errors
    /// While nothing was listed that is fresh enough and the last attempt failed: why. Ends the watch.
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
                    // An older failure is no answer: this watch is a reason to try again.
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

    /// Goes on after the client's token, if everything since is still in the log.
    fn resume(&mut self) {
        let Some((epoch, position)) = self.options.resume_token.rsplit_once('/') else { return };
        let Ok(position) = position.parse() else { return };
        let kept = self.snapshot.with(|state| state.log.since(position, 0).is_some());
        if epoch == self.options.epoch && kept {
            self.position = position;
            self.phase = Phase::Following;
        }
    }

    /// Begins to hand a listing over, if there is one that is fresh enough.
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

    /// Queues the next part of the listing, at most [`CHUNK`] items and about [`CHUNK_BYTES`], and its end if that was the last. Begins
    /// anew if the collection was forgotten meanwhile, or so much has changed that the log does not tell all of it.
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

    /// Queues what changed since the position; a BOOKMARK if a newer listing found nothing else, or it was quiet for long.
    /// True: there is more to read at once.
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

    /// Until something may have changed or a bookmark is due. False: the snapshot is no more.
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
        drop(self.place.take());
        self.snapshot.wake();
    }
}

/// One change an item, the latest, with how it was before the first.
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

/// The checksum of a listing with these keys. Source: `Synced.checksum` in the contract.
pub(crate) fn checksum<'a>(keys: impl Iterator<Item = &'a str>) -> u64 {
    keys.map(digest).fold(0, u64::wrapping_add)
}

/// An item's part of it.
fn digest(key: &str) -> u64 {
    Sha256::digest(key).iter().take(8).fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}
