//! Remembers each node that was just initialised, until the cache shows the write.
//!
//! The watch shows a write shortly after the API server has confirmed the write. A reconcile that another change triggers in between would
//! repeat the write. The API server would refuse the repeated write, because the patch tests the taints.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use crate::plan::Node;

/// Time after which the cache is trusted again; longer than the lag of a working watch.
pub(crate) const LIMIT: Duration = Duration::from_secs(10);

/// The time of the last write to each node, by the node's UID.
#[derive(Debug, Default)]
pub(crate) struct Echo(Mutex<BTreeMap<String, Instant>>);

impl Echo {
    /// Records that the controller has just removed the taint from the node.
    pub(crate) fn wrote(&self, node: &Node) {
        let now = Instant::now();
        let mut written = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        written.retain(|_, at| now.duration_since(*at) < LIMIT);
        written.insert(node.uid.clone(), now);
    }

    /// Whether the cache still shows the node as it was before the write.
    pub(crate) fn is_awaited(&self, node: &Node) -> bool {
        let mut written = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !node.is_uninitialised() {
            written.remove(&node.uid);
        }
        written.get(&node.uid).is_some_and(|at| at.elapsed() < LIMIT)
    }
}

#[cfg(test)]
mod tests {
    use controller_core::testing::node;

    use super::*;
    use crate::mirror::trim_node;

    #[tokio::test(start_paused = true)]
    async fn written_node_is_skipped_until_the_cache_shows_it_or_times_out() {
        let (echo, before) = (Echo::default(), trim_node(&node("a").uninitialised().build()));
        assert!(!echo.is_awaited(&before));
        echo.wrote(&before);
        assert!(echo.is_awaited(&before));
        assert!(!echo.is_awaited(&trim_node(&node("a").uid("another").uninitialised().build())));
        tokio::time::advance(LIMIT).await;
        assert!(!echo.is_awaited(&before), "the cache is trusted again");
    }

    // Behaviour: NA11
    #[tokio::test(start_paused = true)]
    async fn taint_that_returns_after_the_write_is_seen_is_a_change() {
        let (echo, before) = (Echo::default(), trim_node(&node("a").uninitialised().build()));
        echo.wrote(&before);
        assert!(!echo.is_awaited(&trim_node(&node("a").build())));
        assert!(!echo.is_awaited(&before));
    }
}
