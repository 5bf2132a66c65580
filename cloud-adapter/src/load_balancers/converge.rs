//! There is one task for each load balancer key, which consists of the cluster's ID and the owner's UID. The task observes the load
//! balancer, decides, makes one vendor write, and repeats. A task belongs to the adapter and outlives the RPC.
//!
//! A task has no state that must survive a crash, because a repeated request continues from the state of the cloud. This module starts,
//! joins, and redirects tasks; [`state`] decides what a task does, and [`executor`] does it.

mod executor;
mod failing;
mod handle;
mod observe;
mod order;
mod pace;
mod report;
mod state;
mod tasks;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cloud_api_proto::{
    AdapterError,
    v1alpha1::{Fence, LoadBalancerKey, Priority},
};
use telemetry::traces::{self, Origin};
use tokio::{sync::watch, time::Instant};
use tokio_util::task::TaskTracker;
use tracing::{Instrument as _, Span, field::Empty};

use self::{executor::Executor, pace::Pace, state::Task, tasks::Tasks};
pub(crate) use self::{
    failing::Failure,
    handle::{Handle, Progress},
    order::Order,
    report::TaskReport,
};
use super::memory::{Memories, name};
use crate::{
    driver::{Driver, LoadBalancerRecord},
    fence::Fences,
    grants::Grants,
    leadership::Replica,
    metrics::Metrics,
    rpc::Rpc,
    snapshot::{Snapshot, View},
    vendor::{Meter, QueuePosition, Vendor},
};

/// Maximum age of a trusted listing, as a multiple of the target age.
const TRUSTED_AGES: u32 = 3;

type Record<D> = LoadBalancerRecord<<D as Driver>::Detail>;

#[derive(Debug)]
pub(crate) struct Converger<D: Driver> {
    pub(crate) driver: Arc<D>,
    pub(crate) grants: Arc<Grants>,
    pub(crate) snapshot: Arc<Snapshot<Record<D>>>,
    pub(crate) vendor: Arc<Vendor>,
    pub(crate) fences: Fences,
    pub(crate) metrics: Metrics,
    tracker: TaskTracker,
    replica: Replica,
    tasks: Mutex<Tasks<Handle<D::Detail>>>,
    pace: Mutex<Pace>,
    memories: Memories<D::Step, Arc<Record<D>>>,
}

impl<D: Driver> Converger<D> {
    pub(crate) fn new(
        driver: Arc<D>,
        snapshot: Arc<Snapshot<Record<D>>>,
        rpc: &Rpc,
        tracker: TaskTracker,
    ) -> Self {
        let pace = Mutex::new(Pace::new(driver.describe().poll));
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
            pace,
            memories: Memories::default(),
        }
    }

    pub(crate) fn is_running(&self, key: &LoadBalancerKey) -> bool {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner).get(&name(key)).is_some()
    }

    fn pace(&self) -> MutexGuard<'_, Pace> {
        self.pace.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of tasks for which users wait, counted up to `most`.
    fn awaited(&self, most: usize) -> usize {
        let tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        let awaited = tasks.iter().filter(|task| *task.priority.borrow() == Priority::Interactive);
        awaited.take(most).count()
    }

    /// Returns the cached listing, if it is fresh enough for a first decision.
    pub(crate) fn trusted(&self, bound: Option<Instant>) -> Option<View<Record<D>>> {
        let since = self.replica.term().ok()?.since();
        self.snapshot.view(Some(self.trust(since).max(bound.unwrap_or(since))))
    }

    /// Returns the oldest acceptable observation time for a first decision. Older observations may lack changes by the leader of the
    /// previous term.
    fn trust(&self, since: Instant) -> Instant {
        Snapshot::<Record<D>>::no_older_than(self.snapshot.target_age() * TRUSTED_AGES).max(since)
    }

    /// Refuses a writer if a tag in the listing contains a newer fence of the writer's scope.
    ///
    /// Returns `STALE_FENCE` if a tag contains a newer fence.
    pub(crate) fn check_fence(
        &self,
        cluster_id: &str,
        fence: &Fence,
        view: &View<Record<D>>,
    ) -> Result<(), AdapterError> {
        let own = |record: &&Arc<Record<D>>| {
            record.summary.key.as_ref().is_some_and(|key| key.cluster_id == cluster_id)
        };
        let tags = view.items.iter().filter(own).filter_map(|record| record.summary.fence.as_ref());
        self.fences.check_tags(cluster_id, fence, tags)
    }

    /// Starts the key's task, joins the running task, or gives the running task the newer goal. Returns the number of the submitted order.
    ///
    /// Returns an error if another replica leads or this replica is shutting down. Returns `STALE_FENCE` or `OPERATION_CONFLICT` if the
    /// running task cannot take the order, and `QUEUE_FULL` if too many tasks of other keys are running.
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
            running.orders.send_if_modified(|current| {
                let changed = current.merge(order);
                number = changed.clone().map(|_| current.number);
                running.priority.send_replace(current.purpose.priority);
                changed == Ok(true)
            });
            return Ok((number?, running.clone()));
        }
        tasks.check_place()?;
        let (priority, current_priority) = watch::channel(order.purpose.priority);
        let working = Progress::Working {
            done: 0,
            total: 0,
            waits_for: "observes the cloud".to_owned(),
            failure: None,
        };
        let (progress, current_progress) = watch::channel(working);
        let span = span(key);
        let (meter, history, began) = self.memories.of(key, |memory| {
            let began = *memory.began.get_or_insert_with(Instant::now);
            (Arc::clone(&memory.meter), memory.history.clone(), began)
        });
        let trusted = self.trust(term.since());
        let not_before = order.bound.map_or(trusted, |bound| bound.max(trusted));
        let (orders, newest_order) = watch::channel(order.clone());
        let handle = Handle {
            orders,
            priority,
            progress: current_progress,
            origin: Origin::of(&span),
            meter: Arc::clone(&meter),
            position: QueuePosition::default(),
            began,
        };
        tasks.insert(name(key), handle.clone());
        let cloud = self.driver.describe().into();
        // The executor is boxed because thousands of these tasks wait, and a future needs twice the space of its arguments.
        let executor = Box::new(Executor {
            converger: Arc::clone(self),
            key: key.clone(),
            task: Task::new(cloud, history, term.since(), not_before, Instant::now()),
            order,
            orders: newest_order,
            priority: current_priority,
            progress,
            term,
            meter,
            position: handle.position.clone(),
            user_waits: false,
            count: self.metrics.key_task(),
        });
        self.tracker.spawn(executor.run().instrument(span));
        Ok((0, handle))
    }

    /// The meter counts the vendor calls of the key's tasks that no answer has reported yet.
    pub(crate) fn unpaid(&self, key: &LoadBalancerKey) -> Arc<Meter> {
        self.memories.of(key, |memory| Arc::clone(&memory.meter))
    }
}

/// The span is part of the trace of the call that started the task, but ends later than the call.
fn span(key: &LoadBalancerKey) -> Span {
    traces::child(traces::span!(
        "converge",
        otel.name = "converge load balancer",
        cloud.owner_uid = key.owner_uid,
        "error.type" = Empty,
        otel.status_code = Empty,
    ))
}
