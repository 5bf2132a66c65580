//! What outlives a key's task for a while, within the process. Whoever repeats a request after a crash goes on without it.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use cloud_api_proto::v1alpha1::LoadBalancerKey;
use tokio::time::Instant;

use crate::vendor::Meter;

/// Keys that are remembered before those of no use are forgotten.
const KEYS_MIN: usize = 4096;
/// For how long a key is remembered at least. Longer than any horizon.
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
    /// Grown to this size, it is looked through for what can be forgotten.
    full: usize,
}

/// What is remembered of a key.
#[derive(Clone, Debug)]
pub(super) struct Memory<S, R> {
    /// The last write: under way, done, or of unknown outcome.
    pub(super) last: Option<Written<S>>,
    /// Pays for all tasks of the key: what nobody was told of yet stands in the next answer.
    pub(super) meter: Arc<Meter>,
    /// What was removed to make room for one that takes its place.
    pub(super) former: Option<R>,
    /// When the vendor last accepted that this process removes a load balancer of the key.
    pub(super) removed: Option<Instant>,
    /// Since when it has been worked on: a task that failed and is asked for again goes on with what it began.
    pub(super) began: Option<Instant>,
    used: Instant,
}

impl<S, R> Memory<S, R> {
    /// Whether somebody may miss it. Of keys without a task these are as many as the budget has allowed calls lately, however many
    /// others are asked for.
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
    /// From then on reads are sure to show it, if it was done.
    pub(super) shows: Instant,
    pub(super) effect: Effect,
    /// Why nobody knows whether it was done, if that is so.
    pub(super) failure: Option<Arc<str>>,
}

/// What a write does to the number of load balancers.
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
    /// Reads or changes what is remembered of a key. What is of no use any more is forgotten.
    pub(super) fn of<T>(&self, key: &LoadBalancerKey, act: impl FnOnce(&mut Memory<S, R>) -> T) -> T {
        let mut content = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if content.memories.len() >= content.full {
            content.memories.retain(|_, memory| memory.is_of_use(now));
            // As many new ones again before the next look: each costs a constant on average.
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

    /// Looks through what was removed to make room for another one, of other keys than this.
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
    async fn keys_for_which_nothing_was_done_do_not_fill_the_memory() {
        let memories: Memories<(), ()> = Memories::default();
        let now = Instant::now();
        let written =
            Written { step: Arc::new(()), at: now, shows: now, effect: Effect::Creates, failure: None };
        memories.of(&key("written"), |memory| memory.last = Some(written));
        memories.of(&key("unpaid"), |memory| memory.meter.count(CREATE, Duration::ZERO));
        let at_work = memories.of(&key("at work"), |memory| Arc::clone(&memory.meter));
        for number in 0..3 * KEYS_MIN {
            memories.of(&key(&number.to_string()), |_| ());
        }
        assert!(count(&memories) <= KEYS_MIN, "{}", count(&memories));
        assert!(memories.of(&key("written"), |memory| memory.last.is_some()));
        assert!(memories.of(&key("unpaid"), |memory| memory.meter.has_counted()));
        assert!(memories.of(&key("at work"), |memory| Arc::ptr_eq(&memory.meter, &at_work)));

        drop(at_work);
        tokio::time::advance(KEPT).await;
        for number in 0..KEYS_MIN {
            memories.of(&key(&number.to_string()), |_| ());
        }
        assert!(memories.of(&key("written"), |memory| memory.last.is_none()), "forgotten after a while");
    }
}
