//! What the last sweep found of load balancers' parts: so that waiting for some of them does not cost a whole sweep each time.
//!
//! Octavia locks a load balancer for each change of a part, and writes at the load balancer itself that it does: its status, and the time.
//! As long as all load balancers are told as they were, so are their parts. The time is told to the second, so what we change ourselves is
//! forgotten at once, and for what others change it holds only while something is waited for, and not for long.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use super::{Sweep, answers::Balancer};

/// What others change twice within a second is seen after this, at the latest.
const GOOD_FOR: Duration = Duration::from_mins(1);
/// How the statuses begin of what is being changed.
const PENDING: &str = "PENDING_";

/// The last sweep, if nothing was written since.
#[derive(Debug, Default)]
pub(crate) struct KnownParts(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Grows with each write of ours.
    writes: u64,
    last: Option<Last>,
}

#[derive(Debug)]
struct Last {
    at: Instant,
    sweep: Sweep,
}

impl KnownParts {
    /// The writes of ours so far.
    pub(crate) fn writes(&self) -> u64 {
        self.lock().writes
    }

    /// Before and after a write, whatever came of it.
    pub(crate) fn forget(&self) {
        let mut state = self.lock();
        state.writes += 1;
        state.last = None;
    }

    /// Keeps what a sweep found. One that found parts here is as old as they are.
    pub(super) fn learn(&self, sweep: &Sweep) {
        let mut state = self.lock();
        if sweep.writes == state.writes && state.last.is_none() {
            state.last = Some(Last { at: Instant::now(), sweep: sweep.clone() });
        }
    }

    /// Gives a sweep, which has listed the load balancers, their parts. `false`: they must be asked for.
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

/// Whether any is being changed.
fn is_waited_for(pages: &[Arc<[Balancer]>]) -> bool {
    all(pages).any(|one| one.provisioning_status.starts_with(PENDING))
}

fn all(pages: &[Arc<[Balancer]>]) -> impl Iterator<Item = &Balancer> {
    pages.iter().flat_map(|page| page.iter())
}
