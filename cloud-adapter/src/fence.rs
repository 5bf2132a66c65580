//! Records the newest writer of each cluster and scope, and refuses older writers.
//!
//! The epoch applies to the whole scope, because one replica at a time holds the scope's Lease. The sequence applies to an object, because
//! that replica sends requests for different objects concurrently, and the requests may arrive out of order.
//!
//! The state in memory is bounded and ends with the process. [`Fences::check_tags`] restores the state from the tags that drivers write.
//! Fences cause no additional writes. If the new writer has only changed backends or deleted objects, only this process knows that a new
//! writer replaced the former writer.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use cloud_api_proto::{AdapterError, Reason, v1alpha1::Fence};
use tokio::time::Instant;

use crate::strings;

/// Maximum number of scopes, over all clusters. A controller has one scope per shard.
const SCOPES_MAX: usize = 256;
/// Maximum number of objects per scope whose sequence is kept.
const OBJECTS_MAX: usize = 4096;

/// The highest fences seen so far, by cluster and scope.
#[derive(Debug, Default)]
pub(crate) struct Fences(Mutex<BTreeMap<(String, String), Holder>>);

#[derive(Debug)]
struct Holder {
    epoch: u64,
    /// The highest sequence of each object within `epoch`.
    sequences: BTreeMap<String, u64>,
    /// The lower bound of the sequences of objects that were evicted from `sequences`.
    floor: u64,
    used: Instant,
}

impl Holder {
    fn new(epoch: u64) -> Self {
        Self { epoch, sequences: BTreeMap::new(), floor: 0, used: Instant::now() }
    }

    fn newest(&self, object: &str) -> u64 {
        self.sequences.get(object).copied().unwrap_or(self.floor)
    }

    /// Records the sequence of an object. When the map is full, half of the objects are evicted at once: the objects with the lowest
    /// sequences.
    fn note(&mut self, object: &str, sequence: u64) {
        self.sequences.insert(object.to_owned(), sequence);
        if self.sequences.len() > OBJECTS_MAX {
            let mut all: Vec<u64> = self.sequences.values().copied().collect();
            let (_, middle, _) = all.select_nth_unstable(OBJECTS_MAX / 2);
            self.floor = self.floor.max(*middle);
            self.sequences.retain(|_, sequence| *sequence > self.floor);
        }
    }
}

impl Fences {
    /// Accepts a writer and records its fence, or refuses the writer if a newer writer is known.
    ///
    /// Returns `FIELD_INVALID` if the fence or its scope is missing, or the scope is too long; `STALE_FENCE` if a newer writer is known.
    pub(crate) fn admit(
        &self,
        cluster_id: &str,
        fence: Option<&Fence>,
        object: &str,
    ) -> Result<Fence, AdapterError> {
        let fence =
            fence.ok_or_else(|| AdapterError::field("fence", "is missing: set the writer's fence"))?;
        if fence.scope.is_empty() {
            return Err(AdapterError::field("fence.scope", "is empty: set the name of the writer's shard"));
        }
        strings::refuse(strings::too_long("fence", [("scope", fence.scope.as_str())]))?;
        self.with(cluster_id, fence, |holder| {
            let newest = holder.newest(object);
            if fence.epoch < holder.epoch || (fence.epoch == holder.epoch && fence.sequence < newest) {
                return Err(stale(fence, holder.epoch, newest));
            }
            if fence.epoch > holder.epoch {
                *holder = Holder::new(fence.epoch);
            }
            holder.note(object, fence.sequence);
            Ok(fence.clone())
        })
    }

    /// Reads the newest fence of the writer's scope from the tags of a cluster's objects, and refuses the writer if that fence is newer.
    ///
    /// Returns `STALE_FENCE` if a tag contains a newer fence.
    pub(crate) fn check_tags<'a>(
        &self,
        cluster_id: &str,
        fence: &Fence,
        tags: impl Iterator<Item = &'a Fence>,
    ) -> Result<(), AdapterError> {
        if let Some(newest) = tags.filter(|tag| tag.scope == fence.scope).max_by_key(|tag| tag.epoch) {
            self.learn(cluster_id, newest);
        }
        self.check(cluster_id, fence)
    }

    fn learn(&self, cluster_id: &str, tag: &Fence) {
        self.with(cluster_id, tag, |holder| {
            if tag.epoch > holder.epoch {
                *holder = Holder::new(tag.epoch);
            }
        });
    }

    /// Checks that a writer that was admitted earlier is still the newest writer of its scope.
    ///
    /// Returns `STALE_FENCE` if a newer writer is known.
    pub(crate) fn check(&self, cluster_id: &str, fence: &Fence) -> Result<(), AdapterError> {
        self.with(cluster_id, fence, |holder| {
            let stale = || stale(fence, holder.epoch, 0);
            if holder.epoch > fence.epoch { Err(stale()) } else { Ok(()) }
        })
    }

    fn with<R>(&self, cluster_id: &str, fence: &Fence, act: impl FnOnce(&mut Holder) -> R) -> R {
        let mut scopes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let name = (cluster_id.to_owned(), fence.scope.clone());
        if scopes.len() >= SCOPES_MAX
            && !scopes.contains_key(&name)
            && let Some(oldest) =
                scopes.iter().min_by_key(|(_, holder)| holder.used).map(|(name, _)| name.clone())
        {
            scopes.remove(&oldest);
        }
        let holder = scopes.entry(name).or_insert_with(|| Holder::new(0));
        holder.used = Instant::now();
        act(holder)
    }
}

/// Refuses a writer if the tag of its object contains a newer fence of the same scope.
///
/// Returns `STALE_FENCE` if the tag contains a newer fence.
pub(crate) fn check_tag(fence: &Fence, tag: Option<&Fence>) -> Result<(), AdapterError> {
    match tag.filter(|tag| tag.scope == fence.scope) {
        Some(tag) if (tag.epoch, tag.sequence) > (fence.epoch, fence.sequence) => {
            Err(stale(fence, tag.epoch, tag.sequence))
        }
        Some(_) | None => Ok(()),
    }
}

fn stale(fence: &Fence, epoch: u64, sequence: u64) -> AdapterError {
    let Fence { scope, .. } = fence;
    let text = if fence.epoch < epoch {
        format!("the epoch {} of {scope} is over: the newest epoch is {epoch}", fence.epoch)
    } else {
        format!("request {} of {scope} was overtaken by request {sequence}", fence.sequence)
    };
    AdapterError::new(Reason::StaleFence, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fence(scope: &str, epoch: u64, sequence: u64) -> Fence {
        Fence { scope: scope.to_owned(), epoch, sequence }
    }

    #[test]
    fn only_the_newest_writer_of_a_scope_is_admitted() {
        let fences = Fences::default();
        for (cluster, fence, object, heard) in [
            ("c", fence("a/0", 2, 5), "x", true),
            ("c", fence("a/0", 2, 5), "x", true),
            ("c", fence("a/0", 2, 4), "x", false),
            ("c", fence("a/0", 2, 4), "y", true),
            ("c", fence("a/0", 1, 9), "z", false),
            ("d", fence("a/0", 1, 9), "z", true),
            ("c", fence("b/0", 1, 1), "x", true),
            ("c", fence("a/0", 3, 1), "x", true),
            ("c", fence("a/0", 2, 9), "x", false),
        ] {
            assert_eq!(fences.admit(cluster, Some(&fence), object).is_ok(), heard, "{fence:?} for {object}");
        }
        assert!(fences.check("c", &fence("a/0", 2, 5)).is_err(), "overtaken in the meantime");
        assert!(fences.check("c", &fence("a/0", 3, 1)).is_ok());
    }

    #[test]
    fn fences_are_learned_from_tags() {
        let fences = Fences::default();
        fences.learn("c", &fence("a/0", 7, 3));
        assert!(fences.admit("c", Some(&fence("a/0", 6, 9)), "x").is_err());
        assert!(fences.admit("c", Some(&fence("a/0", 7, 1)), "x").is_ok());
        fences.learn("c", &fence("a/0", 5, 3));
        assert!(fences.check("c", &fence("a/0", 7, 1)).is_ok(), "older tags change nothing");
    }

    #[test]
    fn fence_tag_applies_to_its_object_and_scope() {
        for (tag, heard) in [
            (None, true),
            (Some(fence("a/0", 2, 5)), true),
            (Some(fence("a/0", 2, 6)), false),
            (Some(fence("a/0", 3, 0)), false),
            (Some(fence("b/0", 9, 9)), true),
        ] {
            assert_eq!(check_tag(&fence("a/0", 2, 5), tag.as_ref()).is_ok(), heard, "{tag:?}");
        }
    }

    #[test]
    fn memory_is_bounded_and_keeps_safety_relevant_state() {
        let fences = Fences::default();
        let last = 10 * OBJECTS_MAX as u64;
        for sequence in 1..=last {
            fences.admit("c", Some(&fence("a/0", 1, sequence)), &sequence.to_string()).expect("newer");
        }
        let kept = fences.with("c", &fence("a/0", 1, 1), |holder| holder.sequences.len());
        assert!(kept <= OBJECTS_MAX, "{kept}");
        for object in [1, last / 2, last] {
            let late = fence("a/0", 1, object - 1);
            assert!(fences.admit("c", Some(&late), &object.to_string()).is_err(), "object {object}");
        }
        assert!(fences.admit("c", Some(&fence("a/0", 1, last + 1)), "1").is_ok());

        for scope in 0..2 * SCOPES_MAX {
            fences.learn("c", &fence(&scope.to_string(), 1, 1));
        }
        assert_eq!(fences.0.lock().expect("whole").len(), SCOPES_MAX);
    }

    #[test]
    fn a_writer_without_a_scope_is_refused() {
        for (fence, field) in [(None, "fence"), (Some(fence("", 1, 1)), "fence.scope")] {
            let error = Fences::default().admit("c", fence.as_ref(), "x").expect_err(field);
            assert_eq!(error.violations[0].field, field);
        }
    }
}
