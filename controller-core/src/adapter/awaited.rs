//! Calls of the adapter that have no answer yet. One that takes long is no failure, and whoever waits shall know what for.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// What an adapter that works answers sooner than [`PATIENCE`], if only that it is at it. The other RPCs it may hold until their deadline.
/// Source: contract, load_balancer_service.proto.
const PROMPT: [&str; 4] = ["GetInfo", "PutBackendSet", "EnsureLoadBalancer", "DeleteLoadBalancer"];
const PATIENCE: Duration = Duration::from_secs(5);

/// The calls of [`PROMPT`] that are under way, and when each began. Cloning gives another handle.
#[derive(Clone, Debug, Default)]
pub(super) struct Awaited(Arc<Mutex<Calls>>);

#[derive(Debug, Default)]
struct Calls {
    begun: BTreeMap<u64, (&'static str, Instant)>,
    next: u64,
}

/// A call that is under way, until this is dropped.
#[derive(Debug)]
pub(super) struct Pending {
    awaited: Awaited,
    number: u64,
}

impl Awaited {
    /// A call that may take long is none to wait for.
    pub(super) fn begin(&self, rpc: &'static str) -> Option<Pending> {
        if !PROMPT.contains(&rpc) {
            return None;
        }
        let mut calls = self.calls();
        let number = calls.next;
        calls.next += 1;
        calls.begun.insert(number, (rpc, Instant::now()));
        Some(Pending { awaited: self.clone(), number })
    }

    /// That the oldest call has had no answer for long.
    pub(super) fn silence(&self) -> Option<String> {
        let (rpc, since) = *self.calls().begun.values().next()?;
        let waited = Instant::now().saturating_duration_since(since);
        (waited >= PATIENCE)
            .then(|| format!("{rpc} has had no answer of the cloud adapter for {} s", waited.as_secs()))
    }

    fn calls(&self) -> MutexGuard<'_, Calls> {
        // Every operation on it is a single one: it is consistent whatever happened.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.awaited.calls().begun.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_oldest_call_without_an_answer_is_told_of_when_it_takes_long() {
        let awaited = Awaited::default();
        let (first, _second) = (awaited.begin("EnsureLoadBalancer"), {
            tokio::time::advance(Duration::from_secs(4)).await;
            awaited.begin("GetInfo")
        });
        assert_eq!(awaited.silence(), None);
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(
            awaited.silence().as_deref(),
            Some("EnsureLoadBalancer has had no answer of the cloud adapter for 6 s")
        );
        drop(first);
        assert_eq!(awaited.silence(), None, "the other has just begun");
    }

    #[tokio::test(start_paused = true)]
    async fn what_an_adapter_may_hold_is_no_silence() {
        let awaited = Awaited::default();
        let _held = ["ApplyRoutes", "BatchGetInstances", "WatchInstances"].map(|rpc| awaited.begin(rpc));
        tokio::time::advance(Duration::from_secs(20)).await;
        assert_eq!(awaited.silence(), None);
    }
}
