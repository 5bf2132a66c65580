//! What outlives a key's task for a while, within the process. Whoever repeats a request after a crash goes on without it.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use cloud_api_proto::v1alpha1::LoadBalancerKey;
use tokio::time::Instant;

use crate::vendor::Meter;

/// Keys that are remembered before those that nobody touched are forgotten.
const KEYS_MIN: usize = 4096;
/// For how long a key is remembered at least. Longer than any consistency horizon.
const KEPT: Duration = Duration::from_mins(15);

pub(super) type KeyName = (String, String);

pub(super) fn name(key: &LoadBalancerKey) -> KeyName {
    (key.cluster_id.clone(), key.owner_uid.clone())
}

/// By key.
#[derive(Debug)]
pub(super) struct Memories<S>(Mutex<Content<S>>);

#[derive(Debug)]
struct Content<S> {
    memories: BTreeMap<KeyName, Memory<S>>,
    /// Grown to this size, it is looked through for what can be forgotten.
    full: usize,
}

/// What is remembered of a key.
#[derive(Clone, Debug)]
pub(super) struct Memory<S> {
    /// The last write: under way, done, or of unknown outcome.
    pub(super) last: Option<Written<S>>,
    /// Pays for all tasks of the key: what nobody was told of yet stands in the next answer.
    pub(super) meter: Arc<Meter>,
    used: Instant,
}

/// A write that may have been done.
#[derive(Clone, Debug)]
pub(super) struct Written<S> {
    pub(super) step: S,
    pub(super) at: Instant,
    pub(super) effect: Effect,
}

/// What a write does to the number of load balancers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    Creates,
    Changes,
    Removes,
}

impl<S> Default for Memories<S> {
    fn default() -> Self {
        Self(Mutex::new(Content { memories: BTreeMap::new(), full: KEYS_MIN }))
    }
}

impl<S> Memories<S> {
    /// Reads or changes what is remembered of a key. What nobody touched for long is forgotten.
    pub(super) fn of<R>(&self, key: &LoadBalancerKey, act: impl FnOnce(&mut Memory<S>) -> R) -> R {
        let mut content = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if content.memories.len() >= content.full {
            content.memories.retain(|_, memory| now.duration_since(memory.used) < KEPT);
            // As many new ones again before the next look: each costs a constant on average.
            content.full = KEYS_MIN.max(content.memories.len() * 2);
        }
        let fresh = || Memory { last: None, meter: Arc::default(), used: now };
        let memory = content.memories.entry(name(key)).or_insert_with(fresh);
        memory.used = now;
        act(memory)
    }
}
