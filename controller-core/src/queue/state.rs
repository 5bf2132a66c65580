//! The state of the queue. The code reads no clock: every time is an argument.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use tokio::time::Instant;

use super::{Backoff, KeyState, Load, lane::Lane};
use crate::Again;

/// While other keys wait, one in this many keys is taken from the keys that were added by a reconcile of all keys.
const SHARE_OF_ALL: u32 = 8;

/// Maximum delay. No caller asks for a longer delay.
const LONGEST_DELAY: Duration = Duration::from_hours(365 * 24);

/// The queued keys. A key is in at most one of `ready` and `delayed`. A running key may also be in `dirty` or `delayed`.
#[derive(Debug)]
pub(super) struct State<K> {
    namespace: Namespace<K>,
    /// The waiting keys that were added individually.
    ready: Lane<K>,
    /// The waiting keys that were added together with all keys, and not individually since then.
    all: Lane<K>,
    /// The number of keys taken from `ready` since a key from `all` was taken.
    turns: u32,
    /// The keys in both lanes.
    added: BTreeMap<K, Waiting>,
    running: BTreeMap<K, Instant>,
    /// Keys that were added while they were running. Such a key becomes ready when its reconcile ends.
    dirty: BTreeSet<K>,
    delayed: BTreeMap<K, (Instant, Trigger)>,
    timers: BTreeSet<(Instant, K)>,
    /// Number of consecutive failures, by key.
    failures: BTreeMap<K, u32>,
    /// The time at which a key was last taken, or else the time at which the workers started. `None` if the workers have not started.
    last_taken: Option<Instant>,
    /// The number of additions of keys. A delayed key counts when it becomes due.
    n_adds: u64,
}

pub(super) type Namespace<K> = fn(&K) -> &str;

#[derive(Clone, Copy, Debug)]
struct Waiting {
    since: Instant,
    trigger: Trigger,
    /// The place of the key in its lane. The trigger determines the lane.
    place: u64,
}

#[derive(Debug)]
pub(super) struct Taken<K> {
    pub(super) key: K,
    pub(super) added: Instant,
    pub(super) failures: u32,
    pub(super) trigger: Trigger,
}

/// The reasons why a key is reconciled. If several reasons apply, the first of them in this list is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trigger {
    /// A change of a mirror.
    Change,
    /// A reconcile of all keys.
    All,
    /// A scheduled time that was reached.
    Time,
    /// A requeue that the last reconcile of the key asked for.
    Again,
    /// A failure of the last reconcile of the key.
    Failure,
}

impl Trigger {
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Change => "change",
            Self::All => "all",
            Self::Time => "time",
            Self::Again => "again",
            Self::Failure => "failure",
        }
    }
}

/// Returns the time after a delay. This function never panics on overflow, because a panic between two changes of the maps would lose the
/// key.
pub(super) fn after(now: Instant, delay: Duration) -> Instant {
    now.checked_add(delay.min(LONGEST_DELAY)).unwrap_or(now)
}

impl<K: Ord + Clone> State<K> {
    /// Returns an empty state. Keys of different namespaces, as returned by `namespace`, are served in turn.
    pub(super) fn new(namespace: Namespace<K>) -> Self {
        Self {
            namespace,
            ready: Lane::default(),
            all: Lane::default(),
            turns: 0,
            added: BTreeMap::new(),
            running: BTreeMap::new(),
            dirty: BTreeSet::new(),
            delayed: BTreeMap::new(),
            timers: BTreeSet::new(),
            failures: BTreeMap::new(),
            last_taken: None,
            n_adds: 0,
        }
    }

    pub(super) fn add(&mut self, key: K, now: Instant) {
        self.queue(key, now, Trigger::Change);
    }

    pub(super) fn add_with_all(&mut self, key: K, now: Instant) {
        self.queue(key, now, Trigger::All);
    }

    /// Adds a key to a lane. Only additions that change something are counted, as in client-go's queues.
    fn queue(&mut self, key: K, now: Instant, trigger: Trigger) {
        self.cancel_timer(&key);
        if trigger != Trigger::All
            && let Some(waiting) = self.added.get(&key).filter(|it| it.trigger == Trigger::All)
        {
            let Waiting { since, place, .. } = *waiting;
            self.all.remove((self.namespace)(&key), place);
            self.begin_wait(key, since, trigger);
            return;
        }
        if self.dirty.contains(&key) || self.added.contains_key(&key) {
            return;
        }
        self.n_adds = self.n_adds.saturating_add(1);
        if self.running.contains_key(&key) {
            self.dirty.insert(key);
        } else {
            self.begin_wait(key, now, trigger);
        }
    }

    fn begin_wait(&mut self, key: K, since: Instant, trigger: Trigger) {
        let lane = if trigger == Trigger::All { &mut self.all } else { &mut self.ready };
        let place = lane.push((self.namespace)(&key), key.clone());
        self.added.insert(key, Waiting { since, trigger, place });
    }

    /// Takes the key to serve next. This is usually an individually added key, and from time to time a key that was added together with all
    /// keys.
    fn next(&mut self) -> Option<K> {
        let of_all = self.ready.is_empty() || self.turns + 1 >= SHARE_OF_ALL;
        if of_all && let Some(key) = self.all.pop() {
            self.turns = 0;
            return Some(key);
        }
        self.turns = self.turns.saturating_add(1);
        self.ready.pop()
    }

    pub(super) const fn n_adds(&self) -> u64 {
        self.n_adds
    }

    pub(super) fn add_after(&mut self, key: K, due: Instant) {
        self.delay(key, due, Trigger::Change);
    }

    pub(super) fn after(&mut self, key: K, due: Instant) {
        self.delay(key, due, Trigger::Time);
    }

    fn delay(&mut self, key: K, due: Instant, trigger: Trigger) {
        let sooner = self.delayed.get(&key).is_some_and(|(other, _)| *other <= due);
        if sooner || self.added.contains_key(&key) || self.dirty.contains(&key) {
            return;
        }
        self.cancel_timer(&key);
        self.delayed.insert(key.clone(), (due, trigger));
        self.timers.insert((due, key));
    }

    pub(super) fn forget(&mut self, key: &K) {
        self.failures.remove(key);
    }

    /// Returns the next key that is not being reconciled.
    pub(super) fn take(&mut self, now: Instant) -> Option<Taken<K>> {
        while self.timers.first().is_some_and(|(due, _)| *due <= now) {
            if let Some((_, key)) = self.timers.pop_first() {
                let trigger = self.delayed.remove(&key).map_or(Trigger::Time, |(_, trigger)| trigger);
                self.queue(key, now, trigger);
            }
        }
        let key = self.next()?;
        let waited = self.added.remove(&key).map(|it| (it.since, it.trigger));
        let (added, trigger) = waited.unwrap_or((now, Trigger::Change));
        self.running.insert(key.clone(), now);
        self.last_taken = Some(now);
        let failures = self.failures.get(&key).copied().unwrap_or_default();
        Some(Taken { key, added, failures, trigger })
    }

    pub(super) fn next_due(&self) -> Option<Instant> {
        self.timers.first().map(|(due, _)| *due)
    }

    pub(super) fn done(&mut self, key: &K, again: Again, backoff: &Backoff, now: Instant) {
        self.running.remove(key);
        let due = match again {
            Again::Done | Again::OnChange => {
                self.failures.remove(key);
                None
            }
            Again::After(delay) => Some((after(now, delay), Trigger::Again)),
            Again::Backoff => {
                let failures = self.failures.entry(key.clone()).or_default();
                *failures = failures.saturating_add(1);
                Some((after(now, backoff.pause(*failures)), Trigger::Failure))
            }
        };
        if self.dirty.remove(key) {
            self.cancel_timer(key);
            self.begin_wait(key.clone(), now, Trigger::Change);
        } else if let Some((due, trigger)) = due {
            self.delay(key.clone(), due, trigger);
        }
    }

    pub(super) fn depth(&self) -> usize {
        self.added.len()
    }

    pub(super) fn key_state(&self, key: &K) -> KeyState {
        if self.running.contains_key(key) {
            KeyState::Runs
        } else if let Some(Waiting { since, trigger, .. }) = self.added.get(key) {
            KeyState::Waits { since: *since, changed: *trigger != Trigger::All }
        } else if let Some((due, _)) = self.delayed.get(key) {
            KeyState::Later { due: *due }
        } else {
            KeyState::Nowhere
        }
    }

    pub(super) fn load(&self, now: Instant) -> Load {
        let oldest = self.added.values().map(|it| now.duration_since(it.since)).max();
        let (waiting, running, later) = (self.added.len(), self.running.len(), self.delayed.len());
        Load { waiting, running, later, oldest: oldest.unwrap_or_default() }
    }

    pub(super) fn changed(&self) -> impl Iterator<Item = (&K, Instant)> {
        let own = self.added.iter().filter(|(_, it)| it.trigger != Trigger::All);
        own.map(|(key, it)| (key, it.since))
    }

    pub(super) fn is_idle(&self) -> bool {
        self.added.is_empty() && self.running.is_empty()
    }

    /// Returns the times at which the reconciles in progress began.
    pub(super) fn running(&self) -> impl Iterator<Item = Instant> + '_ {
        self.running.values().copied()
    }

    pub(super) fn longest_running(&self, now: Instant) -> Option<Duration> {
        self.running().min().map(|began| now.duration_since(began))
    }

    /// Records that workers take keys from now on.
    pub(super) fn begin(&mut self, now: Instant) {
        self.last_taken = Some(now);
    }

    /// Returns how long a key has been due without any key being taken.
    pub(super) fn stalled(&self, now: Instant) -> Option<Duration> {
        // If all waiting keys arrived after a key was last taken, the first key of each lane is the oldest key of that lane. Otherwise the
        // first key arrived earlier, and the time counts from when a key was last taken.
        let firsts = [self.ready.first(), self.all.first()].into_iter().flatten();
        let ready = firsts.filter_map(|key| self.added.get(key)).map(|it| it.since);
        let due = ready.chain(self.next_due()).min()?;
        let since = due.max(self.last_taken?);
        (since <= now).then(|| now.duration_since(since))
    }

    fn cancel_timer(&mut self, key: &K) {
        if let Some((due, _)) = self.delayed.remove(key) {
            self.timers.remove(&(due, key.clone()));
        }
    }
}
