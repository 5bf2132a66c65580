//! Remembers instances that were missing, and the instances of the cluster.

use std::{
    collections::{BTreeMap, HashSet},
    sync::{Mutex, MutexGuard, PoisonError},
};

use tokio::time::{Duration, Instant};

use super::existence::Proof;

/// How long an unproven absence is cached for callers without a bound on staleness.
const NOT_VISIBLE_KEPT: Duration = Duration::from_secs(5);
/// How long a proven absence is cached, unless the instance is seen again earlier.
const GONE_KEPT: Duration = Duration::from_mins(10);
/// Maximum number of recorded absences. Further missing instances count as not visible. This is safe, because their nodes are not deleted.
const ABSENT_MAX: usize = 20_000;
/// Maximum number of recorded instances of the cluster. If fewer instances are recorded, fewer absences can be proven, so fewer nodes are
/// deleted.
const MEMBERS_MAX: usize = 50_000;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Absent {
    /// The times of the first and the last read that missed the instance. No read between these times showed the instance.
    pub(crate) since: Instant,
    pub(crate) last: Instant,
    /// Whether the vendor was asked for this ID. If not, a listing lacked the instance.
    pub(crate) direct: bool,
    /// The proof at the time of the last read.
    pub(crate) proof: Option<Proof>,
}

#[derive(Debug, Default)]
pub(crate) struct Memory(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    absent: BTreeMap<String, Absent>,
    /// The instances that were looked up by ID and exist. Such instances belong to the cluster.
    members: HashSet<String, foldhash::fast::RandomState>,
}

impl Memory {
    /// Returns the recorded absence, if it was checked at `bound` or later. Without a bound, returns the absence if the record has not
    /// expired.
    pub(crate) fn recall(&self, id: &str, bound: Option<Instant>) -> Option<Absent> {
        let inner = self.inner();
        let absent = inner.absent.get(id)?;
        let age = if absent.proof.is_some() { GONE_KEPT } else { NOT_VISIBLE_KEPT };
        let fresh = bound.map_or_else(|| absent.last.elapsed() < age, |bound| absent.last >= bound);
        fresh.then(|| absent.clone())
    }

    /// Records a read that missed the instance, and returns the current record. `shown` is the time at which a read last showed the
    /// instance; an absence that began before that time has ended.
    pub(crate) fn missed(&self, id: &str, asked: Instant, shown: Option<Instant>, direct: bool) -> Absent {
        let mut inner = self.inner();
        let first = Absent { since: asked, last: asked, direct, proof: None };
        if inner.absent.len() >= ABSENT_MAX {
            inner.absent.retain(|_, absent| absent.last.elapsed() < GONE_KEPT);
        }
        if inner.absent.len() >= ABSENT_MAX && !inner.absent.contains_key(id) {
            return first;
        }
        let absent = inner.absent.entry(id.to_owned()).or_insert_with(|| first.clone());
        if absent.last.elapsed() >= GONE_KEPT || shown > Some(absent.since) {
            *absent = first;
        } else if asked > absent.last {
            *absent = Absent { since: absent.since, ..first };
        }
        absent.clone()
    }

    pub(crate) fn proven(&self, id: &str, proof: Proof) {
        let mut inner = self.inner();
        inner.members.remove(id);
        if let Some(absent) = inner.absent.get_mut(id) {
            absent.proof = Some(proof);
        }
    }

    /// Records instances that were looked up by ID and exist. `held` returns whether an instance is still known to exist. When the record
    /// is full, instances that are no longer known to exist are evicted.
    pub(crate) fn seen<'a>(&self, ids: impl IntoIterator<Item = &'a str>, held: impl Fn(&str) -> bool) {
        let mut inner = self.inner();
        let mut full = false;
        for id in ids {
            inner.absent.remove(id);
            if full || inner.members.contains(id) {
                continue;
            }
            if inner.members.len() >= MEMBERS_MAX {
                inner.members.retain(|id| held(id));
                full = inner.members.len() >= MEMBERS_MAX;
            }
            if !full {
                inner.members.insert(id.to_owned());
            }
        }
    }

    pub(crate) fn is_member(&self, id: &str) -> bool {
        self.inner().members.contains(id)
    }

    /// Removes all records. The caller does this when the scope of the credentials has changed.
    pub(crate) fn forget(&self) {
        *self.inner() = Inner::default();
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn unproven_absence_is_kept_5_seconds_and_proven_10_minutes() {
        let memory = Memory::default();
        memory.missed("a", Instant::now(), None, true);
        memory.missed("b", Instant::now(), None, true);
        memory.proven("b", Proof::Witnesses(1));
        for (wait, a, b) in [
            (SECOND * 4, true, true),
            (SECOND * 2, false, true),
            (SECOND * 590, false, true),
            (SECOND * 10, false, false),
        ] {
            advance(wait).await;
            assert_eq!((memory.recall("a", None).is_some(), memory.recall("b", None).is_some()), (a, b));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn fresher_bound_is_not_answered_from_memory() {
        let memory = Memory::default();
        memory.missed("a", Instant::now(), None, true);
        memory.proven("a", Proof::Credentials);
        let before = Instant::now();
        advance(SECOND).await;
        assert!(memory.recall("a", Some(before)).is_some());
        assert!(memory.recall("a", Some(Instant::now())).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn absence_begins_with_first_miss_and_ends_when_seen() {
        let memory = Memory::default();
        let first = Instant::now();
        memory.missed("a", first, None, true);
        memory.proven("a", Proof::Witnesses(3));
        advance(SECOND).await;
        let again = memory.missed("a", Instant::now(), None, true);
        assert_eq!((again.since, again.last), (first, Instant::now()));
        assert_eq!(again.proof, None, "the proof is dropped");
        assert!(!memory.is_member("a"));
        memory.seen(["a"], |_| true);
        assert!(memory.is_member("a") && memory.recall("a", None).is_none());
        assert_eq!(memory.missed("a", Instant::now(), None, true).since, Instant::now());
    }

    #[tokio::test(start_paused = true)]
    async fn unknown_ids_do_not_fill_the_memory() {
        let memory = Memory::default();
        for n in 0..=ABSENT_MAX {
            memory.missed(&format!("i-{n}"), Instant::now(), None, true);
        }
        assert_eq!(memory.inner().absent.len(), ABSENT_MAX);
        assert!(memory.recall(&format!("i-{ABSENT_MAX}"), None).is_none());
        advance(GONE_KEPT).await;
        memory.missed("new", Instant::now(), None, true);
        assert_eq!(memory.inner().absent.len(), 1, "old ones are evicted");
    }

    #[tokio::test(start_paused = true)]
    async fn an_absence_is_over_when_any_read_shows_it() {
        let memory = Memory::default();
        let first = Instant::now();
        memory.missed("a", first, Some(first - SECOND), true);
        advance(SECOND).await;
        let shown = Instant::now();
        advance(SECOND).await;
        let again = memory.missed("a", Instant::now(), Some(shown), true);
        assert_eq!(again.since, Instant::now(), "a listing showed it in between");
        advance(SECOND).await;
        assert_eq!(memory.missed("a", Instant::now(), Some(shown), true).since, again.since);
    }

    #[tokio::test(start_paused = true)]
    async fn departed_members_are_evicted_first() {
        let memory = Memory::default();
        for n in 0..MEMBERS_MAX {
            memory.seen([format!("i-{n}").as_str()], |_| true);
        }
        memory.seen(["new"], |_| true);
        assert!(!memory.is_member("new"), "all members exist");
        memory.seen(["new"], |id| id != "i-7");
        assert!(memory.is_member("new") && memory.is_member("i-8") && !memory.is_member("i-7"));
    }
}
