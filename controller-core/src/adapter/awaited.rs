//! Calls of the adapter that have no answer yet. One that takes long is no failure, and whoever waits shall know what for.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// An adapter that works answers sooner, if only that it is at it.
const PATIENCE: Duration = Duration::from_secs(5);

/// When each call that is under way began. Cloning gives another handle.
#[derive(Clone, Debug, Default)]
pub(super) struct Awaited(Arc<Mutex<Calls>>);

#[derive(Debug, Default)]
struct Calls {
    begun: BTreeMap<u64, Instant>,
    next: u64,
}

/// A call that is under way, until this is dropped.
#[derive(Debug)]
pub(super) struct Pending {
    awaited: Awaited,
    number: u64,
}

impl Awaited {
    pub(super) fn begin(&self) -> Pending {
        let mut calls = self.calls();
        let number = calls.next;
        calls.next += 1;
        calls.begun.insert(number, Instant::now());
        Pending { awaited: self.clone(), number }
    }

    /// That the oldest call has had no answer for long.
    pub(super) fn silence(&self) -> Option<String> {
        let since = *self.calls().begun.values().next()?;
        let waited = Instant::now().saturating_duration_since(since);
        (waited >= PATIENCE)
            .then(|| format!("a request to the cloud adapter has had no answer for {} s", waited.as_secs()))
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
        let (first, _second) = (awaited.begin(), {
            tokio::time::advance(Duration::from_secs(4)).await;
            awaited.begin()
        });
        assert_eq!(awaited.silence(), None);
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(
            awaited.silence().as_deref(),
            Some("a request to the cloud adapter has had no answer for 6 s")
        );
        drop(first);
        assert_eq!(awaited.silence(), None, "the other has just begun");
    }
}
