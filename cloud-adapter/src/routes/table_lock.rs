//! Serialises the writers of routes in the order of arrival. The current writer gets the priority of the most urgent waiting request.

use std::sync::PoisonError;

use cloud_api_proto::v1alpha1::Priority;
use tokio::sync::{Mutex, MutexGuard, watch};

/// Lock for one writer at a time: in most clouds, a route table is one object.
#[derive(Debug)]
pub(crate) struct TableLock {
    writing: Mutex<()>,
    waiting: std::sync::Mutex<Vec<Priority>>,
    asked: watch::Sender<Priority>,
}

/// A waiting request, which is registered until this value is dropped.
struct WaitingWriter<'a> {
    turns: &'a TableLock,
    priority: Priority,
}

impl Default for TableLock {
    fn default() -> Self {
        let asked = watch::Sender::new(Priority::Unspecified);
        Self { writing: Mutex::default(), waiting: std::sync::Mutex::default(), asked }
    }
}

impl TableLock {
    /// Waits for the lock, which is released when the returned guard is dropped.
    pub(super) async fn take(&self, priority: Priority) -> MutexGuard<'_, ()> {
        self.change(|waiting| waiting.push(priority));
        let _place = WaitingWriter { turns: self, priority };
        self.writing.lock().await
    }

    /// The priority of the most urgent waiting request; unspecified if no request waits.
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

impl Drop for WaitingWriter<'_> {
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
    async fn writer_sees_the_priority_of_waiters() {
        let turns = TableLock::default();
        let asked = turns.asked();
        let writing = turns.take(Priority::Background).await;
        assert_eq!(*asked.borrow(), Priority::Unspecified, "no request waits");
        let (mut leisurely, mut urgent) =
            (Box::pin(turns.take(Priority::Lifecycle)), Box::pin(turns.take(Priority::Traffic)));
        assert!((&mut leisurely).now_or_never().is_none() && (&mut urgent).now_or_never().is_none());
        assert_eq!(*asked.borrow(), Priority::Traffic);
        drop(writing);
        let writing = leisurely.await;
        assert_eq!(*asked.borrow(), Priority::Traffic, "later requests wait for this one, too");
        drop(urgent);
        assert_eq!(*asked.borrow(), Priority::Unspecified, "no request waits any more");
        drop(writing);
    }
}
