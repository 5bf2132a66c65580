//! Serialises the writers of routes in the order of their arrival. The current writer gets the priority of the most urgent waiting request.

use std::sync::PoisonError;

use cloud_api_proto::v1alpha1::Priority;
use tokio::sync::{Mutex, MutexGuard, watch};

/// The lock that admits one writer at a time, because in most clouds a route table is one object.
#[derive(Debug)]
pub(crate) struct TableLock {
    writing: Mutex<()>,
    waiting: std::sync::Mutex<Vec<Priority>>,
    priority: watch::Sender<Priority>,
}

/// A waiting request. The request is registered until this value is dropped.
struct WaitingWriter<'a> {
    lock: &'a TableLock,
    priority: Priority,
}

impl Default for TableLock {
    fn default() -> Self {
        let priority = watch::Sender::new(Priority::Unspecified);
        Self { writing: Mutex::default(), waiting: std::sync::Mutex::default(), priority }
    }
}

impl TableLock {
    pub(super) async fn take(&self, priority: Priority) -> MutexGuard<'_, ()> {
        self.change(|waiting| waiting.push(priority));
        let _waiting = WaitingWriter { lock: self, priority };
        self.writing.lock().await
    }

    /// Returns the priority of the most urgent waiting request. If no request waits, the priority is unspecified.
    pub(super) fn priority(&self) -> watch::Receiver<Priority> {
        self.priority.subscribe()
    }

    fn change(&self, change: impl FnOnce(&mut Vec<Priority>)) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut waiting);
        let most = waiting.iter().copied().max().unwrap_or(Priority::Unspecified);
        self.priority.send_if_modified(|priority| std::mem::replace(priority, most) != most);
    }
}

impl Drop for WaitingWriter<'_> {
    fn drop(&mut self) {
        self.lock.change(|waiting| {
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
        let lock = TableLock::default();
        let priority = lock.priority();
        let writing = lock.take(Priority::Background).await;
        assert_eq!(*priority.borrow(), Priority::Unspecified, "no request waits");
        let (mut leisurely, mut urgent) =
            (Box::pin(lock.take(Priority::Lifecycle)), Box::pin(lock.take(Priority::Traffic)));
        assert!((&mut leisurely).now_or_never().is_none() && (&mut urgent).now_or_never().is_none());
        assert_eq!(*priority.borrow(), Priority::Traffic);
        drop(writing);
        let writing = leisurely.await;
        assert_eq!(*priority.borrow(), Priority::Traffic, "later requests wait for this one, too");
        drop(urgent);
        assert_eq!(*priority.borrow(), Priority::Unspecified, "no request waits any more");
        drop(writing);
    }
}
