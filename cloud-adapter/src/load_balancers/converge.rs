//! One task per key, which observes, decides, makes one vendor write, and repeats. A task belongs to the adapter and outlives the RPC.
//!
//! A task has no state that must survive a crash: a repeated request continues from the state of the cloud. This module starts, joins,
//! redirects and ends tasks; [`turn`] has what a task does between two observations.

mod report;
mod tasks;
#[cfg(test)]
mod tests;
mod turn;

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use cloud_api_proto::{
    AdapterError, Reason,
    v1alpha1::{Fence, LoadBalancerKey, Priority},
};
use tokio::{sync::watch, time::Instant};
use tokio_util::task::TaskTracker;
use traces::Origin;
use tracing::{Instrument as _, Span, field::Empty};

pub(crate) use self::report::TaskReport;
use self::{
    tasks::Tasks,
    turn::{Turn, Work},
};
use super::{
    decide::{End, Goal},
    memory::{Memories, name},
};
use crate::{
    driver::{Driver, LoadBalancerRecord},
    fence::{Fences, check_tag},
    grants::Grants,
    leadership::{Replica, Term},
    metrics::{Metrics, TaskCount, TaskState},
    rpc::Rpc,
    snapshot::{Snapshot, View},
    vendor::{Meter, Purpose, QueuePosition, Vendor},
};

/// Maximum interval between polls of a task.
const POLL_MAX: Duration = Duration::from_secs(15);
/// Maximum age of a trusted listing, in target ages.
const TRUSTED_AGES: u32 = 3;

type Record<D> = LoadBalancerRecord<<D as Driver>::Detail>;

/// Starts, joins and executes convergence tasks.
#[derive(Debug)]
pub(crate) struct Converger<D: Driver> {
    pub(crate) driver: Arc<D>,
    /// The operator's grants.
    pub(crate) grants: Arc<Grants>,
    pub(crate) snapshot: Arc<Snapshot<Record<D>>>,
    pub(crate) vendor: Arc<Vendor>,
    pub(crate) fences: Fences,
    pub(crate) metrics: Metrics,
    tracker: TaskTracker,
    replica: Replica,
    tasks: Mutex<Tasks<Handle<D::Detail>>>,
    memories: Memories<D::Step, Arc<Record<D>>>,
}

/// A running task, as seen by RPCs.
#[derive(Clone, Debug)]
pub(crate) struct Handle<T> {
    orders: watch::Sender<Order>,
    /// The priority of the task. Raising it also raises its queued vendor calls.
    asked: watch::Sender<Priority>,
    progress: watch::Receiver<Progress<T>>,
    /// The trace of the call that started the task.
    origin: Origin,
    /// Counts the vendor calls of the task. Each answer reports the calls since the last answer.
    meter: Arc<Meter>,
    /// The queue positions of its vendor calls.
    place: QueuePosition,
    began: Instant,
}

/// The newest desired state of a key, and the caller that requested this state.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    pub(crate) goal: Goal,
    /// The writer's fence. Callers that join a running task do not change its sequence, because that would cause another write of tags.
    pub(crate) fence: Fence,
    /// The caller, the owner and the priority.
    pub(crate) purpose: Purpose,
    /// The oldest observation time that the caller accepts.
    pub(crate) bound: Option<Instant>,
    number: u64,
}

impl Order {
    pub(crate) fn new(goal: Goal, fence: Fence, purpose: Purpose, bound: Option<Instant>) -> Self {
        Self { goal, fence, purpose: Purpose { deadline: None, ..purpose }, bound, number: 0 }
    }

    /// Merges a newer request into this order. Returns whether the goal changed.
    ///
    /// # Errors
    /// Returns `STALE_FENCE` if the request is older and of the same scope, `OPERATION_CONFLICT` if it is of another scope.
    fn take(&mut self, newer: Self) -> Result<bool, AdapterError> {
        let same_scope = self.fence.scope == newer.fence.scope;
        let priority = self.purpose.priority.max(newer.purpose.priority);
        if self.goal == newer.goal {
            if same_scope && newer.fence.epoch > self.fence.epoch {
                self.fence = newer.fence;
            }
            // The most urgent caller determines the priority.
            self.purpose.priority = priority;
            return Ok(false);
        }
        if !same_scope {
            let text = format!("{} is changing this key to another desired state", self.fence.scope);
            return Err(AdapterError::new(Reason::OperationConflict, text));
        }
        check_tag(&newer.fence, Some(&self.fence))?;
        *self = Self { number: self.number + 1, ..newer };
        Ok(true)
    }
}

/// The progress of a task.
#[derive(Clone, Debug)]
pub(crate) enum Progress<T> {
    /// The task is running.
    Working { done: u32, total: u32, waits_for: String },
    /// The task has ended for the order with this number.
    Ended { order: u64, done: u32, result: Result<End<T>, AdapterError> },
}

impl<D: Driver> Converger<D> {
    pub(crate) fn new(
        driver: Arc<D>,
        snapshot: Arc<Snapshot<Record<D>>>,
        rpc: &Rpc,
        tracker: TaskTracker,
    ) -> Self {
        Self {
            driver,
            grants: Arc::clone(&rpc.grants),
            snapshot,
            vendor: Arc::clone(&rpc.vendor),
            fences: Fences::default(),
            metrics: rpc.metrics.clone(),
            tracker,
            replica: rpc.replica.clone(),
            tasks: Mutex::default(),
            memories: Memories::default(),
        }
    }

    /// Whether a task for this key is running.
    pub(crate) fn is_running(&self, key: &LoadBalancerKey) -> bool {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner).get(&name(key)).is_some()
    }

    /// The number of tasks for which users wait, counted up to `most`.
    fn awaited(&self, most: usize) -> usize {
        let tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        let awaited = tasks.iter().filter(|task| *task.asked.borrow() == Priority::Interactive);
        awaited.take(most).count()
    }

    /// The cached listing, if it is fresh enough for a first decision.
    pub(crate) fn trusted(&self, bound: Option<Instant>) -> Option<View<Record<D>>> {
        let since = self.replica.term().ok()?.since();
        self.snapshot.view(Some(self.trust(since).max(bound.unwrap_or(since))))
    }

    /// The oldest acceptable observation time for a first decision. Older observations may lack changes by the leader of the previous term.
    fn trust(&self, since: Instant) -> Instant {
        Snapshot::<Record<D>>::no_older_than(self.snapshot.target_age() * TRUSTED_AGES).max(since)
    }

    /// Refuses a writer if a tag in the listing has a newer fence of the writer's scope.
    ///
    /// # Errors
    /// Returns `STALE_FENCE` if there is such a tag.
    pub(crate) fn check_fence(
        &self,
        cluster_id: &str,
        fence: &Fence,
        view: &View<Record<D>>,
    ) -> Result<(), AdapterError> {
        let ours = |record: &&Arc<Record<D>>| {
            record.summary.key.as_ref().is_some_and(|key| key.cluster_id == cluster_id)
        };
        let tags = view.items.iter().filter(ours).filter_map(|record| record.summary.fence.as_ref());
        self.fences.check_tags(cluster_id, fence, tags)
    }

    /// Starts the key's task, joins the running task, or replaces its goal by the newer one. Returns the number of the order.
    ///
    /// # Errors
    /// Returns an error if another replica leads or this one is shutting down; `STALE_FENCE` and `OPERATION_CONFLICT` if the running task
    /// cannot take the order; `QUEUE_FULL` if too many tasks of other keys are running.
    pub(crate) fn submit(
        self: &Arc<Self>,
        key: &LoadBalancerKey,
        order: Order,
    ) -> Result<(u64, Handle<D::Detail>), AdapterError> {
        let term = self.replica.term()?;
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = tasks.get(&name(key)) {
            running.origin.link();
            let mut number = Ok(0);
            running.orders.send_if_modified(|there| {
                let taken = there.take(order);
                number = taken.clone().map(|_| there.number);
                running.asked.send_replace(there.purpose.priority);
                taken == Ok(true)
            });
            return Ok((number?, running.clone()));
        }
        tasks.check_place()?;
        let (asked, urgency) = watch::channel(order.purpose.priority);
        let (orders, inbox) = watch::channel(order);
        let working = Progress::Working { done: 0, total: 0, waits_for: "observes the cloud".to_owned() };
        let (outbox, progress) = watch::channel(working);
        let span = span(key);
        let origin = Origin::of(&span);
        let (meter, place) = (self.unpaid(key), QueuePosition::default());
        let began = self.memories.of(key, |memory| *memory.began.get_or_insert_with(Instant::now));
        let handle = Handle { orders, asked, progress, origin, meter, place: place.clone(), began };
        tasks.insert(name(key), handle.clone());
        // Boxed because thousands of these tasks wait, and a future needs twice the space of its arguments.
        let work = Box::new(self.begin(key, term, (inbox.borrow().bound, urgency), place));
        self.tracker.spawn(Arc::clone(self).run(key.clone(), work, inbox, outbox).instrument(span));
        Ok((0, handle))
    }

    /// The vendor calls of the key's tasks that no answer has reported yet.
    pub(crate) fn unpaid(&self, key: &LoadBalancerKey) -> Arc<Meter> {
        self.memories.of(key, |memory| Arc::clone(&memory.meter))
    }

    async fn run(
        self: Arc<Self>,
        key: LoadBalancerKey,
        mut work: Box<Work<D>>,
        mut inbox: watch::Receiver<Order>,
        outbox: watch::Sender<Progress<D::Detail>>,
    ) {
        let counted = self.metrics.key_task();
        let mut seat = Seat { converger: &self, key: &key, term: work.term.clone(), left: false, counted };
        loop {
            let order = inbox.borrow_and_update().clone();
            match self.turn(&order, &mut work).await {
                Ok(Turn::Again) => (),
                Ok(Turn::Wait(waits_for)) => {
                    outbox.send_replace(Progress::Working { done: work.done, total: work.total, waits_for });
                    seat.counted.now(TaskState::Waiting);
                    // Tasks that wake at the same tick share the listing that the first one requests.
                    work.bound = tokio::select! {
                        tick = tick(work.term.since(), work.poll) => tick,
                        () = newer(&mut inbox, order.number) => Instant::now(),
                        _ = work.term.clone().ended() => Instant::now(),
                    };
                    work.polls = true;
                    seat.counted.now(TaskState::Working);
                    let overtaken = inbox.borrow().number != order.number;
                    work.poll =
                        if overtaken { self.driver.describe().poll } else { (work.poll * 2).min(POLL_MAX) };
                }
                Ok(Turn::End(end)) => {
                    if seat.leave(&inbox, &outbox, (order.number, work.done, Ok(end))) {
                        return;
                    }
                }
                Err(error) => {
                    if seat.leave(&inbox, &outbox, (order.number, work.done, Err(error))) {
                        return;
                    }
                }
            }
        }
    }
}

impl<T: Clone> Handle<T> {
    /// The queue positions of its vendor calls.
    pub(crate) fn place(&self) -> &QueuePosition {
        &self.place
    }

    /// Waits until the task has ended, at most until `until`. Returns its progress, and adds its cost to the caller's meter.
    ///
    /// # Errors
    /// Returns `OPERATION_CONFLICT` as soon as a newer desired state replaces the order with this number.
    pub(crate) async fn wait(
        mut self,
        number: u64,
        until: Instant,
        payer: &Meter,
    ) -> Result<Progress<T>, AdapterError> {
        let mut orders = self.orders.subscribe();
        let ended = |progress: &Progress<T>| matches!(progress, Progress::Ended { .. });
        tokio::select! {
            // Reaching the time limit is normal: the task continues in the background.
            () = tokio::time::sleep_until(until) => (),
            _ = self.progress.wait_for(ended) => (),
            () = newer(&mut orders, number) => (),
        }
        payer.absorb(&self.meter);
        let progress = self.progress.borrow().clone();
        match progress {
            Progress::Ended { order, .. } if order == number => Ok(progress),
            Progress::Working { .. } if orders.borrow().number == number => Ok(progress),
            Progress::Ended { .. } | Progress::Working { .. } => {
                let text = "a newer request has replaced the desired state of this load balancer";
                Err(AdapterError::new(Reason::OperationConflict, text))
            }
        }
    }
}

/// The span of a task. It is part of the trace of the call that started the task, but ends later than the call.
fn span(key: &LoadBalancerKey) -> Span {
    traces::child(traces::span!(
        "converge",
        otel.name = "converge load balancer",
        cloud.owner_uid = key.owner_uid,
        "error.type" = Empty,
        otel.status_code = Empty,
    ))
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

/// Waits for an order with another number. Waits forever if there are no senders, which happens only after a panic.
async fn newer(inbox: &mut watch::Receiver<Order>, number: u64) {
    if inbox.wait_for(|order| order.number != number).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Whether the caller will repeat the same request to this process.
fn is_tried_again(error: &AdapterError) -> bool {
    error.retry_after.is_some() && error.reason != Reason::NotLeader
}

/// The entry of a task in the map of running tasks. It is removed with a result, or without one if the task panics.
struct Seat<'a, D: Driver> {
    converger: &'a Converger<D>,
    key: &'a LoadBalancerKey,
    term: Term,
    left: bool,
    counted: TaskCount,
}

impl<D: Driver> Seat<'_, D> {
    /// Ends the task and publishes the result, unless a newer order has arrived.
    fn leave(
        &mut self,
        inbox: &watch::Receiver<Order>,
        outbox: &watch::Sender<Progress<D::Detail>>,
        (order, done, result): (u64, u32, Result<End<D::Detail>, AdapterError>),
    ) -> bool {
        let mut tasks = self.converger.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        if inbox.borrow().number != order && self.term.check().is_ok() {
            return false;
        }
        if let Err(error) = &result {
            let owner_uid = self.key.owner_uid.as_str();
            tracing::warn!(owner_uid, reason = %error.reason, %error, "Cannot converge the load balancer");
            Span::current().record("error.type", error.reason.word()).record("otel.status_code", "ERROR");
        }
        let again = result.as_ref().is_err_and(is_tried_again);
        if !again {
            self.converger.memories.of(self.key, |memory| memory.began = None);
        }
        tasks.remove(&name(self.key));
        self.left = true;
        outbox.send_replace(Progress::Ended { order, done, result });
        true
    }
}

impl<D: Driver> Drop for Seat<'_, D> {
    /// Removes the entry of a task whose driver panicked; otherwise further callers would join a task that does not run.
    fn drop(&mut self) {
        if !self.left {
            let mut tasks = self.converger.tasks.lock().unwrap_or_else(PoisonError::into_inner);
            tasks.remove(&name(self.key));
        }
    }
}
