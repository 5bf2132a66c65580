//! Which writer is the newest, per scope; in memory.
//!
//! The epoch is compared for the whole scope: a scope has one holder at a time. The sequence is compared per object, because one
//! holder sends requests for different objects at once, and they may overtake each other on the way.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use cloud_api_proto::{AdapterError, Reason, v1alpha1::Fence};

/// The highest fences seen.
#[derive(Debug, Default)]
pub(crate) struct Fences(Mutex<BTreeMap<String, Holder>>);

#[derive(Debug, Default)]
struct Holder {
    epoch: u64,
    /// By object, within this epoch.
    sequences: BTreeMap<String, u64>,
}

impl Fences {
    /// Accepts a writer and remembers it, or refuses an older one.
    ///
    /// # Errors
    /// `FIELD_INVALID` without a scope, `STALE_FENCE` if a newer writer was here.
    pub(crate) fn admit(&self, fence: Option<&Fence>, object: &str) -> Result<Fence, AdapterError> {
        let fence = fence.filter(|fence| !fence.scope.is_empty());
        let fence = fence
            .ok_or_else(|| AdapterError::field("fence.scope", "is missing: name the shard that writes"))?;
        let mut scopes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let holder = scopes.entry(fence.scope.clone()).or_default();
        let newest = holder.sequences.get(object).copied().unwrap_or_default();
        if fence.epoch < holder.epoch || (fence.epoch == holder.epoch && fence.sequence < newest) {
            return Err(stale(fence, holder.epoch));
        }
        if fence.epoch > holder.epoch {
            *holder = Holder { epoch: fence.epoch, sequences: BTreeMap::new() };
        }
        holder.sequences.insert(object.to_owned(), fence.sequence);
        Ok(fence.clone())
    }

    /// Whether a writer that was admitted before is still the newest of its scope.
    ///
    /// # Errors
    /// `STALE_FENCE`.
    pub(crate) fn check(&self, fence: &Fence) -> Result<(), AdapterError> {
        let scopes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match scopes.get(&fence.scope) {
            Some(holder) if holder.epoch > fence.epoch => Err(stale(fence, holder.epoch)),
            Some(_) | None => Ok(()),
        }
    }
}

fn stale(fence: &Fence, epoch: u64) -> AdapterError {
    let text = format!("epoch {} of {} is over: epoch {epoch} was here", fence.epoch, fence.scope);
    AdapterError::new(Reason::StaleFence, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fence(scope: &str, epoch: u64, sequence: u64) -> Fence {
        Fence { scope: scope.to_owned(), epoch, sequence }
    }

    #[test]
    fn only_the_newest_writer_of_a_scope_is_heard() {
        let fences = Fences::default();
        for (fence, object, heard) in [
            (fence("a/0", 2, 5), "x", true),
            (fence("a/0", 2, 5), "x", true),
            (fence("a/0", 2, 4), "x", false),
            (fence("a/0", 2, 4), "y", true),
            (fence("a/0", 1, 9), "z", false),
            (fence("b/0", 1, 1), "x", true),
            (fence("a/0", 3, 1), "x", true),
            (fence("a/0", 2, 9), "x", false),
        ] {
            assert_eq!(fences.admit(Some(&fence), object).is_ok(), heard, "{fence:?} for {object}");
        }
        assert!(fences.check(&fence("a/0", 2, 5)).is_err(), "overtaken meanwhile");
        assert!(fences.check(&fence("a/0", 3, 1)).is_ok());
    }

    #[test]
    fn a_writer_without_a_scope_is_refused() {
        assert!(Fences::default().admit(None, "x").is_err());
        assert!(Fences::default().admit(Some(&fence("", 1, 1)), "x").is_err());
    }
}
