//! State of a key that outlives its task within the process. After a restart, tasks work without it.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use cloud_api_proto::v1alpha1::LoadBalancerKey;
use tokio::time::Instant;

use crate::vendor::Meter;

/// Number of keys from which unneeded ones are removed.
const KEYS_MIN: usize = 4096;
/// Minimum time that a key is kept. Longer than any horizon.
const KEPT: Duration = Duration::from_mins(15);

pub(super) type KeyName = (String, String);

pub(super) fn name(key: &LoadBalancerKey) -> KeyName {
    (key.cluster_id.clone(), key.owner_uid.clone())
}

/// By key.
#[derive(Debug)]
pub(super) struct Memories<S, R>(Mutex<Content<S, R>>);

#[derive(Debug)]
struct Content<S, R> {
    memories: BTreeMap<KeyName, Memory<S, R>>,
    /// At this size, unneeded entries are removed.
    full: usize,
}

/// The state of a key.
#[derive(Clone, Debug)]
pub(super) struct Memory<S, R> {
    /// The last write: in progress, done, or of unknown outcome.
    pub(super) last: Option<Written<S>>,
    /// Counts the vendor calls of all tasks of the key until an answer reports them.
    pub(super) meter: Arc<Meter>,
    /// The load balancer that was deleted to recreate it.
    pub(super) former: Option<R>,
    /// When the vendor last accepted a deletion of a load balancer of the key by this process.
    pub(super) removed: Option<Instant>,
    /// The start of the work on the key, over all retries.
    pub(super) began: Option<Instant>,
    used: Instant,
}

impl<S, R> Memory<S, R> {
    /// Whether the entry is still needed. The number of such keys without a task is bounded by the vendor calls that the budget allows,
    /// independently of the number of requests.
    fn is_of_use(&self, now: Instant) -> bool {
        let at_work = Arc::strong_count(&self.meter) > 1;
        let spent = self.last.is_some() || self.began.is_some() || self.meter.has_counted();
        at_work || (spent && now.duration_since(self.used) < KEPT)
    }
}

/// A write that may have been done.
#[derive(Clone, Debug)]
pub(super) struct Written<S> {
    pub(super) step: Arc<S>,
    pub(super) at: Instant,
    /// The time from which reads reliably show the write, if it was done.
    pub(super) shows: Instant,
    pub(super) effect: Effect,
    /// The error, if the outcome is unknown.
    pub(super) failure: Option<Arc<str>>,
}

/// The effect of a write on the number of load balancers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    Creates,
    Changes,
    Removes,
}

impl<S, R> Default for Memories<S, R> {
    fn default() -> Self {
        Self(Mutex::new(Content { memories: BTreeMap::new(), full: KEYS_MIN }))
    }
}

impl<S, R> Memories<S, R> {
    /// Reads or changes the state of a key. Removes unneeded entries when full.
    pub(super) fn of<T>(&self, key: &LoadBalancerKey, act: impl FnOnce(&mut Memory<S, R>) -> T) -> T {
        let mut content = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if content.memories.len() >= content.full {
            content.memories.retain(|_, memory| memory.is_of_use(now));
            // Doubling makes the cost of the removal constant on average.
            content.full = KEYS_MIN.max(content.memories.len() * 2);
        }
        let fresh = || Memory {
            last: None,
            meter: Arc::default(),
            former: None,
            removed: None,
            began: None,
            used: now,
        };
        let memory = content.memories.entry(name(key)).or_insert_with(fresh);
        memory.used = now;
        act(memory)
    }

    /// Searches the former load balancers of all keys but this one.
    pub(super) fn find_former<T>(&self, but: &LoadBalancerKey, find: impl Fn(&R) -> Option<T>) -> Option<T> {
        let content = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let others = content.memories.iter().filter(|(there, _)| **there != name(but));
        others.filter_map(|(_, memory)| memory.former.as_ref()).find_map(find)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vendor::{Family, Operation};

    const CREATE: Operation = Operation::write(Family::LoadBalancer, "CreateLoadBalancer");

    fn key(owner_uid: &str) -> LoadBalancerKey {
        LoadBalancerKey { cluster_id: "c".to_owned(), owner_uid: owner_uid.to_owned() }
    }

    fn count(memories: &Memories<(), ()>) -> usize {
        memories.0.lock().expect("whole").memories.len()
    }

    #[tokio::test(start_paused = true)]
    async fn unused_keys_do_not_fill_the_memory() {
        let memories: Memories<(), ()> = Memories::default();
        let now = Instant::now();
        let written =
            Written { step: Arc::new(()), at: now, shows: now, effect: Effect::Creates, failure: None };
        memories.of(&key("written"), |memory| memory.last = Some(written));
        memories.of(&key("unpaid"), |memory| memory.meter.count(CREATE, Duration::ZERO));
        let at_work = memories.of(&key("in use"), |memory| Arc::clone(&memory.meter));
        for number in 0..3 * KEYS_MIN {
            memories.of(&key(&number.to_string()), |_| ());
        }
        assert!(count(&memories) <= KEYS_MIN, "{}", count(&memories));
        assert!(memories.of(&key("written"), |memory| memory.last.is_some()));
        assert!(memories.of(&key("unpaid"), |memory| memory.meter.has_counted()));
        assert!(memories.of(&key("in use"), |memory| Arc::ptr_eq(&memory.meter, &at_work)));

        drop(at_work);
        tokio::time::advance(KEPT).await;
        for number in 0..KEYS_MIN {
            memories.of(&key(&number.to_string()), |_| ());
        }
        assert!(memories.of(&key("written"), |memory| memory.last.is_none()), "removed after a while");
    }
}
