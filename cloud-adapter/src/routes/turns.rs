//! Whose turn it is to write: one at a time, in the order in which they came, and as fast as the most urgent of those who wait asks.

use std::sync::PoisonError;

use cloud_api_proto::v1alpha1::Priority;
use tokio::sync::{Mutex, MutexGuard, watch};

/// A route table is one object at most vendors: one writer at a time.
#[derive(Debug)]
pub(crate) struct Turns {
    writing: Mutex<()>,
    waiting: std::sync::Mutex<Vec<Priority>>,
    asked: watch::Sender<Priority>,
}

/// One who waits, until it is dropped.
struct Place<'a> {
    turns: &'a Turns,
    priority: Priority,
}

impl Default for Turns {
    fn default() -> Self {
        let asked = watch::Sender::new(Priority::Unspecified);
        Self { writing: Mutex::default(), waiting: std::sync::Mutex::default(), asked }
    }
}

impl Turns {
    /// Waits for its turn, which lasts until the answer is dropped.
    pub(super) async fn take(&self, priority: Priority) -> MutexGuard<'_, ()> {
        self.change(|waiting| waiting.push(priority));
        let _place = Place { turns: self, priority };
        self.writing.lock().await
    }

    /// How urgent the most urgent of those who wait is. Nobody does: of no urgency at all.
    pub(super) fn asked(&self) -> watch::Receiver<Priority> {
        self.asked.subscribe()
    }

    fn change(&self, change: impl FnOnce(&mut Vec<Priority>)) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut waiting);
        let most = waiting.iter().copied().max().unwrap_or(Priority::Unspecified);
        self.asked.send_if_modified(|asked| std::mem::replace(asked, most) != most);
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.turns.change(|waiting| {
            if let Some(at) = waiting.iter().position(|one| *one == self.priority) {
                waiting.swap_remove(at);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn who_writes_hears_how_urgent_those_are_who_wait() {
        let turns = Turns::default();
        let asked = turns.asked();
        let writing = turns.take(Priority::Background).await;
        assert_eq!(*asked.borrow(), Priority::Unspecified, "nobody waits");
        let (mut leisurely, mut urgent) =
            (Box::pin(turns.take(Priority::Lifecycle)), Box::pin(turns.take(Priority::Traffic)));
        assert!((&mut leisurely).now_or_never().is_none() && (&mut urgent).now_or_never().is_none());
        assert_eq!(*asked.borrow(), Priority::Traffic);
        drop(writing);
        let writing = leisurely.await;
        assert_eq!(*asked.borrow(), Priority::Traffic, "who came later waits for this one, too");
        drop(urgent);
        assert_eq!(*asked.borrow(), Priority::Unspecified, "nobody waits any more");
        drop(writing);
    }
}
