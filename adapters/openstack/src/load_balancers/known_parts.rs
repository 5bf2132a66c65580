//! Caches the parts of load balancers in the last listing, so that the runtime can wait for pending load balancers without a complete
//! listing at each poll.
//!
//! Octavia locks a load balancer while a part changes, and then updates its status and time of change. So while all load balancers are
//! unchanged, their parts are unchanged, too. Because the time has a resolution of one second, the driver drops the cache whenever it
//! writes. Because other clients may also write, the driver uses the cache only for a short time, while load balancers are pending.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use super::{Sweep, detail::PENDING};
use crate::api::responses::Balancer;

/// Maximum age of the cache. The maximum limits how long the cache can miss a second change by another client within the same second.
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
    /// Number of writes by this driver so far.
    pub(crate) fn writes(&self) -> u64 {
        self.lock().writes
    }

    /// Drops the cache. Called before and after each write, whatever its result.
    pub(crate) fn forget(&self) {
        let mut state = self.lock();
        state.writes += 1;
        state.last = None;
    }

    /// Stores the parts of a listing. If the listing took its parts from this cache, their age is not reset.
    pub(super) fn learn(&self, sweep: &Sweep) {
        let mut state = self.lock();
        if sweep.writes == state.writes && state.last.is_none() {
            state.last = Some(Last { at: Instant::now(), sweep: sweep.clone() });
        }
    }

    /// Adds the cached parts to a listing of load balancers. Returns `false` if the parts must be read.
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

/// Whether any load balancer is being changed.
fn is_waited_for(pages: &[Arc<[Balancer]>]) -> bool {
    all(pages).any(|one| one.provisioning_status.starts_with(PENDING))
}

fn all(pages: &[Arc<[Balancer]>]) -> impl Iterator<Item = &Balancer> {
    pages.iter().flat_map(|page| page.iter())
}
