//! The watch protocol of the contract as a state machine that turns events into effects. It uses no clock and no stream.

use std::sync::Arc;

use cloud_api_proto::v1alpha1::{Bookmark, Scope, Synced};
use jiff::Timestamp;
use sha2::{Digest as _, Sha256};

use crate::mirror::{Change, Content, put, replace};

/// An event of a watch. Each item comes with the key that identifies the item in this stream.
#[derive(Clone, Debug, PartialEq)]
pub enum Event<T> {
    /// A listing begins.
    Reset(Option<Scope>),
    /// Some of the items of the listing.
    Items(Vec<(String, T)>),
    /// The listing is complete.
    Synced(Synced),
    /// A new or changed item.
    Upsert(String, T),
    /// An item has left the listing, which does not prove that the item is gone.
    Gone(String),
    /// A bookmark: no item changed.
    Bookmark(Bookmark),
}

impl<T> Event<T> {
    /// Returns the same event with converted items.
    pub fn map<U>(self, trim: impl Fn(T) -> U) -> Event<U> {
        match self {
            Self::Reset(scope) => Event::Reset(scope),
            Self::Items(items) => {
                Event::Items(items.into_iter().map(|(key, item)| (key, trim(item))).collect())
            }
            Self::Synced(synced) => Event::Synced(synced),
            Self::Upsert(key, item) => Event::Upsert(key, trim(item)),
            Self::Gone(key) => Event::Gone(key),
            Self::Bookmark(bookmark) => Event::Bookmark(bookmark),
        }
    }
}

/// A violation of the protocol by the stream. The listing is dropped, and the next one starts from the beginning.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// The event is not allowed in this state.
    #[error("{event} {place}")]
    Misplaced {
        /// The event.
        event: &'static str,
        /// The state.
        place: &'static str,
    },
    /// The number of distinct items differs from the number that was announced at the end of the listing.
    #[error("listing announces {count} items but contains {got} different ones")]
    Count {
        /// The announced number.
        count: u64,
        /// The received number.
        got: u64,
    },
    /// The checksum of the received items differs from the announced checksum.
    #[error("listing has a wrong checksum")]
    Checksum,
}

#[derive(Debug)]
pub(super) struct Effects<T> {
    pub(super) changes: Vec<Change<String, T>>,
    /// Whether the event shows that the other side is alive.
    pub(super) alive: bool,
    /// The time of the vendor's answer that the content matches, by the adapter's clock.
    pub(super) observed: Option<Timestamp>,
    pub(super) synced: bool,
    /// The old and the new fingerprint of the scope, if the scope changed.
    pub(super) moved: Option<(String, String)>,
}

impl<T> Default for Effects<T> {
    fn default() -> Self {
        Self { changes: Vec::new(), alive: false, observed: None, synced: false, moved: None }
    }
}

/// The state of the protocol, which survives a reconnect.
#[derive(Debug)]
pub(super) struct Protocol<T> {
    /// The items received so far of a listing in progress.
    listing: Option<Listing<T>>,
    /// The resume token of the current content, never of a listing in progress.
    token: String,
    /// Fingerprint of the scope (the part of the cloud) from which the current content comes.
    scope: Option<String>,
    /// Whether changes may be applied to the current content. This is so if no event was missed since the listing.
    live: bool,
}

#[derive(Debug)]
struct Listing<T> {
    items: Content<String, T>,
    scope: Option<String>,
}

impl<T> Default for Protocol<T> {
    fn default() -> Self {
        Self { listing: None, token: String::new(), scope: None, live: false }
    }
}

impl<T: PartialEq> Protocol<T> {
    /// Returns the token to resume from. If the token is empty, the next watch starts from the beginning.
    pub(super) fn token(&self) -> &str {
        &self.token
    }

    pub(super) fn scope(&self) -> Option<&str> {
        self.scope.as_deref()
    }

    /// Handles the end of the stream: drops a listing in progress. After a violation, the next watch starts from the beginning.
    pub(super) fn disconnected(&mut self, violated: bool) {
        self.listing = None;
        if violated {
            self.token.clear();
        }
        self.live = !self.token.is_empty();
    }

    pub(super) fn step(
        &mut self,
        content: &mut Content<String, T>,
        event: Event<T>,
    ) -> Result<Effects<T>, Violation> {
        match event {
            Event::Reset(scope) => {
                let scope = scope.map(|scope| scope.fingerprint);
                self.listing = Some(Listing { items: Content::new(), scope });
                self.live = false;
                Ok(Effects::default())
            }
            Event::Items(items) => {
                let misplaced = Violation::Misplaced { event: "items", place: "outside a listing" };
                let listing = self.listing.as_mut().ok_or(misplaced)?;
                listing.items.extend(items.into_iter().map(|(key, item)| (key, Arc::new(item))));
                Ok(Effects::default())
            }
            Event::Synced(synced) => self.synced(content, synced),
            Event::Upsert(key, item) => self.change("an upsert", content, key, Some(item)),
            Event::Gone(key) => self.change("a removal", content, key, None),
            Event::Bookmark(bookmark) => {
                self.must_be_live("a bookmark")?;
                self.token = bookmark.token;
                let observed = bookmark.observed_at.and_then(time);
                Ok(Effects { alive: true, observed, ..Effects::default() })
            }
        }
    }

    fn synced(&mut self, content: &mut Content<String, T>, synced: Synced) -> Result<Effects<T>, Violation> {
        let misplaced = Violation::Misplaced { event: "the end of a listing", place: "outside a listing" };
        let listing = self.listing.take().ok_or(misplaced)?;
        let got = u64::try_from(listing.items.len()).unwrap_or(u64::MAX);
        if got != synced.count {
            return Err(Violation::Count { count: synced.count, got });
        }
        if checksum(listing.items.keys()) != synced.checksum {
            return Err(Violation::Checksum);
        }
        let moved = match (&self.scope, &listing.scope) {
            (Some(from), Some(to)) if from != to => Some((from.clone(), to.clone())),
            _ => None,
        };
        self.scope = listing.scope;
        self.token = synced.token;
        self.live = true;
        let observed = synced.observed_at.and_then(time);
        let changes = replace(content, listing.items);
        Ok(Effects { changes, alive: true, observed, synced: true, moved })
    }

    /// Applies one change. The observation time stays the same, because a single change does not show how old the other items are.
    fn change(
        &mut self,
        event: &'static str,
        content: &mut Content<String, T>,
        key: String,
        item: Option<T>,
    ) -> Result<Effects<T>, Violation> {
        self.must_be_live(event)?;
        let changes = put(content, key, item).into_iter().collect();
        Ok(Effects { changes, alive: true, ..Effects::default() })
    }

    fn must_be_live(&self, event: &'static str) -> Result<(), Violation> {
        let place = if self.listing.is_some() { "inside a listing" } else { "before a listing" };
        if self.live { Ok(()) } else { Err(Violation::Misplaced { event, place }) }
    }
}

fn time(at: prost_types::Timestamp) -> Option<Timestamp> {
    Timestamp::new(at.seconds, at.nanos).ok()
}

/// Returns the sum, modulo 2^64, of the first eight bytes (big endian) of the SHA-256 of each key. The order of the keys does not matter.
pub(crate) fn checksum<'a>(keys: impl IntoIterator<Item = &'a String>) -> u64 {
    let head = |key: &String| {
        let digest = Sha256::digest(key.as_bytes());
        digest.iter().take(8).fold(0, |sum: u64, byte| sum << 8 | u64::from(*byte))
    };
    keys.into_iter().fold(0, |sum, key| sum.wrapping_add(head(key)))
}

#[cfg(test)]
mod tests;
