//! One task per key: observes, decides, makes one vendor write, and again. It belongs to the adapter and outlives the RPC.
//!
//! Keeps nothing that a killed process would miss: whoever repeats the request goes on from what the cloud shows.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use cloud_api_proto::{
    AdapterError, Reason,
    v1alpha1::{Fence, LoadBalancerKey, Priority},
};
use tokio::{sync::watch, time::Instant};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::decide::{End, Goal, Next, decide};
use crate::{
    driver::{Driver, Fault, LoadBalancerRecord, Outcome, VendorError},
    fence::Fences,
    metrics::Metrics,
    rpc::Rpc,
    snapshot::{Snapshot, View},
    vendor::{Purpose, Session, Vendor},
};

/// Polls of one task are at most this far apart. Source: contract, section 6.
const POLL_MAX: Duration = Duration::from_secs(15);
/// A vendor that works on one write for longer is stuck; the caller hears of it and may ask again.
const STUCK: Duration = Duration::from_mins(15);

type Record<D> = LoadBalancerRecord<<D as Driver>::Detail>;
type KeyName = (String, String);

/// Starts, joins and carries out convergence tasks.
#[derive(Debug)]
pub(crate) struct Converger<D: Driver> {
    pub(crate) driver: Arc<D>,
    pub(crate) snapshot: Arc<Snapshot<Record<D>>>,
    pub(crate) vendor: Arc<Vendor>,
    pub(crate) fences: Fences,
    pub(crate) metrics: Metrics,
    pub(crate) tracker: TaskTracker,
    pub(crate) draining: CancellationToken,
    tasks: Mutex<BTreeMap<KeyName, Handle<D::Detail>>>,
    /// Polls fall on multiples of their delay since then, so that tasks share a listing.
    epoch: Instant,
}

/// A running task, as RPCs see it.
#[derive(Clone, Debug)]
pub(crate) struct Handle<T> {
    orders: watch::Sender<Order>,
    pub(crate) progress: watch::Receiver<Progress<T>>,
    /// Pays for the task's calls; each answer takes over what was counted so far.
    pub(crate) session: Session,
}

/// The newest desired state of a key, and who wants it.
#[derive(Clone, Debug)]
struct Order {
    goal: Goal,
    fence: Fence,
    number: u64,
}

/// How far a task is.
#[derive(Clone, Debug)]
pub(crate) enum Progress<T> {
    /// It works.
    Working { done: u32, total: u32, waits_for: String },
    /// It ended, for the order of this number.
    Ended { order: u64, done: u32, result: Result<End<T>, AdapterError> },
}

/// What a task keeps between turns.
struct Work<D: Driver> {
    session: Session,
    started: Instant,
    /// How fresh the next observation must be.
    bound: Option<Instant>,
    done: u32,
    poll: Duration,
    /// The last write: not repeated before reads can be trusted to show it.
    last: Option<(D::Step, Instant)>,
}

enum Turn<D: Driver> {
    Again,
    Wait { total: u32, waits_for: String },
    End(Result<End<D::Detail>, AdapterError>),
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
            snapshot,
            vendor: Arc::clone(&rpc.vendor),
            fences: Fences::default(),
            metrics: rpc.metrics.clone(),
            tracker,
            draining: rpc.draining.clone(),
            tasks: Mutex::default(),
            epoch: Instant::now(),
        }
    }

    /// The running task of a key.
    pub(crate) fn running(&self, key: &LoadBalancerKey) -> Option<Handle<D::Detail>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner).get(&name(key)).cloned()
    }

    /// Starts the key's task, or hands the newer goal to the one that runs. Returns the number of the order.
    pub(crate) fn submit(
        self: &Arc<Self>,
        key: &LoadBalancerKey,
        goal: Goal,
        fence: Fence,
        request_id: &str,
    ) -> (u64, Handle<D::Detail>) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = tasks.get(&name(key)) {
            let mut number = 0;
            running.orders.send_if_modified(|order| {
                let newer = order.goal != goal;
                order.number += u64::from(newer);
                order.goal = goal;
                order.fence = fence;
                number = order.number;
                newer
            });
            return (number, running.clone());
        }
        let (orders, inbox) = watch::channel(Order { goal, fence, number: 0 });
        let working = Progress::Working { done: 0, total: 0, waits_for: "a look at the cloud".to_owned() };
        let (outbox, progress) = watch::channel(working);
        let session = self.vendor.session(Purpose::own(Priority::Interactive, request_id));
        let handle = Handle { orders, progress, session: session.clone() };
        tasks.insert(name(key), handle.clone());
        self.metrics.key_tasks().inc();
        let task = Arc::clone(self).run(key.clone(), session, inbox, outbox);
        self.tracker.spawn(task);
        (0, handle)
    }

    /// The records of a key in a listing.
    pub(crate) fn records(view: &View<Record<D>>, key: &LoadBalancerKey) -> Vec<Arc<Record<D>>> {
        view.items.iter().filter(|record| record.belongs_to(key)).cloned().collect()
    }

    async fn run(
        self: Arc<Self>,
        key: LoadBalancerKey,
        session: Session,
        mut inbox: watch::Receiver<Order>,
        outbox: watch::Sender<Progress<D::Detail>>,
    ) {
        let poll = self.driver.describe().poll;
        let started = Instant::now();
        let mut work = Work { session, started, bound: None, done: 0, poll, last: None };
        loop {
            let order = inbox.borrow_and_update().clone();
            match self.turn(&key, &order, &mut work).await {
                Ok(Turn::Again) => (),
                Ok(Turn::Wait { total, waits_for }) => {
                    outbox.send_replace(Progress::Working { done: work.done, total, waits_for });
                    tokio::select! {
                        () = self.tick(work.poll) => (),
                        _ = inbox.changed() => (),
                        () = self.draining.cancelled() => (),
                    }
                    work.poll = (work.poll * 2).min(POLL_MAX);
                    work.bound = Some(Instant::now());
                }
                Ok(Turn::End(result)) => {
                    if self.finish(&key, &inbox, &outbox, (order.number, work.done, result)) {
                        return;
                    }
                }
                Err(error) => {
                    if self.finish(&key, &inbox, &outbox, (order.number, work.done, Err(error))) {
                        return;
                    }
                }
            }
        }
    }

    /// One look and at most one vendor write.
    async fn turn(
        &self,
        key: &LoadBalancerKey,
        order: &Order,
        work: &mut Work<D>,
    ) -> Result<Turn<D>, AdapterError> {
        self.fences.check(&order.fence)?;
        if self.draining.is_cancelled() {
            return Err(AdapterError::new(Reason::Draining, "this adapter is about to stop"));
        }
        let view = self.snapshot.at_least(work.bound, &*self.driver, &work.session).await?;
        let records = Self::records(&view, key);
        let fresh = view.observed >= work.started;
        match decide(&*self.driver, &order.goal, &records, fresh)? {
            Next::End(end) => Ok(Turn::End(Ok(end))),
            Next::Look if fresh => {
                Err(AdapterError::new(Reason::Internal, "the driver plans nothing for nothing"))
            }
            Next::Look => {
                work.bound = Some(work.started);
                Ok(Turn::Again)
            }
            Next::Wait(waits_for) => self.patience(work, waits_for),
            Next::Write(steps) => self.write(&steps, work).await,
        }
    }

    /// Makes the first of the missing writes, unless it was just made and reads do not show it yet.
    async fn write(&self, steps: &[D::Step], work: &mut Work<D>) -> Result<Turn<D>, AdapterError> {
        let Some(step) = steps.first() else { return Ok(Turn::Again) };
        let total = work.done.saturating_add(u32::try_from(steps.len()).unwrap_or(u32::MAX));
        let horizon = self.driver.describe().consistency_horizon;
        if work.last.as_ref().is_some_and(|(last, at)| last == step && at.elapsed() < horizon) {
            return Ok(Turn::Wait { total, waits_for: format!("the cloud to show: {step}") });
        }
        let result = self.driver.execute(&work.session, step).await;
        match result {
            Ok(Outcome::Accepted | Outcome::Items(_)) => {
                work.done += 1;
                work.last = Some((step.clone(), Instant::now()));
                work.poll = self.driver.describe().poll;
                Ok(Turn::Wait { total, waits_for: step.to_string() })
            }
            Err(error) => self.failed(step, total, error, work),
        }
    }

    fn failed(
        &self,
        step: &D::Step,
        total: u32,
        error: VendorError,
        work: &mut Work<D>,
    ) -> Result<Turn<D>, AdapterError> {
        match error.fault {
            // Somebody changes it, or it vanished under us: look again.
            Fault::Busy | Fault::NotFound => self.patience(work, format!("{step}: {error}")),
            // Find out first whether it was done. Until reads can be trusted, the step is not repeated.
            Fault::OutcomeUnknown => {
                work.last = Some((step.clone(), Instant::now()));
                Ok(Turn::Wait { total, waits_for: format!("certainty whether this was done: {step}") })
            }
            Fault::Budget
            | Fault::Throttled
            | Fault::Auth
            | Fault::Forbidden
            | Fault::Quota
            | Fault::Immutable
            | Fault::Invalid
            | Fault::Unsupported
            | Fault::Unavailable
            | Fault::Nonsense => {
                let mut error = AdapterError::from(error);
                error.message = format!("{step}: {}", error.message);
                Err(error)
            }
        }
    }

    /// Waits on, unless nothing has moved for too long.
    fn patience(&self, work: &Work<D>, waits_for: String) -> Result<Turn<D>, AdapterError> {
        let since = work.last.as_ref().map_or(work.started, |(_, at)| *at);
        if since.elapsed() > STUCK {
            let text = format!("nothing has moved for {} minutes: {waits_for}", STUCK.as_secs() / 60);
            return Err(AdapterError::new(Reason::VendorUnavailable, text));
        }
        Ok(Turn::Wait { total: work.done, waits_for })
    }

    /// Ends the task and tells the result, unless a newer order came in meanwhile.
    fn finish(
        &self,
        key: &LoadBalancerKey,
        inbox: &watch::Receiver<Order>,
        outbox: &watch::Sender<Progress<D::Detail>>,
        (order, done, result): (u64, u32, Result<End<D::Detail>, AdapterError>),
    ) -> bool {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        if inbox.has_changed().unwrap_or(false) && !self.draining.is_cancelled() {
            return false;
        }
        if let Err(error) = &result {
            tracing::warn!(owner_uid = key.owner_uid, reason = %error.reason, %error, "Load balancer is not as desired");
        }
        tasks.remove(&name(key));
        self.metrics.key_tasks().dec();
        outbox.send_replace(Progress::Ended { order, done, result });
        true
    }

    /// The next multiple of `delay`: tasks that wait equally long wake together.
    async fn tick(&self, delay: Duration) {
        let since = self.epoch.elapsed().as_nanos();
        let delay = delay.max(Duration::from_millis(10));
        let rest = delay.as_nanos() - since % delay.as_nanos();
        tokio::time::sleep(Duration::from_nanos(u64::try_from(rest).unwrap_or(u64::MAX))).await;
    }
}

fn name(key: &LoadBalancerKey) -> KeyName {
    (key.cluster_id.clone(), key.owner_uid.clone())
}
