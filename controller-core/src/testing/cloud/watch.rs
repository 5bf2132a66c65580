//! Serves one watch for each of the three collections. A watch sends a listing, and then the differences between the sent and the current
//! items.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use cloud_api_proto::v1alpha1::{Bookmark, Reset, Scope, Synced};
use futures::{StreamExt as _, stream};
use prost_types::Timestamp;
use tonic::Status;

use super::{Messages, Shared, State};
use crate::mirror::cloud::checksum;

/// The bookmark interval in the contract.
const BOOKMARK: Duration = Duration::from_secs(30);

pub(super) enum StreamEvent<T> {
    Reset(Reset),
    Items(Vec<T>),
    Synced(Synced),
    Upsert(T),
    Gone(String),
    Bookmark(Bookmark),
}

/// Streams a collection. The fake ignores resume tokens, because an adapter may always answer with a Reset.
pub(super) fn watch<T, M>(
    shared: &Arc<Shared>,
    collection: fn(&State) -> BTreeMap<String, T>,
    message: fn(StreamEvent<T>) -> M,
) -> Messages<M>
where
    T: Clone + PartialEq + Send + 'static,
    M: Send + 'static,
{
    let begin = Sent { shared: Arc::clone(shared), changed: shared.changed.subscribe(), known: None };
    stream::unfold(begin, move |mut sent| async move {
        let events = loop {
            sent.changed.mark_unchanged();
            let (now, observed_at) = sent.content(collection);
            let events = sent.difference(now, observed_at);
            if !events.is_empty() {
                break events.into_iter().chain([bookmark(observed_at)]).collect::<Vec<_>>();
            }
            match tokio::time::timeout(BOOKMARK, sent.changed.changed()).await {
                Ok(Ok(())) => (),
                Ok(Err(_closed)) => return None,
                Err(_elapsed) => break vec![bookmark(sent.content(collection).1)],
            }
        };
        let messages: Vec<Result<M, Status>> = events.into_iter().map(message).map(Ok).collect();
        Some((stream::iter(messages), sent))
    })
    .flatten()
    .boxed()
}

const TOKEN: &str = "fake";

struct Sent<T> {
    shared: Arc<Shared>,
    changed: tokio::sync::watch::Receiver<()>,
    /// The items that were sent, or `None` before the listing.
    known: Option<BTreeMap<String, T>>,
}

impl<T: Clone + PartialEq> Sent<T> {
    /// Returns the content, and the time at which the vendor was asked for this content.
    fn content(&self, collection: fn(&State) -> BTreeMap<String, T>) -> (BTreeMap<String, T>, Timestamp) {
        let state = self.shared.state();
        (collection(&state), self.shared.observed(&state))
    }

    fn difference(&mut self, now: BTreeMap<String, T>, observed_at: Timestamp) -> Vec<StreamEvent<T>> {
        let Some(known) = self.known.replace(now.clone()) else {
            let scope = self.shared.state().info.scope.clone();
            return listing(now, observed_at, scope.unwrap_or_else(|| scope_of("fake")));
        };
        let gone = known.keys().filter(|key| !now.contains_key(*key)).cloned().map(StreamEvent::Gone);
        let upserts = now.iter().filter(|(key, item)| known.get(*key) != Some(*item));
        gone.chain(upserts.map(|(_, item)| StreamEvent::Upsert(item.clone()))).collect()
    }
}

fn bookmark<T>(observed_at: Timestamp) -> StreamEvent<T> {
    StreamEvent::Bookmark(Bookmark { observed_at: Some(observed_at), token: TOKEN.to_owned() })
}

pub(super) fn scope_of(project: &str) -> Scope {
    Scope { project: project.to_owned(), fingerprint: project.to_owned(), ..Scope::default() }
}

fn listing<T: Clone>(
    items: BTreeMap<String, T>,
    observed_at: Timestamp,
    scope: Scope,
) -> Vec<StreamEvent<T>> {
    let synced = Synced {
        count: u64::try_from(items.len()).unwrap_or(u64::MAX),
        checksum: checksum(items.keys()),
        observed_at: Some(observed_at),
        token: TOKEN.to_owned(),
    };
    let items: Vec<T> = items.into_values().collect();
    let chunks = items.chunks(512).map(|chunk| StreamEvent::Items(chunk.to_vec()));
    let end = [StreamEvent::Synced(synced)];
    [StreamEvent::Reset(Reset { scope: Some(scope) })].into_iter().chain(chunks).chain(end).collect()
}
