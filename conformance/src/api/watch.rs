//! Watch streams, read event by event or as a listing. Every wait has a time limit, and every stored listing has a size limit.

use std::{fmt::Debug, time::Duration};

use cloud_api_proto::v1alpha1::{
    Bookmark, Evidence, Instance, LoadBalancer, Reset, Route, Scope, Synced, WatchInstancesResponse,
    WatchLoadBalancersResponse, WatchRoutesResponse, watch_instances_response, watch_load_balancers_response,
    watch_routes_response,
};
use tokio::time::Instant;
use tonic::{Code, Status, Streaming};

use super::{Api, CallResult};
use crate::{transcript::brief, verdict::Stop};

/// The maximum number of items in a listing, so that an endless stream cannot exhaust memory.
const ITEMS_MAX: usize = 200_000;

/// A running stream. Dropping this value ends the stream.
#[derive(Debug)]
pub struct Watch<T> {
    method: &'static str,
    stream: Streaming<T>,
    api: Api,
}

/// One event of a watch. All three watches use this type.
#[derive(Clone, Debug, PartialEq)]
pub enum Mirror<I> {
    /// A Reset: all items received so far are invalid.
    Reset(Reset),
    /// Items of the listing.
    Items(Vec<I>),
    /// The listing is complete.
    Synced(Synced),
    /// An item was created or changed.
    Upsert(I),
    /// An item was deleted.
    Gone {
        /// The key of the deleted item, see [`Event::key`].
        key: String,
        /// The proof of absence; set only in the watch of instances.
        evidence: Option<Evidence>,
    },
    /// A Bookmark. It reports no change, but carries a cursor.
    Bookmark(Bookmark),
    /// An event of a newer contract, or an empty one.
    Unknown,
}

/// A response of one of the three watches.
pub trait Event: Debug + Sized {
    /// The type of the items.
    type Item: Debug + Clone;

    /// Converts the response to an event that is the same for all three watches.
    fn mirror(self) -> Mirror<Self::Item>;

    /// Returns the key of an item in the stream. Checksums are computed from keys.
    fn key(item: &Self::Item) -> &str;
}

/// A complete listing: all messages from the last Reset to Synced.
#[derive(Clone, Debug)]
pub struct Listing<I> {
    /// The scope in the Reset event.
    pub scope: Option<Scope>,
    /// All items, in order of arrival.
    pub items: Vec<I>,
    /// Number of items in each message.
    pub chunks: Vec<usize>,
    /// The Synced event that ended the listing.
    pub synced: Synced,
}

impl<T: Debug> Watch<T> {
    pub(super) fn new(method: &'static str, stream: Streaming<T>, api: Api) -> Self {
        Self { method, stream, api }
    }

    /// The next message, or `None` if the stream ended without an error.
    pub async fn next(&mut self, within: Duration) -> CallResult<Option<T>> {
        let begun = Instant::now();
        let late = |_elapsed| {
            let text = format!("the stream sent no message within {} ms", within.as_millis());
            Status::new(Code::DeadlineExceeded, text)
        };
        let message = tokio::time::timeout(within, self.stream.message()).await.map_err(late);
        let took = begun.elapsed();
        match message.and_then(|message| message) {
            Ok(message) => {
                let text = message.as_ref().map_or_else(|| "end of stream".to_owned(), |one| brief(one));
                self.api.transcript.came(&self.api.role.to_string(), self.method, &text, took);
                Ok(message)
            }
            Err(status) => Err(self.api.error(self.method, status, took)),
        }
    }
}

impl<T: Event> Watch<T> {
    /// Returns the next event.
    pub async fn event(&mut self, within: Duration) -> Result<Mirror<T::Item>, Stop> {
        let message = self.next(within).await?;
        message.map(T::mirror).ok_or_else(|| Stop::failed("the stream continues", "the value is not set"))
    }

    /// Reads up to the next Synced event, from any position of the stream.
    pub async fn listing(&mut self, within: Duration) -> Result<Listing<T::Item>, Stop> {
        let end = Instant::now() + within;
        let (mut scope, mut items, mut chunks) = (None, Vec::new(), Vec::new());
        loop {
            match self.event(end.saturating_duration_since(Instant::now())).await? {
                Mirror::Reset(reset) => {
                    (scope, items, chunks) = (reset.scope, Vec::new(), Vec::new());
                }
                Mirror::Items(more) => {
                    chunks.push(more.len());
                    items.extend(more);
                    if items.len() > ITEMS_MAX {
                        let came = format!("more than {ITEMS_MAX} items");
                        return Err(Stop::failed("a listing ends with Synced", came));
                    }
                }
                Mirror::Synced(synced) => return Ok(Listing { scope, items, chunks, synced }),
                Mirror::Upsert(_) | Mirror::Gone { .. } | Mirror::Bookmark(_) | Mirror::Unknown => (),
            }
        }
    }
}

/// Implements [`Event`] for the response of one watch. A macro is needed, because each watch has its own types for the same events.
macro_rules! event {
    ($response:ident, $module:ident, $item:ident, $key:ident, $gone:ident => $evidence:expr) => {
        impl Event for $response {
            type Item = $item;

            fn mirror(self) -> Mirror<$item> {
                use $module::Event;
                match self.event {
                    Some(Event::Reset(reset)) => Mirror::Reset(reset),
                    Some(Event::Items(items)) => Mirror::Items(items.items),
                    Some(Event::Synced(synced)) => Mirror::Synced(synced),
                    Some(Event::Upsert(item)) => Mirror::Upsert(item),
                    Some(Event::Gone($gone)) => Mirror::Gone { evidence: $evidence, key: $gone.$key },
                    Some(Event::Bookmark(bookmark)) => Mirror::Bookmark(bookmark),
                    None => Mirror::Unknown,
                }
            }

            fn key(item: &$item) -> &str {
                &item.$key
            }
        }
    };
}

event!(WatchInstancesResponse, watch_instances_response, Instance, provider_id, gone => gone.evidence);
event!(WatchLoadBalancersResponse, watch_load_balancers_response, LoadBalancer, vendor_id, gone => None);
event!(WatchRoutesResponse, watch_routes_response, Route, vendor_id, gone => None);
