//! How a replica that stands by keeps a snapshot without the vendor: from the watch of the one that leads.
//!
//! Everything keeps its age, so that a replica that takes over lists only when a listing is due. Load balancers are not fed: the watch
//! tells their summaries only, and what a driver plans from is in the vendor's answers. Their first listing comes before the first use.

use std::sync::Arc;

use tokio::time::Instant;

use super::Snapshot;
use crate::driver::Item;

impl<T: Item> Snapshot<T> {
    /// Takes over a complete listing: everything between RESET and SYNCED, as old as SYNCED says.
    pub(crate) fn replace_from(&self, items: Vec<T>, observed: Instant) {
        let listed = items.into_iter().map(|item| (item.key().to_owned(), Arc::new(item))).collect();
        self.change(|state| state.replace(listed, observed.min(Instant::now())));
    }

    /// Takes over an UPSERT. It counts as observed only by the BOOKMARK that follows.
    pub(crate) fn upsert_from(&self, item: T) {
        let now = Instant::now();
        self.change(|state| state.put(item.key().to_owned(), Arc::new(item), now));
    }

    /// Takes over a GONE.
    pub(crate) fn remove_from(&self, key: &str) {
        let now = Instant::now();
        self.change(|state| state.depart(key, now, false));
    }

    /// Takes over a BOOKMARK: nothing else changed up to then.
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

    /// Forgets everything: credentials for another part of the cloud, or no replica to follow. Watchers begin anew.
    pub(crate) fn forget(&self) {
        self.change(super::State::forget);
    }
}
