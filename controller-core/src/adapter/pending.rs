//! Tracks calls to the adapter that have no answer yet. A slow call is not a failure, but its caller must be able to report what it waits
//! for.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// RPCs that a working adapter answers within [`ANSWER_TIMEOUT`], possibly with PENDING. The adapter may hold the other RPCs until their
/// deadline. Source: contract, load_balancer_service.proto.
const QUICK_RPCS: [&str; 4] = ["GetInfo", "PutBackendSet", "EnsureLoadBalancer", "DeleteLoadBalancer"];
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// The calls of [`QUICK_RPCS`] that are in progress, and when each of them began. Clones share the state.
#[derive(Clone, Debug, Default)]
pub(super) struct PendingCalls(Arc<Mutex<Begun>>);

#[derive(Debug, Default)]
struct Begun {
    begun: BTreeMap<u64, (&'static str, Instant)>,
    next: u64,
}

/// A call in progress, which ends when this value is dropped.
#[derive(Debug)]
pub(super) struct PendingCall {
    calls: PendingCalls,
    number: u64,
}

impl PendingCalls {
    /// Starts to track a call. Returns `None` for an RPC that may take long.
    pub(super) fn begin(&self, rpc: &'static str) -> Option<PendingCall> {
        if !QUICK_RPCS.contains(&rpc) {
            return None;
        }
        let mut calls = self.calls();
        let number = calls.next;
        calls.next += 1;
        calls.begun.insert(number, (rpc, Instant::now()));
        Some(PendingCall { calls: self.clone(), number })
    }

    /// Returns a text about the oldest call in progress if its answer is overdue.
    pub(super) fn overdue(&self) -> Option<String> {
        let (rpc, since) = *self.calls().begun.values().next()?;
        let waited = Instant::now().saturating_duration_since(since);
        (waited >= ANSWER_TIMEOUT)
            .then(|| format!("{rpc} has had no answer from the cloud adapter for {} s", waited.as_secs()))
    }

    fn calls(&self) -> MutexGuard<'_, Begun> {
        // The map is consistent even after a panic, since every operation on the map is a single step.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for PendingCall {
    fn drop(&mut self) {
        self.calls.calls().begun.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_oldest_unanswered_call_is_reported() {
        let pending = PendingCalls::default();
        let (first, _second) = (pending.begin("EnsureLoadBalancer"), {
            tokio::time::advance(Duration::from_secs(4)).await;
            pending.begin("GetInfo")
        });
        assert_eq!(pending.overdue(), None);
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(
            pending.overdue().as_deref(),
            Some("EnsureLoadBalancer has had no answer from the cloud adapter for 6 s")
        );
        drop(first);
        assert_eq!(pending.overdue(), None, "the other has just begun");
    }

    #[tokio::test(start_paused = true)]
    async fn calls_that_may_take_long_are_not_reported() {
        let pending = PendingCalls::default();
        let _held = ["ApplyRoutes", "BatchGetInstances", "WatchInstances"].map(|rpc| pending.begin(rpc));
        tokio::time::advance(Duration::from_secs(20)).await;
        assert_eq!(pending.overdue(), None);
    }
}
