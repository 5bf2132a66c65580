//! The memories of all Services, shared by the workers. This module does no I/O.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use controller_core::leadership::{ShardPass, Shards};

use crate::plan::{memory::Memory, service::ServiceId};

#[derive(Debug, Default)]
pub(super) struct Memories(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// The memories, keyed by Service. A worker has exclusive use of its key and works on a copy, because other workers that count load
    /// balancers must still see the entry.
    by_service: BTreeMap<ServiceId, Memory>,
    /// For each shard, the epoch since which no other replica has held it, as of the creation of its memories. A later value means that
    /// another replica held the shard, so the memories are void.
    since: BTreeMap<usize, u64>,
}

impl Memories {
    /// Drops the memories of an earlier term, because another replica may have changed the load balancers. Returns whether the term is new.
    pub(super) fn enter(&self, pass: &ShardPass) -> bool {
        let mut memories = self.lock();
        let is_new = memories.since.insert(pass.shard(), pass.since()) != Some(pass.since());
        if is_new {
            memories.by_service.retain(|id, _| !pass.is_for(&id.uid));
        }
        is_new
    }

    pub(super) fn of(&self, id: &ServiceId) -> Memory {
        self.lock().by_service.get(id).cloned().unwrap_or_default()
    }

    /// Stores the memory at the end of a reconcile. If the term ended during the reconcile, the memory remains valid unless another replica
    /// has had a term since. `None`: the Service needs no memory.
    pub(super) fn store(&self, id: &ServiceId, pass: &ShardPass, memory: Option<Memory>) {
        let mut memories = self.lock();
        let is_valid = memories.since.get(&pass.shard()) == Some(&pass.since());
        match memory.filter(|_| is_valid) {
            Some(memory) => memories.by_service.insert(id.clone(), memory),
            None => memories.by_service.remove(id),
        };
    }

    /// Updates the memory before the actions of a plan run, for other workers that count load balancers.
    pub(super) fn publish(&self, id: &ServiceId, memory: Memory) {
        self.lock().by_service.insert(id.clone(), memory);
    }

    pub(super) fn forget(&self, id: &ServiceId) {
        self.lock().by_service.remove(id);
    }

    /// Returns the Services that are gone and whose load balancer this process created and has not deleted.
    pub(super) fn vanished(&self, shards: &Shards, is_gone: impl Fn(&ServiceId) -> bool) -> Vec<ServiceId> {
        let memories = self.lock();
        // If another replica had the shard in between, that replica may have deleted the load balancers.
        let is_known = |uid: &str| {
            let shard = shards.of(uid);
            shards.since(shard).is_some_and(|since| memories.since.get(&shard) == Some(&since))
        };
        let vanished = |(id, memory): &(&ServiceId, &Memory)| {
            memory.owned.created && !memory.is_removing() && is_gone(id) && is_known(&id.uid)
        };
        memories.by_service.iter().filter(vanished).map(|(id, _memory)| id.clone()).collect()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.lock().by_service.len()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Each operation on the maps is atomic, so a poisoned lock leaves them consistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
