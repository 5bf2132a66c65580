//! Executes tasks. The executor does what the state of a task says, and passes the result to the state machine as an event.

use std::{
    sync::{Arc, PoisonError},
    time::Duration,
};

use cloud_api_proto::{
    AdapterError, Reason,
    v1alpha1::{LoadBalancerKey, Priority},
};
use tokio::{sync::watch, time::Instant};
use tracing::Span;

use super::{
    super::{decide::End, memory::name},
    Converger, Order, Progress,
    handle::newer,
    state::{Event, Pause, State, Task, Write},
};
use crate::{
    driver::{Driver, Step as _},
    leadership::Term,
    metrics::{TaskCount, TaskState},
    vendor::urgency::classed,
    vendor::{Meter, QueuePosition, Session},
};

pub(super) type DriverEvent<D> = Event<<D as Driver>::Detail, <D as Driver>::Step>;

/// A running task with its connections to the runtime. The task is removed when the executor is dropped, even after a panic.
pub(super) struct Executor<D: Driver> {
    pub(super) converger: Arc<Converger<D>>,
    pub(super) key: LoadBalancerKey,
    pub(super) task: Task<D::Detail, D::Step>,
    pub(super) order: Order,
    pub(super) orders: watch::Receiver<Order>,
    pub(super) priority: watch::Receiver<Priority>,
    pub(super) progress: watch::Sender<Progress<D::Detail>>,
    /// The term in which the task runs. When the term ends, the task ends.
    pub(super) term: Term,
    pub(super) meter: Arc<Meter>,
    pub(super) position: QueuePosition,
    /// Whether a user waits for the task. This stays true after the priority was raised for traffic.
    pub(super) user_waits: bool,
    pub(super) count: TaskCount,
}

impl<D: Driver> Executor<D> {
    pub(super) async fn run(mut self: Box<Self>) {
        loop {
            let event = match &self.task.state {
                &State::Observing { not_before, polls } => {
                    self.order = self.orders.borrow_and_update().clone();
                    self.user_waits |= *self.priority.borrow() == Priority::Interactive;
                    self.observe(not_before, polls).await.unwrap_or_else(Event::Failed)
                }
                State::Writing(write) => self.write(write).await,
                &State::Waiting { delay, pause, ref waits_for } => {
                    let (done, total) = (self.task.done, self.task.total);
                    let (waits_for, failure) = (waits_for.clone(), self.task.failure().cloned());
                    self.progress.send_replace(Progress::Working { done, total, waits_for, failure });
                    self.count.now(TaskState::Waiting);
                    let event = self.wait(delay, pause).await;
                    self.count.now(TaskState::Working);
                    event
                }
                State::Ending { result, .. } => self.publish(result.clone()),
                State::Ended => return,
            };
            // A copy, so that the task is still running if the step panics.
            self.task = self.task.clone().step(event, Instant::now());
            // Another task of the key may have begun as soon as the end of this task was published.
            if !matches!(self.task.state, State::Ended) {
                let history = self.task.history.clone();
                self.converger.memories.of(&self.key, |memory| memory.history = history);
            }
        }
    }

    pub(super) fn session(&self, class: Priority) -> Session {
        let purpose = classed(&self.order.purpose, class);
        let session = self.converger.vendor.metered(purpose, Arc::clone(&self.meter));
        session.with_priority(self.priority.clone(), Some(class)).with_position(&self.position)
    }

    async fn write(&self, write: &Write<D::Step>) -> DriverEvent<D> {
        let session = self.session(write.step.class());
        let result = self.converger.driver.execute(&session, &write.step).await;
        // If the next observation fails, the state before the write must not be used as current.
        write.vendor_ids.iter().for_each(|vendor_id| self.converger.snapshot.doubt(vendor_id));
        result.map_or_else(Event::WriteFailed, Event::Written)
    }

    async fn wait(&self, delay: Duration, pause: Pause) -> DriverEvent<D> {
        let mut orders = self.orders.clone();
        let next = async {
            match self.paced(pause) {
                Some(delay) => {
                    tokio::time::sleep(delay).await;
                    Instant::now()
                }
                None => tick(self.term.since(), delay).await,
            }
        };
        tokio::select! {
            biased;
            () = newer(&mut orders, self.order.number) => Event::Replaced,
            error = self.term.clone().ended() => Event::Failed(error),
            at = next => Event::Elapsed(at),
        }
    }

    /// Returns the delay before the next poll, if the load balancer is polled alone while the cloud makes the last change.
    fn paced(&self, pause: Pause) -> Option<Duration> {
        if pause == Pause::Backoff || !self.is_worth_a_read() {
            return None;
        }
        let last = self.task.history.last.as_ref()?;
        Some(self.converger.pace().delay(last.step.operation().name, last.at.elapsed()))
    }

    /// Publishes the result, and removes the task from the running tasks, unless there is a newer order.
    fn publish(&self, result: Result<End<D::Detail>, AdapterError>) -> DriverEvent<D> {
        let mut tasks = self.converger.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        let order = self.order.number;
        if self.orders.borrow().number != order {
            return Event::Replaced;
        }
        if let Err(error) = &result {
            let owner_uid = self.key.owner_uid.as_str();
            tracing::warn!(owner_uid, reason = %error.reason, %error, "Cannot bring the load balancer to its desired state");
            Span::current().record("error.type", error.reason.word()).record("otel.status_code", "ERROR");
        }
        if !result.as_ref().is_err_and(is_tried_again) {
            self.converger.memories.of(&self.key, |memory| memory.began = None);
        }
        tasks.remove(&name(&self.key));
        self.progress.send_replace(Progress::Ended { order, done: self.task.done, result });
        Event::Published
    }
}

impl<D: Driver> Drop for Executor<D> {
    /// Removes a task whose driver panicked; otherwise further callers would join a task that does not run.
    fn drop(&mut self) {
        if !matches!(self.task.state, State::Ended) {
            let mut tasks = self.converger.tasks.lock().unwrap_or_else(PoisonError::into_inner);
            tasks.remove(&name(&self.key));
        }
    }
}

/// Returns whether the caller will repeat the same request to this process.
fn is_tried_again(error: &AdapterError) -> bool {
    error.retry_after.is_some() && error.reason != Reason::NotLeader
}

/// Waits for the next multiple of `delay` since the term began, so that tasks with equal delays wake together and share a listing.
async fn tick(epoch: Instant, delay: Duration) -> Instant {
    let now = Instant::now();
    let since = now.duration_since(epoch).as_nanos();
    let delay = delay.max(Duration::from_millis(10)).as_nanos();
    let rest = u64::try_from(delay - since % delay).unwrap_or(u64::MAX);
    let tick = now + Duration::from_nanos(rest);
    tokio::time::sleep_until(tick).await;
    tick
}
