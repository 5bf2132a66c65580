//! The watch protocol of the contract as a state machine: events in, effects out; no clock, no stream.

use std::sync::Arc;

use cloud_api_proto::v1alpha1::{Bookmark, Scope, Synced};
use jiff::Timestamp;
use sha2::{Digest as _, Sha256};

use crate::mirror::{Change, Content, put, replace};

/// One event of a watch. Items carry the key that names them in this stream.
#[derive(Clone, Debug, PartialEq)]
pub enum Event<T> {
    /// A listing begins.
    Reset(Option<Scope>),
    /// Part of it.
    Items(Vec<(String, T)>),
    /// It is complete.
    Synced(Synced),
    /// New or changed.
    Upsert(String, T),
    /// No longer listed; proves nothing.
    Gone(String),
    /// Nothing else changed.
    Bookmark(Bookmark),
}

impl<T> Event<T> {
    /// The same event over other items.
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

/// How a stream can break the protocol. The listing is dropped, the next one starts from the beginning.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// An event that has no place there.
    #[error("{event} {place}")]
    Misplaced {
        /// What came.
        event: &'static str,
        /// Where.
        place: &'static str,
    },
    /// The listing holds another number of items than its end says; items twice count once.
    #[error("listing of {count} items has {got} different ones")]
    Count {
        /// What was announced.
        count: u64,
        /// What was received.
        got: u64,
    },
    /// The listing holds other items than its end says.
    #[error("listing has a wrong checksum")]
    Checksum,
}

/// What one event brings about.
#[derive(Debug)]
pub(super) struct Effects<T> {
    pub(super) changes: Vec<Change<String, T>>,
    /// The other side shows that it is there.
    pub(super) alive: bool,
    /// The content is what the vendor said at this time, on the adapter's clock.
    pub(super) observed: Option<Timestamp>,
    /// A listing is complete.
    pub(super) synced: bool,
    /// The fingerprint of the scope was another one before: (before, now).
    pub(super) moved: Option<(String, String)>,
}

impl<T> Default for Effects<T> {
    fn default() -> Self {
        Self { changes: Vec::new(), alive: false, observed: None, synced: false, moved: None }
    }
}

/// Where in the protocol we are. Outlives connections.
#[derive(Debug)]
pub(super) struct Protocol<T> {
    /// Some while a listing runs.
    listing: Option<Listing<T>>,
    /// Belongs to the content in force, never to a listing under way.
    token: String,
    /// Fingerprint of the scope that the content in force belongs to.
    scope: Option<String>,
    /// Continuity holds: changes may be applied to the content in force.
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
    /// What to resume from; empty: from the beginning.
    pub(super) fn token(&self) -> &str {
        &self.token
    }

    /// Fingerprint of the scope of the content in force.
    pub(super) fn scope(&self) -> Option<&str> {
        self.scope.as_deref()
    }

    /// The stream is gone: a listing under way says nothing. After a violation nothing is resumed either.
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

    /// A change alone does not say how old the rest is.
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

/// The sum, modulo 2^64, of the first eight bytes (big endian) of the SHA-256 of each key: independent of order.
pub(crate) fn checksum<'a>(keys: impl IntoIterator<Item = &'a String>) -> u64 {
    let head = |key: &String| {
        let digest = Sha256::digest(key.as_bytes());
        digest.iter().take(8).fold(0, |sum: u64, byte| sum << 8 | u64::from(*byte))
    };
    keys.into_iter().fold(0, |sum, key| sum.wrapping_add(head(key)))
}

#[cfg(test)]
mod tests;
