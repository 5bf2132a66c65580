//! Local mirrors of both sides: what Kubernetes wants and what the cloud has, trimmed to what the controller uses.
//!
//! - [`kubernetes`] follows a watch on the API server, [`cloud`] a watch on the adapter; both keep one [`Mirror`].
//! - [`one`] follows a single object of the API server, which need not be there.
//! - A listing takes effect only when it is complete; until then the old content stays in force.
//! - A change that the trimmed form does not show (a kubelet's heartbeat) wakes nobody.
//! - Never evidence of absence: before anything that cannot be undone, ask again, live.

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
    /// `None` for cluster-scoped kinds.
    pub namespace: Option<String>,
    /// The name in its namespace.
    pub name: String,
}

impl ObjectName {
    /// Of a cluster-scoped object, such as a Node.
    pub fn cluster(name: impl Into<String>) -> Self {
        Self { namespace: None, name: name.into() }
    }

    /// Of an object in a namespace, such as a Service.
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

/// One item that is not what it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change<K, T> {
    /// Which one.
    pub key: K,
    /// What it was. `None`: it was not there.
    pub old: Option<Arc<T>>,
    /// What it is. `None`: it is not there any more.
    pub new: Option<Arc<T>>,
    /// Whether the other side told of this very change. If not, it follows from a listing: what is not in one was removed, or
    /// the listing is wrong.
    pub told: bool,
}

/// What a mirror holds.
pub(crate) type Content<K, T> = BTreeMap<K, Arc<T>>;

/// A mirror of one collection. Cloning gives another handle to the same mirror.
#[derive(Debug)]
pub struct Mirror<K, T> {
    inner: Arc<Inner<K, T>>,
}

#[derive(Debug)]
struct Inner<K, T> {
    /// For people: `nodes`, `instances`.
    what: &'static str,
    clock: Clock,
    content: RwLock<Content<K, T>>,
    synced: watch::Sender<bool>,
    link: watch::Sender<Link>,
    /// Fingerprint of the part of the cloud that the content is of, if the other side tells.
    scope: watch::Sender<Option<String>>,
    /// How often the other side has answered anew: another process may be behind each connection.
    connections: watch::Sender<u64>,
    /// Up to when the content is known to be right, on our wall clock.
    observed: watch::Sender<Option<Timestamp>>,
}

impl<K, T> Clone for Mirror<K, T> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<K: Ord + Clone, T> Mirror<K, T> {
    /// An empty mirror that is not synced. `what` is for people and for the metric label `mirror`: `nodes`, `instances`.
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

    /// What is mirrored, for people.
    #[must_use]
    pub fn what(&self) -> &'static str {
        self.inner.what
    }

    /// One item.
    #[must_use]
    pub fn get<Q>(&self, key: &Q) -> Option<Arc<T>>
    where
        K: std::borrow::Borrow<Q>,
        Q: Ord + ?Sized,
    {
        self.read(|content| content.get(key).cloned())
    }

    /// All items in the order of their keys.
    #[must_use]
    pub fn items(&self) -> Vec<(K, Arc<T>)> {
        self.read(|content| content.iter().map(|(key, item)| (key.clone(), Arc::clone(item))).collect())
    }

    /// Reads the content without copying it. Keep it short: whoever follows waits meanwhile.
    pub fn read<R>(&self, reader: impl FnOnce(&BTreeMap<K, Arc<T>>) -> R) -> R {
        reader(&self.inner.content.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether one complete listing has been seen since the start.
    #[must_use]
    pub fn is_synced(&self) -> bool {
        *self.inner.synced.borrow()
    }

    /// Waits until it is synced.
    pub async fn synced(&self) {
        // The sender lives in `self`: waiting cannot fail.
        let _closed = self.inner.synced.subscribe().wait_for(|synced| *synced).await.is_err();
    }

    /// How the connection to the other side is.
    #[must_use]
    pub fn link(&self) -> Link {
        self.inner.link.borrow().clone()
    }

    /// To wait for changes of the link.
    #[must_use]
    pub fn links(&self) -> watch::Receiver<Link> {
        self.inner.link.subscribe()
    }

    /// Changes whenever the other side answers on a new connection, also if the link was never down: another process may be there.
    #[must_use]
    pub fn connections(&self) -> watch::Receiver<u64> {
        self.inner.connections.subscribe()
    }

    /// Up to when the content is known to be right. `None`: nothing is known yet.
    ///
    /// For the cloud that is when the adapter asked the vendor, which may be long ago though the adapter is there. It is a time of
    /// the adapter's wall clock, and no later than ours was when we heard of it: so an adapter whose clock is ahead makes the mirror
    /// look younger by what the news took to arrive, and one whose clock is behind makes it look older by all of that.
    #[must_use]
    pub fn observed(&self) -> Option<Timestamp> {
        *self.inner.observed.borrow()
    }

    /// How long ago that was, never less than nothing.
    #[must_use]
    pub fn age(&self) -> Option<Duration> {
        let age = self.inner.clock.now().duration_since(self.observed()?);
        Some(age.try_into().unwrap_or_default())
    }

    /// Readiness: synced and connected, or else what is missing.
    ///
    /// # Errors
    /// The text for `/readyz`.
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

    /// The other side says that the content was right at `at`, on its clock.
    pub(crate) fn mark_observed(&self, at: Timestamp) {
        self.inner.observed.send_replace(Some(at.min(self.inner.clock.now())));
    }

    /// The other side says that the content is right.
    pub(crate) fn mark_fresh(&self) {
        self.mark_observed(self.inner.clock.now());
    }

    /// Fingerprint of the part of the cloud that the content is of. `None`: it is not of the cloud, or the adapter does not tell.
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

/// Puts `new` in place of `content` and returns what that changed.
pub(crate) fn replace<K: Ord + Clone, T: PartialEq>(
    content: &mut Content<K, T>,
    new: Content<K, T>,
) -> Vec<Change<K, T>> {
    let mut old = std::mem::replace(content, new);
    let mut changes = Vec::new();
    for (key, item) in content.iter() {
        let before = old.remove(key);
        if before.as_ref() != Some(item) {
            changes.push(Change { key: key.clone(), old: before, new: Some(Arc::clone(item)), told: false });
        }
    }
    let gone = old.into_iter().map(|(key, item)| Change { key, old: Some(item), new: None, told: false });
    changes.extend(gone);
    changes
}

/// Puts one item in, or takes it out, and returns what that changed.
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
    (old != new).then_some(Change { key, old, new, told: true })
}
