//! Which members pools have, as far as it was asked: the listing of pools tells their IDs alone.
//!
//! What a member's ID stands for never changes: its address and port. Its weight does, and then the time of the pool's last change. That
//! is told to the second, so what we change ourselves is forgotten at once.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::{
    ACTIVE,
    answers::{Member, Pool},
};

/// By the ID of the pool.
#[derive(Debug, Default)]
pub(crate) struct KnownMembers(Mutex<BTreeMap<String, Known>>);

#[derive(Debug)]
struct Known {
    members: Arc<[Member]>,
    /// The pool as it was listed before the members were.
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
    /// The members of a pool as it is listed now. `None`: they must be asked for.
    pub(crate) fn of(&self, pool: &Pool) -> Option<Arc<[Member]>> {
        if pool.members.is_empty() {
            return Some(Arc::from([]));
        }
        let known = self.lock();
        let known = known.get(&pool.id).filter(|known| known.as_of == AsOf::read(pool))?;
        Some(Arc::clone(&known.members))
    }

    /// Notes what was asked for after the pool was listed like this.
    pub(crate) fn learn(&self, pool: &Pool, members: Vec<Member>) {
        let known = Known { members: members.into(), as_of: AsOf::read(pool) };
        self.lock().insert(pool.id.clone(), known);
    }

    /// Before and after a write, whatever came of it.
    pub(crate) fn forget(&self, pool: &str) {
        self.lock().remove(pool);
    }

    /// Pools that are gone.
    pub(crate) fn forget_others<'a>(&self, pools: impl Iterator<Item = &'a Pool>) {
        let there: BTreeSet<&str> = pools.map(|pool| pool.id.as_str()).collect();
        self.lock().retain(|id, _| there.contains(id.as_str()));
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
