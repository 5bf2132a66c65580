//! Whether a task still lets go of its thread. What it waits for has limits of its own; a task that never waits again (a deadlock, an
//! endless loop) has none.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// Steps between two waits take micro- or milliseconds; the longest, on a large listing, a second.
const STUCK: Duration = Duration::from_secs(30);

/// The pulse of one task. Cloning gives another handle.
#[derive(Clone, Debug, Default)]
pub(super) struct Pulse(Arc<Mutex<Option<Instant>>>);

impl Pulse {
    /// The same task, with this pulse.
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

    /// # Errors
    /// How long the task has not let go of its thread.
    pub(super) fn judge(&self) -> Result<(), String> {
        match self.since().map(|since| since.elapsed()) {
            Some(time) if time >= STUCK => Err(format!("has not paused for {} s", time.as_secs())),
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

    #[tokio::test(start_paused = true)]
    async fn a_task_that_never_pauses_again_is_seen() {
        let (pulse, (begun, begins), (end, ends)) =
            (Pulse::default(), std::sync::mpsc::channel(), std::sync::mpsc::channel());
        let task = pulse.clone().of(async move {
            begun.send(()).expect("somebody waits");
            ends.recv().expect("the end");
        });
        let runtime = tokio::runtime::Handle::current();
        let stuck = thread::spawn(move || runtime.block_on(task));
        begins.recv().expect("it runs");
        assert_eq!(pulse.judge(), Ok(()), "not for long");
        tokio::time::advance(STUCK).await;
        assert_eq!(pulse.judge(), Err("has not paused for 30 s".to_owned()));
        end.send(()).expect("it waits");
        stuck.join().expect("ends");
        assert_eq!(pulse.judge(), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_waits_for_long_is_well() {
        let pulse = Pulse::default();
        let mut task = pin!(pulse.clone().of(std::future::pending()));
        assert!(futures::poll!(task.as_mut()).is_pending());
        tokio::time::advance(STUCK * 100).await;
        assert_eq!(pulse.judge(), Ok(()));
    }
}
