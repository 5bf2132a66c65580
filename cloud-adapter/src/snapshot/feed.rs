//! Updates a standby's snapshot without vendor calls, from the leader's watch.
//!
//! Observation times are kept, so that a new leader lists only when a listing is due. The standby does not follow load balancers, because
//! the watch contains only their summaries, but drivers plan from the vendor's answers. A new leader lists load balancers before their
//! first use.

use std::sync::Arc;

use tokio::time::Instant;

use super::Snapshot;
use crate::driver::Item;

impl<T: Item> Snapshot<T> {
    /// Applies a complete listing: the items between RESET and SYNCED, observed at the time in SYNCED.
    pub(crate) fn replace_from(&self, items: Vec<T>, observed: Instant) {
        let listed = items.into_iter().map(|item| (item.key().to_owned(), Arc::new(item))).collect();
        self.change(|state| state.replace(listed, observed.min(Instant::now())));
    }

    /// The next BOOKMARK contains the time of observation.
    pub(crate) fn upsert_from(&self, item: T) {
        let now = Instant::now();
        self.change(|state| state.put(item.key().to_owned(), Arc::new(item), now));
    }

    pub(crate) fn remove_from(&self, key: &str) {
        let now = Instant::now();
        self.change(|state| state.depart(key, now, false));
    }

    /// Applies a BOOKMARK, which says that there are no other changes up to its time.
    pub(crate) fn observed_from(&self, observed: Instant) {
        let observed = observed.min(Instant::now());
        self.change(|state| {
            if state.observed.is_some_and(|before| before < observed) {
                state.observed = Some(observed);
                state.attempt = Some((observed, None));
                state.forget_departed(observed);
            }
        });
    }

    /// Drops all content, because the scope has changed or there is no leader to follow. Watches are reset.
    pub(crate) fn forget(&self) {
        self.change(super::State::forget);
    }
}
