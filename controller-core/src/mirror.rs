//! Local mirrors of both sides: the desired state in Kubernetes and the state in the cloud, trimmed to the fields that the controller uses.
//!
//! - [`kubernetes`] follows a watch on the API server, [`cloud`] follows a watch on the adapter; both update a [`Mirror`].
//! - [`one`] follows a single object of the API server, which need not exist.
//! - A listing takes effect only when it is complete. Until then the old content stays.
//! - A change of other fields than the trimmed ones (such as a kubelet's heartbeat) triggers no reconcile.
//! - A mirror never proves absence: before a change that cannot be undone, code must check again with a live request.

pub mod cloud;
pub mod kubernetes;
mod metrics;
pub mod one;

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use jiff::Timestamp;
use tokio::sync::watch;

pub use self::metrics::{Measured, register};
use crate::{Clock, Link};

/// The name of a Kubernetes object of one kind, `namespace/name` or `name`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectName {
    /// The namespace. `None` for cluster-scoped kinds.
    pub namespace: Option<String>,
    /// The name within its namespace.
    pub name: String,
}

impl ObjectName {
    /// Returns the name of a cluster-scoped object, such as a Node.
    pub fn cluster(name: impl Into<String>) -> Self {
        Self { namespace: None, name: name.into() }
    }

    /// Returns the name of a namespaced object, such as a Service.
    pub fn namespaced(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: Some(namespace.into()), name: name.into() }
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{namespace}/{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// An item that changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change<K, T> {
    /// The key of the item.
    pub key: K,
    /// The old item. `None`: the item did not exist.
    pub old: Option<Arc<T>>,
    /// The new item. `None`: the item no longer exists.
    pub new: Option<Arc<T>>,
    /// Whether the other side reported this change. Otherwise the change follows from a listing: an item may be missing in the listing
    /// because the item was removed, or because the listing is wrong.
    pub reported: bool,
}

pub(crate) type Content<K, T> = BTreeMap<K, Arc<T>>;

/// A mirror of one collection. Clones share the state.
#[derive(Debug)]
pub struct Mirror<K, T> {
    inner: Arc<Inner<K, T>>,
}

#[derive(Debug)]
struct Inner<K, T> {
    /// The name for logs and metrics: `nodes`, `instances`.
    what: &'static str,
    clock: Clock,
    content: RwLock<Content<K, T>>,
    synced: watch::Sender<bool>,
    link: watch::Sender<Link>,
    /// The fingerprint of the scope (the part of the cloud) that the content comes from, if the other side reports it.
    scope: watch::Sender<Option<String>>,
    /// Number of connections on which the other side has answered. Each connection may lead to another process.
    connections: watch::Sender<u64>,
    /// The latest time at which the content is known to have been right, on the local clock.
    observed: watch::Sender<Option<Timestamp>>,
}

impl<K, T> Clone for Mirror<K, T> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<K: Ord + Clone, T> Mirror<K, T> {
    /// Creates an empty mirror that is not synced. `what` is for logs and for the metric label `mirror`: `nodes`, `instances`.
    #[must_use]
    pub fn new(what: &'static str, clock: Clock) -> Self {
        let inner = Inner {
            what,
            clock,
            content: RwLock::default(),
            synced: watch::Sender::new(false),
            link: watch::Sender::new(Link::Starting),
            scope: watch::Sender::new(None),
            connections: watch::Sender::new(0),
            observed: watch::Sender::new(None),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Returns the name of the mirrored collection.
    #[must_use]
    pub fn what(&self) -> &'static str {
        self.inner.what
    }

    /// Returns one item.
    #[must_use]
    pub fn get<Q>(&self, key: &Q) -> Option<Arc<T>>
    where
        K: std::borrow::Borrow<Q>,
        Q: Ord + ?Sized,
    {
        self.read(|content| content.get(key).cloned())
    }

    /// Returns all items in the order of their keys.
    #[must_use]
    pub fn items(&self) -> Vec<(K, Arc<T>)> {
        self.read(|content| content.iter().map(|(key, item)| (key.clone(), Arc::clone(item))).collect())
    }

    /// Reads the content without copying it. `reader` must return quickly, since it blocks updates of the mirror.
    pub fn read<R>(&self, reader: impl FnOnce(&BTreeMap<K, Arc<T>>) -> R) -> R {
        reader(&self.inner.content.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns whether the mirror has received a complete listing since the start.
    #[must_use]
    pub fn is_synced(&self) -> bool {
        *self.inner.synced.borrow()
    }

    /// Waits until the mirror is synced.
    pub async fn synced(&self) {
        // Waiting cannot fail, because `self` owns the sender.
        let _closed = self.inner.synced.subscribe().wait_for(|synced| *synced).await.is_err();
    }

    /// Returns the state of the connection to the other side.
    #[must_use]
    pub fn link(&self) -> Link {
        self.inner.link.borrow().clone()
    }

    /// Returns a receiver of the changes of the link.
    #[must_use]
    pub fn links(&self) -> watch::Receiver<Link> {
        self.inner.link.subscribe()
    }

    /// Returns a receiver that changes whenever the other side answers on a new connection. This happens even without an outage, because
    /// another process may now answer.
    #[must_use]
    pub fn connections(&self) -> watch::Receiver<u64> {
        self.inner.connections.subscribe()
    }

    /// Returns the latest time at which the content is known to have been correct, or `None` if no such time is known yet.
    ///
    /// For a mirror of the cloud, this is the time when the adapter asked the vendor, on the adapter's wall clock. The time is never later
    /// than the local time of arrival. If the adapter's clock is ahead, the mirror looks younger by at most the transmission time. If the
    /// adapter's clock is behind, the mirror looks older by the whole difference.
    #[must_use]
    pub fn observed(&self) -> Option<Timestamp> {
        *self.inner.observed.borrow()
    }

    /// Returns the time since [`Self::observed`], at least zero.
    #[must_use]
    pub fn age(&self) -> Option<Duration> {
        let age = self.inner.clock.now().duration_since(self.observed()?);
        Some(age.try_into().unwrap_or_default())
    }

    /// Checks readiness: the mirror must be synced and connected. The error says what is missing.
    pub fn readiness(&self) -> Result<(), String> {
        let link = self.link();
        match (self.is_synced(), link.is_up()) {
            (true, true) => Ok(()),
            (true, false) => Err(format!("{}: {link}", self.what())),
            (false, _) => Err(format!("{}: not listed yet, {link}", self.what())),
        }
    }

    pub(crate) fn write<R>(&self, writer: impl FnOnce(&mut Content<K, T>) -> R) -> R {
        writer(&mut self.inner.content.write().unwrap_or_else(PoisonError::into_inner))
    }

    /// Records that the content was correct at the time `at` of the other side's clock.
    pub(crate) fn mark_observed(&self, at: Timestamp) {
        self.inner.observed.send_replace(Some(at.min(self.inner.clock.now())));
    }

    pub(crate) fn mark_fresh(&self) {
        self.mark_observed(self.inner.clock.now());
    }

    /// Returns the fingerprint of the scope (the part of the cloud) that the content comes from. Returns `None` if the content does not
    /// come from the cloud, or if the adapter reports no scope.
    pub(crate) fn scope(&self) -> Option<String> {
        self.inner.scope.borrow().clone()
    }

    pub(crate) fn mark_scope(&self, scope: Option<String>) {
        self.inner.scope.send_replace(scope);
    }

    pub(crate) fn mark_synced(&self) {
        self.inner.synced.send_if_modified(|synced| !std::mem::replace(synced, true));
    }
}

pub(crate) fn replace<K: Ord + Clone, T: PartialEq>(
    content: &mut Content<K, T>,
    new: Content<K, T>,
) -> Vec<Change<K, T>> {
    let mut old = std::mem::replace(content, new);
    let mut changes = Vec::new();
    for (key, item) in content.iter() {
        let before = old.remove(key);
        if before.as_ref() != Some(item) {
            changes.push(Change {
                key: key.clone(),
                old: before,
                new: Some(Arc::clone(item)),
                reported: false,
            });
        }
    }
    let gone = old.into_iter().map(|(key, item)| Change { key, old: Some(item), new: None, reported: false });
    changes.extend(gone);
    changes
}

pub(crate) fn put<K: Ord + Clone, T: PartialEq>(
    content: &mut Content<K, T>,
    key: K,
    item: Option<T>,
) -> Option<Change<K, T>> {
    let new = item.map(Arc::new);
    let old = match &new {
        Some(item) => content.insert(key.clone(), Arc::clone(item)),
        None => content.remove(&key),
    };
    (old != new).then_some(Change { key, old, new, reported: true })
}
