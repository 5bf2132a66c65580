//! Caches the listeners, pools and other objects of load balancers from the last listing. With this cache, the runtime can wait for pending
//! load balancers without a complete listing at each poll.
//!
//! Octavia locks a load balancer while one of its objects changes, and then updates the load balancer's status and time of change. While a
//! load balancer is unchanged, its listeners, pools and members are therefore unchanged, too. Because the time has a resolution of one
//! second, the driver drops the cache whenever it writes. Other clients may also write. The driver therefore uses the cache only for a
//! short time, while load balancers are pending.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use super::{Sweep, detail::PENDING};
use crate::api::responses::Balancer;

/// The maximum age of the cache. If another client makes two changes within the same second, the cache may miss the second change for this
/// time.
const GOOD_FOR: Duration = Duration::from_mins(1);

/// The last listing, unless the driver has written since then.
#[derive(Debug, Default)]
pub(crate) struct KnownParts(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Number of writes by this driver.
    writes: u64,
    last: Option<Last>,
}

#[derive(Debug)]
struct Last {
    at: Instant,
    sweep: Sweep,
}

impl KnownParts {
    pub(crate) fn writes(&self) -> u64 {
        self.lock().writes
    }

    /// Drops the cache. The driver calls this before and after each write, whatever the result of the write.
    pub(crate) fn forget(&self) {
        let mut state = self.lock();
        state.writes += 1;
        state.last = None;
    }

    /// Stores the objects of a listing. If the listing took these objects from this cache, their age is not reset.
    pub(super) fn learn(&self, sweep: &Sweep) {
        let mut state = self.lock();
        if sweep.writes == state.writes && state.last.is_none() {
            state.last = Some(Last { at: Instant::now(), sweep: sweep.clone() });
        }
    }

    /// Adds the cached objects to a listing of load balancers. Returns `false` if these objects must be read.
    pub(super) fn join(&self, sweep: &mut Sweep) -> bool {
        let mut state = self.lock();
        let writes = state.writes;
        let good = state.last.take_if(|last| {
            !(writes == sweep.writes
                && last.at.elapsed() < GOOD_FOR
                && is_waited_for(&sweep.balancers)
                && all(&last.sweep.balancers).eq(all(&sweep.balancers)))
        });
        drop(good);
        let Some(Last { sweep: last, .. }) = &state.last else { return false };
        sweep.listeners.clone_from(&last.listeners);
        sweep.pools.clone_from(&last.pools);
        sweep.monitors.clone_from(&last.monitors);
        true
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_waited_for(pages: &[Arc<[Balancer]>]) -> bool {
    all(pages).any(|one| one.provisioning_status.starts_with(PENDING))
}

fn all(pages: &[Arc<[Balancer]>]) -> impl Iterator<Item = &Balancer> {
    pages.iter().flat_map(|page| page.iter())
}
