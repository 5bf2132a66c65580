//! Nodes that were made ready for use, but whose mirror does not show it yet.
//!
//! The API server tells of a write a moment after it has answered it. A node that something else wakes in that moment would be
//! written a second time, and the guard of the patch would refuse it.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use crate::plan::Node;

/// Longer than a watch that works ever lags; after that the mirror is believed again.
pub(crate) const LIMIT: Duration = Duration::from_secs(10);

/// By UID: when it was written.
#[derive(Debug, Default)]
pub(crate) struct Echo(Mutex<BTreeMap<String, Instant>>);

impl Echo {
    /// The node has just lost its taint.
    pub(crate) fn wrote(&self, node: &Node) {
        let now = Instant::now();
        let mut written = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        written.retain(|_, at| now.duration_since(*at) < LIMIT);
        written.insert(node.uid.clone(), now);
    }

    /// Whether this is how the node was before it was written.
    pub(crate) fn is_awaited(&self, node: &Node) -> bool {
        let mut written = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !node.is_uninitialised() {
            written.remove(&node.uid);
        }
        written.get(&node.uid).is_some_and(|at| at.elapsed() < LIMIT)
    }
}
