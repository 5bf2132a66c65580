//! Caches the members of pools, because the listing of pools contains only the members' IDs.
//!
//! The address and port of a member ID never change. If the weight of a member changes, the pool's time of the last change also changes.
//! Because that time has a resolution of one second, the driver also drops the members of a pool from the cache whenever it changes them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::detail::ACTIVE;
use crate::api::responses::{Member, Pool};

/// Cached members, by the ID of the pool.
#[derive(Debug, Default)]
pub(crate) struct KnownMembers(Mutex<BTreeMap<String, Known>>);

#[derive(Debug)]
struct Known {
    members: Arc<[Member]>,
    /// State of the pool when it was listed, before its members were read.
    as_of: AsOf,
}

#[derive(Debug, PartialEq, Eq)]
struct AsOf {
    updated_at: Option<String>,
    settled: bool,
    ids: BTreeSet<String>,
}

impl AsOf {
    fn read(pool: &Pool) -> Self {
        let ids = pool.members.iter().map(|member| member.id.clone()).collect();
        Self { updated_at: pool.updated_at.clone(), settled: pool.provisioning_status == ACTIVE, ids }
    }
}

impl KnownMembers {
    /// Returns the members of a pool, or `None` if the pool has changed since its members were read.
    pub(crate) fn of(&self, pool: &Pool) -> Option<Arc<[Member]>> {
        if pool.members.is_empty() {
            return Some(Arc::from([]));
        }
        let known = self.lock();
        let known = known.get(&pool.id).filter(|known| known.as_of == AsOf::read(pool))?;
        Some(Arc::clone(&known.members))
    }

    /// Stores the members that were read after the pool was listed in this state.
    pub(crate) fn learn(&self, pool: &Pool, members: Vec<Member>) {
        let known = Known { members: members.into(), as_of: AsOf::read(pool) };
        self.lock().insert(pool.id.clone(), known);
    }

    /// Drops a pool's members from the cache. The driver calls this before and after each write, whatever the result of the write.
    pub(crate) fn forget(&self, pool: &str) {
        self.lock().remove(pool);
    }

    pub(crate) fn forget_others<'a>(&self, pools: impl Iterator<Item = &'a Pool>) {
        let there: BTreeSet<&str> = pools.map(|pool| pool.id.as_str()).collect();
        self.lock().retain(|id, _| there.contains(id.as_str()));
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
