//! The watch protocol from the standby's side. This module is pure.
//!
//! Watches are not resumed, because a replica follows one leader at a time, and begins with a listing.

use std::{collections::BTreeMap, time::SystemTime};

use cloud_api_proto::v1alpha1::{
    Bookmark, Instance, Route, Scope, Synced, WatchInstancesResponse, WatchRoutesResponse,
    watch_instances_response, watch_routes_response,
};

use crate::{driver::Item, snapshot::checksum};

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Event<T> {
    /// A listing begins.
    Reset(Option<Scope>),
    Items(Vec<T>),
    Synced {
        count: u64,
        checksum: u64,
        observed: SystemTime,
    },
    Upsert(T),
    /// The key of a deleted item.
    Gone(String),
    /// There are no other changes up to this time.
    Bookmark {
        observed: SystemTime,
    },
}

/// The leader violated the protocol, so the watch is restarted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Violation {
    /// The leader sent items or the end of a listing outside of a listing.
    #[error("part of a listing outside of a listing")]
    NoListing,
    /// The leader sent a change before the listing was complete.
    #[error("a change before the listing is complete")]
    NotSynced,
    /// The number of items, or their checksum, differs from the one that the leader announced at the end of the listing.
    #[error("the listing has {got} items, but {count} were announced")]
    Different { count: u64, got: u64 },
}

/// The state of the protocol for one watch.
#[derive(Debug, Default)]
pub(super) enum Follower<T> {
    #[default]
    Waiting,
    Listing(BTreeMap<String, T>),
    /// The listing is complete, and changes may be applied.
    Live,
}

impl<T: Item> Follower<T> {
    pub(super) fn reset(&mut self) {
        *self = Self::Listing(BTreeMap::new());
    }

    pub(super) fn items(&mut self, items: Vec<T>) -> Result<(), Violation> {
        let Self::Listing(listing) = self else { return Err(Violation::NoListing) };
        listing.extend(items.into_iter().map(|item| (item.key().to_owned(), item)));
        Ok(())
    }

    /// Ends the listing and returns its items, if their number and checksum match those that the leader announced.
    pub(super) fn synced(&mut self, count: u64, wanted: u64) -> Result<Vec<T>, Violation> {
        let Self::Listing(listing) = std::mem::replace(self, Self::Live) else {
            *self = Self::Waiting;
            return Err(Violation::NoListing);
        };
        let got = u64::try_from(listing.len()).unwrap_or(u64::MAX);
        if got != count || checksum(listing.keys().map(String::as_str)) != wanted {
            *self = Self::Waiting;
            return Err(Violation::Different { count, got });
        }
        Ok(listing.into_values().collect())
    }

    /// Returns `change` if the listing is complete, so that the change can be applied.
    pub(super) fn change<C>(&self, change: C) -> Result<C, Violation> {
        match self {
            Self::Live => Ok(change),
            Self::Waiting | Self::Listing(_) => Err(Violation::NotSynced),
        }
    }
}

pub(super) trait Message<T> {
    /// Returns the event of the message. `None`: the event belongs to a newer contract, or lacks its required time.
    fn event(self) -> Option<Event<T>>;
}

impl Message<Instance> for WatchInstancesResponse {
    fn event(self) -> Option<Event<Instance>> {
        use watch_instances_response::Event as WatchEvent;

        Some(match self.event? {
            WatchEvent::Reset(reset) => Event::Reset(reset.scope),
            WatchEvent::Items(items) => Event::Items(items.items),
            WatchEvent::Synced(synced) => return end(&synced),
            WatchEvent::Upsert(instance) => Event::Upsert(instance),
            WatchEvent::Gone(gone) => Event::Gone(gone.provider_id),
            WatchEvent::Bookmark(bookmark) => return sign(&bookmark),
        })
    }
}

impl Message<Route> for WatchRoutesResponse {
    fn event(self) -> Option<Event<Route>> {
        use watch_routes_response::Event as WatchEvent;

        Some(match self.event? {
            WatchEvent::Reset(reset) => Event::Reset(reset.scope),
            WatchEvent::Items(items) => Event::Items(items.items),
            WatchEvent::Synced(synced) => return end(&synced),
            WatchEvent::Upsert(route) => Event::Upsert(route),
            WatchEvent::Gone(gone) => Event::Gone(gone.vendor_id),
            WatchEvent::Bookmark(bookmark) => return sign(&bookmark),
        })
    }
}

fn end<T>(synced: &Synced) -> Option<Event<T>> {
    let observed = SystemTime::try_from(synced.observed_at?).ok()?;
    Some(Event::Synced { count: synced.count, checksum: synced.checksum, observed })
}

fn sign<T>(bookmark: &Bookmark) -> Option<Event<T>> {
    Some(Event::Bookmark { observed: SystemTime::try_from(bookmark.observed_at?).ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instance(id: &str) -> Instance {
        Instance { provider_id: id.to_owned(), ..Instance::default() }
    }

    #[test]
    fn listing_must_have_the_announced_items() {
        let whole = checksum(["a", "b"].into_iter());
        for (count, sum, right) in [(2, whole, true), (3, whole, false), (2, whole ^ 1, false)] {
            let mut follower = Follower::default();
            follower.reset();
            follower.items(vec![instance("a")]).expect("in a listing");
            // An item that is repeated in the listing counts once.
            follower.items(vec![instance("a"), instance("b")]).expect("in a listing");
            assert_eq!(follower.synced(count, sum).is_ok(), right, "{count} {sum}");
            assert_eq!(follower.change(()).is_ok(), right, "changes apply to a complete listing only");
        }
    }

    #[test]
    fn a_listing_begins_with_a_reset() {
        let mut follower = Follower::<Instance>::default();
        assert_eq!(follower.items(vec![instance("a")]), Err(Violation::NoListing));
        assert_eq!(follower.synced(0, 0), Err(Violation::NoListing));
        assert_eq!(follower.change(()), Err(Violation::NotSynced));
    }
}
