//! Detects a task that blocks its thread. Calls to other systems have time limits of their own. Without this module, however, a deadlock or
//! an endless loop in a task would not be noticed.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// The time without yielding after which a task counts as stuck. Steps between two yields take micro- or milliseconds. The longest step, on
/// a large listing, takes a second.
const STUCK: Duration = Duration::from_secs(30);

/// The time at which the running step of a task began, or `None` while the task waits. Cloning gives another handle.
#[derive(Clone, Debug, Default)]
pub(super) struct Watchdog(Arc<Mutex<Option<Instant>>>);

impl Watchdog {
    /// Wraps a task so that it updates this watchdog.
    pub(super) async fn of(self, task: impl Future<Output = ()>) {
        let mut task = pin!(task);
        poll_fn(|context| {
            *self.since() = Some(Instant::now());
            let polled = task.as_mut().poll(context);
            *self.since() = None;
            polled
        })
        .await;
    }

    pub(super) fn check(&self) -> Result<(), String> {
        match self.since().map(|since| since.elapsed()) {
            Some(time) if time >= STUCK => Err(format!("has not yielded for {} s", time.as_secs())),
            Some(_) | None => Ok(()),
        }
    }

    fn since(&self) -> MutexGuard<'_, Option<Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    // Behaviour: P6
    #[tokio::test(start_paused = true)]
    async fn a_task_that_never_yields_is_detected() {
        let (watchdog, (begun, begins), (end, ends)) =
            (Watchdog::default(), std::sync::mpsc::channel(), std::sync::mpsc::channel());
        let task = watchdog.clone().of(async move {
            begun.send(()).expect("the test waits");
            ends.recv().expect("the end");
        });
        let runtime = tokio::runtime::Handle::current();
        let stuck = thread::spawn(move || runtime.block_on(task));
        begins.recv().expect("the task runs");
        assert_eq!(watchdog.check(), Ok(()), "not for long");
        tokio::time::advance(STUCK).await;
        assert_eq!(watchdog.check(), Err("has not yielded for 30 s".to_owned()));
        end.send(()).expect("the task waits");
        stuck.join().expect("ends");
        assert_eq!(watchdog.check(), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_waits_for_long_is_alive() {
        let watchdog = Watchdog::default();
        let mut task = pin!(watchdog.clone().of(std::future::pending()));
        assert!(futures::poll!(task.as_mut()).is_pending());
        tokio::time::advance(STUCK * 100).await;
        assert_eq!(watchdog.check(), Ok(()));
    }
}
