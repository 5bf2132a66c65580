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

#[cfg(test)]
mod tests {
    use controller_core::testing::node;

    use super::*;
    use crate::mirror::trim_node;

    #[tokio::test(start_paused = true)]
    async fn a_written_node_is_left_alone_until_the_mirror_shows_it_or_for_a_while() {
        let (echo, before) = (Echo::default(), trim_node(&node("a").uninitialised().build()));
        assert!(!echo.is_awaited(&before));
        echo.wrote(&before);
        assert!(echo.is_awaited(&before));
        assert!(!echo.is_awaited(&trim_node(&node("a").uid("another").uninitialised().build())));
        tokio::time::advance(LIMIT).await;
        assert!(!echo.is_awaited(&before), "the mirror is believed again");
    }

    #[tokio::test(start_paused = true)]
    async fn a_taint_that_comes_back_after_the_echo_is_news() {
        let (echo, before) = (Echo::default(), trim_node(&node("a").uninitialised().build()));
        echo.wrote(&before);
        assert!(!echo.is_awaited(&trim_node(&node("a").build())));
        assert!(!echo.is_awaited(&before));
    }
}
