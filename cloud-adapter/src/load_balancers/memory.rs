//! The state of a key that outlives its task within this process. After a restart, tasks work without this state.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use cloud_api_proto::v1alpha1::LoadBalancerKey;
use tokio::time::Instant;

use crate::vendor::Meter;

/// Number of keys at which unneeded keys are first removed.
const KEYS_MIN: usize = 4096;
/// Minimum time for which a key is kept. It is longer than any horizon.
const KEPT: Duration = Duration::from_mins(15);

pub(super) type KeyName = (String, String);

pub(super) fn name(key: &LoadBalancerKey) -> KeyName {
    (key.cluster_id.clone(), key.owner_uid.clone())
}

/// `S` is the type of steps, and `R` is the type of load balancers.
#[derive(Debug)]
pub(super) struct Memories<S, R>(Mutex<Content<S, R>>);

#[derive(Debug)]
struct Content<S, R> {
    memories: BTreeMap<KeyName, Memory<S, R>>,
    /// The number of entries at which unneeded entries are removed.
    full: usize,
}

#[derive(Clone, Debug)]
pub(super) struct Memory<S, R> {
    pub(super) history: History<S, R>,
    /// Counts the vendor calls of all tasks of the key. Only calls that no answer has reported yet are counted.
    pub(super) meter: Arc<Meter>,
    /// The time at which the work on the key began, over all retries.
    pub(super) began: Option<Instant>,
    used: Instant,
}

/// What this process did to a key's load balancers. The key's task saves the history after each step.
#[derive(Clone, Debug)]
pub(super) struct History<S, R> {
    /// The last write. It is in progress, done, or of unknown outcome.
    pub(super) last: Option<Written<S>>,
    /// The load balancer that was deleted in order to recreate it.
    pub(super) former: Option<R>,
    /// The time at which the vendor last accepted the deletion of a load balancer.
    pub(super) removed: Option<Instant>,
}

impl<S, R> Default for History<S, R> {
    fn default() -> Self {
        Self { last: None, former: None, removed: None }
    }
}

impl<S, R> Memory<S, R> {
    /// Returns whether the entry is still needed. An entry is needed while a task uses it. It is also needed until `KEPT` after its last
    /// use, if it has a write, an unreported vendor call or the start of unfinished work.
    fn is_of_use(&self, now: Instant) -> bool {
        let at_work = Arc::strong_count(&self.meter) > 1;
        let spent = self.history.last.is_some() || self.began.is_some() || self.meter.has_counted();
        at_work || (spent && now.duration_since(self.used) < KEPT)
    }
}

/// A write that may have been done.
#[derive(Clone, Debug)]
pub(super) struct Written<S> {
    pub(super) step: Arc<S>,
    pub(super) at: Instant,
    /// The time after which reads reliably show the write, if it was made.
    pub(super) shows: Instant,
    pub(super) kind: WriteKind,
    /// The error of the write, if its outcome is unknown.
    pub(super) failure: Option<Arc<str>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WriteKind {
    Create,
    Change,
    Remove,
}

impl<S, R> Default for Memories<S, R> {
    fn default() -> Self {
        Self(Mutex::new(Content { memories: BTreeMap::new(), full: KEYS_MIN }))
    }
}

impl<S, R> Memories<S, R> {
    /// When the map is full, unneeded entries are removed first.
    pub(super) fn of<T>(&self, key: &LoadBalancerKey, act: impl FnOnce(&mut Memory<S, R>) -> T) -> T {
        let mut content = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if content.memories.len() >= content.full {
            content.memories.retain(|_, memory| memory.is_of_use(now));
            // The limit doubles, so that the average cost of the removal is constant.
            content.full = KEYS_MIN.max(content.memories.len() * 2);
        }
        let fresh = || Memory { history: History::default(), meter: Arc::default(), began: None, used: now };
        let memory = content.memories.entry(name(key)).or_insert_with(fresh);
        memory.used = now;
        act(memory)
    }

    /// Searches the former load balancers of all keys except `but`.
    pub(super) fn find_former<T>(&self, but: &LoadBalancerKey, find: impl Fn(&R) -> Option<T>) -> Option<T> {
        let content = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let others = content.memories.iter().filter(|(there, _)| **there != name(but));
        others.filter_map(|(_, memory)| memory.history.former.as_ref()).find_map(find)
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
            Written { step: Arc::new(()), at: now, shows: now, kind: WriteKind::Create, failure: None };
        memories.of(&key("written"), |memory| memory.history.last = Some(written));
        memories.of(&key("unpaid"), |memory| memory.meter.count(CREATE, Duration::ZERO));
        let at_work = memories.of(&key("in use"), |memory| Arc::clone(&memory.meter));
        for number in 0..3 * KEYS_MIN {
            memories.of(&key(&number.to_string()), |_| ());
        }
        assert!(count(&memories) <= KEYS_MIN, "{}", count(&memories));
        assert!(memories.of(&key("written"), |memory| memory.history.last.is_some()));
        assert!(memories.of(&key("unpaid"), |memory| memory.meter.has_counted()));
        assert!(memories.of(&key("in use"), |memory| Arc::ptr_eq(&memory.meter, &at_work)));

        drop(at_work);
        tokio::time::advance(KEPT).await;
        for number in 0..KEYS_MIN {
            memories.of(&key(&number.to_string()), |_| ());
        }
        assert!(
            memories.of(&key("written"), |memory| memory.history.last.is_none()),
            "removed after a while"
        );
    }
}
