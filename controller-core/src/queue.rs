//! The work queue. Each key is queued at most once, and at most one worker reconciles a key at a time. Namespaces are queued fairly, and
//! each key has its own backoff.
//!
//! The queue of `kube::runtime::controller` is not used, because it drops keys whose object is not in its store. Some objects exist only in
//! the cloud. All state is in `state`, which reads no clock.

mod lane;
mod metrics;
mod state;

use std::{
    any::Any,
    fmt::Display,
    future::Future,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::FutureExt as _;
use telemetry::traces;
use tokio::{sync::Notify, task::JoinSet, time::Instant};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, Span, error, field::Empty, info_span};

use self::{
    metrics::Metrics,
    state::{State, Taken},
};
use crate::{Again, metrics::Registry};

/// The requirements for a key.
pub trait Key: Ord + Clone + Display + Send + Sync + 'static {}

impl<T: Ord + Clone + Display + Send + Sync + 'static> Key for T {}

/// The backoff of a failed key. The pause is `first` after the first failure and doubles with each further failure, up to `longest`.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    /// Pause after the first failure.
    pub first: Duration,
    /// Longest pause.
    pub longest: Duration,
}

impl Backoff {
    /// Returns the pause after this number of consecutive failures. The number 0 counts as 1.
    #[must_use]
    pub fn pause(&self, failures: u32) -> Duration {
        let doubled = 1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX);
        self.first.saturating_mul(doubled).min(self.longest)
    }
}

/// The state of a key, for the status pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyState {
    /// The key is not queued.
    Nowhere,
    /// The key waits for a worker.
    Waits {
        /// The time at which the wait began.
        since: Instant,
        /// Whether the key was added individually, and not because all keys are reconciled.
        changed: bool,
    },
    /// A worker reconciles the key.
    Runs,
    /// The key is requeued.
    Later {
        /// The time at which the key is due.
        due: Instant,
    },
}

/// Number of keys in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Keys that wait for a worker.
    pub waiting: usize,
    /// Keys that a worker reconciles.
    pub running: usize,
    /// Keys that are due at a known later time.
    pub later: usize,
    /// How long the oldest waiting key has waited.
    pub oldest: Duration,
}

/// A work queue. Cloning gives another handle to the same queue.
#[derive(Debug)]
pub struct Queue<K> {
    inner: Arc<Inner<K>>,
}

#[derive(Debug)]
struct Inner<K> {
    name: &'static str,
    backoff: Backoff,
    state: Mutex<State<K>>,
    /// The signal that keys or due times have changed. Only the loop in [`Queue::run`] waits for this signal.
    changed: Notify,
    metrics: Metrics,
}

impl<K> Clone for Queue<K> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<K: Key> Queue<K> {
    /// Creates an empty queue. `name` is the metric label `name`, such as `Nodes`. All keys are in the same namespace.
    #[must_use]
    pub fn new(name: &'static str, backoff: Backoff) -> Self {
        Self::by_namespace(name, backoff, |_key| "")
    }

    /// Creates an empty queue that serves its namespaces in turn, so that many keys of one namespace do not delay the keys of another.
    /// `namespace` returns a key's namespace.
    #[must_use]
    pub fn by_namespace(name: &'static str, backoff: Backoff, namespace: fn(&K) -> &str) -> Self {
        let inner = Inner {
            name,
            backoff,
            state: Mutex::new(State::new(namespace)),
            changed: Notify::new(),
            metrics: Metrics::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Registers the `workqueue_*` metrics with the names and units that Kubernetes controllers use.
    pub fn register(&self, registry: &mut Registry)
    where
        K: std::fmt::Debug,
    {
        metrics::register(self, registry);
    }

    /// Queues `key` for the next free worker. The call has no effect if the key is queued already. If a worker is reconciling the key, the
    /// key is reconciled again afterwards.
    pub fn add(&self, key: K) {
        self.state().add(key, Instant::now());
        self.inner.changed.notify_one();
    }

    /// Queues `key` like [`Queue::add`], as part of a reconcile of all keys. Keys that are added individually come first.
    pub fn add_with_all(&self, key: K) {
        self.state().add_with_all(key, Instant::now());
        self.inner.changed.notify_one();
    }

    /// Queues `key` like [`Queue::add`], because of a change, but not before `delay` has passed.
    pub fn add_after(&self, key: K, delay: Duration) {
        self.state().add_after(key, state::after(Instant::now(), delay));
        self.inner.changed.notify_one();
    }

    /// Queues `key` after `delay`, even if nothing changes. The call has no effect if the key is already queued for an earlier time.
    pub fn after(&self, key: K, delay: Duration) {
        self.state().after(key, state::after(Instant::now(), delay));
        self.inner.changed.notify_one();
    }

    /// Resets the count of failures of `key`.
    pub fn forget(&self, key: &K) {
        self.state().forget(key);
    }

    /// Returns the number of keys that wait for a worker.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.state().depth()
    }

    /// Returns whether no key waits for a worker and no key is being reconciled. Delayed keys do not count.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.state().is_idle()
    }

    /// Returns how long the slowest worker has been busy with its key. The health check uses this to find stuck workers.
    #[must_use]
    pub fn longest_running(&self) -> Option<Duration> {
        self.state().longest_running(Instant::now())
    }

    /// Returns the state of a key.
    #[must_use]
    pub fn key_state(&self, key: &K) -> KeyState {
        self.state().key_state(key)
    }

    /// Returns the number of keys in each state.
    #[must_use]
    pub fn load(&self) -> Load {
        self.state().load(Instant::now())
    }

    /// Returns the keys that were added individually and wait for a worker, each with the time at which the wait began.
    #[must_use]
    pub fn changed(&self) -> Vec<(K, Instant)> {
        self.state().changed().map(|(key, since)| (key.clone(), since)).collect()
    }

    /// Returns the metric label `name`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.inner.name
    }

    /// Returns how long keys have been due while no worker took any key. The health check uses this to find workers that do not start.
    /// Returns `None` before [`Queue::run`], and while no key is due.
    #[must_use]
    pub fn stalled(&self) -> Option<Duration> {
        self.state().stalled(Instant::now())
    }

    /// Processes keys, at most `workers` at once, until `stop` is cancelled. The function then finishes the keys in progress and returns.
    ///
    /// `work` gets the key and its number of consecutive failures, and returns when to requeue the key. A panic in `work` is logged and
    /// counted as a failure of that key only.
    pub async fn run<F, W>(&self, workers: usize, stop: CancellationToken, work: F)
    where
        F: Fn(K, u32) -> W,
        W: Future<Output = Again> + Send + 'static,
    {
        self.state().begin(Instant::now());
        let mut running = JoinSet::new();
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                Some(ended) = running.join_next() => report(self.inner.name, ended),
                (next, attempt) = self.next(), if running.len() < workers => {
                    let span = info_span!("reconcile", key = %next.key, attempt);
                    let (work, trace) = (work(next.key.clone(), attempt), next.trace.clone());
                    let worked = next.work(work).instrument(trace);
                    running.spawn(worked.instrument(span));
                }
            }
        }
        while let Some(ended) = running.join_next().await {
            report(self.inner.name, ended);
        }
    }

    /// Waits for the next key. The call is cancel-safe, because a key is taken only when it is returned.
    async fn next(&self) -> (InProgress<K>, u32) {
        loop {
            let now = Instant::now();
            let (taken, due) = {
                let mut state = self.state();
                (state.take(now), state.next_due())
            };
            if let Some(taken) = taken {
                let waited = now.duration_since(taken.added);
                self.inner.metrics.waited.observe(waited.as_secs_f64());
                let trace = self.trace(&taken, waited);
                let Taken { key, failures, .. } = taken;
                return (InProgress { queue: self.clone(), key, began: now, trace, over: false }, failures);
            }
            let due = async {
                match due {
                    Some(due) => tokio::time::sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.inner.changed.notified() => (),
                () = due => (),
            }
        }
    }

    fn trace(&self, taken: &Taken<K>, waited: Duration) -> Span {
        traces::child(traces::span!(
            "reconcile",
            otel.name = format!("reconcile {}", self.inner.name),
            reconcile.key = %taken.key,
            reconcile.attempt = taken.failures,
            reconcile.trigger = taken.trigger.word(),
            reconcile.queued_seconds = waited.as_secs_f64(),
            reconcile.outcome = Empty,
            otel.status_code = Empty,
        ))
    }

    fn state(&self) -> MutexGuard<'_, State<K>> {
        // Poisoning of the mutex is ignored. The state is consistent at each point where a caller's comparison could panic.
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A key in progress. If this value is dropped before the work has ended (in a cancelled task), the work counts as failed.
struct InProgress<K: Key> {
    queue: Queue<K>,
    key: K,
    began: Instant,
    trace: Span,
    over: bool,
}

impl<K: Key> InProgress<K> {
    async fn work(mut self, work: impl Future<Output = Again>) {
        let again = match AssertUnwindSafe(work).catch_unwind().await {
            Ok(again) => again,
            Err(panic) => {
                self.queue.inner.metrics.panics.inc();
                let (queue, key, panic) = (self.queue.name(), &self.key, text(&*panic));
                error!(queue, %key, panic, "Reconcile panicked; retrying the key with backoff. \
                Please report this bug");
                Again::Backoff
            }
        };
        self.close(again);
    }

    fn close(&mut self, again: Again) {
        self.over = true;
        self.trace.record("reconcile.outcome", outcome(again));
        if again == Again::Backoff {
            self.trace.record("otel.status_code", "ERROR");
        }
        let now = Instant::now();
        let inner = &self.queue.inner;
        inner.metrics.worked.observe(now.duration_since(self.began).as_secs_f64());
        if matches!(again, Again::After(_) | Again::Backoff) {
            inner.metrics.retries.inc();
        }
        self.queue.state().done(&self.key, again, &inner.backoff, now);
        inner.changed.notify_one();
    }
}

impl<K: Key> Drop for InProgress<K> {
    fn drop(&mut self) {
        if !self.over {
            self.close(Again::Backoff);
        }
    }
}

const fn outcome(again: Again) -> &'static str {
    match again {
        Again::Done => "done",
        Again::OnChange => "waits for a change",
        Again::After(_) => "again",
        Again::Backoff => "failed",
    }
}

fn text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

/// Logs the panic of a worker outside of its reconcile. The worker has already released its key.
fn report(queue: &'static str, ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended {
        error!(queue, %error, "Worker failed; retrying its key with backoff");
    }
}

#[cfg(test)]
mod tests;
