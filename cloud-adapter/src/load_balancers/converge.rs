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
use tokio_util::task::TaskTracker;

use super::decide::{End, Goal, Next, decide};
use crate::{
    driver::{Driver, Fault, LoadBalancerRecord, Outcome, VendorError},
    fence::Fences,
    metrics::{Metrics, TaskCount},
    replica::{Replica, Term},
    rpc::Rpc,
    snapshot::{Snapshot, View},
    vendor::{Meter, Purpose, Session, Vendor},
};

/// Polls of one task are at most this far apart. Source: contract, section 6.
const POLL_MAX: Duration = Duration::from_secs(15);
/// A vendor that works on one write for longer is stuck; the caller hears of it and may ask again.
const STUCK: Duration = Duration::from_mins(15);
/// Unknown outcomes in a row after which the caller hears of it.
const UNKNOWN_MAX: u32 = 3;
/// A listing older than so many target ages is not acted upon.
pub(super) const TRUSTED_AGES: u32 = 3;
/// Keys that are remembered, before those that nobody touched are forgotten.
const MEMORIES_MAX: usize = 4096;

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
    pub(crate) replica: Replica,
    tasks: Mutex<BTreeMap<KeyName, Handle<D::Detail>>>,
    memories: Mutex<BTreeMap<KeyName, Memory<D::Step>>>,
}

/// A running task, as RPCs see it.
#[derive(Clone, Debug)]
pub(crate) struct Handle<T> {
    orders: watch::Sender<Order>,
    pub(crate) progress: watch::Receiver<Progress<T>>,
    /// Pays for the task's calls; each answer takes over what was counted so far.
    pub(crate) session: Session,
}

/// What outlives a key's task for a while.
#[derive(Clone, Debug)]
struct Memory<S> {
    /// The last write, or one whose outcome is unknown.
    last: Option<Written<S>>,
    /// Pays for all tasks of the key: what nobody was told of yet stands in the next answer.
    meter: Arc<Meter>,
    used: Instant,
}

#[derive(Clone, Debug)]
struct Written<S> {
    step: S,
    at: Instant,
    removes: bool,
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
    /// The work ends with it.
    term: Term,
    started: Instant,
    /// How fresh the next observation must be.
    bound: Option<Instant>,
    done: u32,
    /// Writes that the newest plan took, the done ones included.
    total: u32,
    poll: Duration,
    last: Option<Written<D::Step>>,
    /// Unknown outcomes in a row.
    unknown: u32,
}

enum Turn<D: Driver> {
    Again,
    Wait(String),
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
            replica: rpc.replica.clone(),
            tasks: Mutex::default(),
            memories: Mutex::default(),
        }
    }

    /// The running task of a key.
    pub(crate) fn running(&self, key: &LoadBalancerKey) -> Option<Handle<D::Detail>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner).get(&name(key)).cloned()
    }

    /// Starts the key's task, or hands the newer goal to the one that runs. Returns the number of the order.
    ///
    /// # Errors
    /// If another replica leads, or this one is about to stop.
    pub(crate) fn submit(
        self: &Arc<Self>,
        key: &LoadBalancerKey,
        goal: Goal,
        fence: Fence,
        request_id: &str,
    ) -> Result<(u64, Handle<D::Detail>), AdapterError> {
        let term = self.replica.term()?;
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
            return Ok((number, running.clone()));
        }
        let (orders, inbox) = watch::channel(Order { goal, fence, number: 0 });
        let working = Progress::Working { done: 0, total: 0, waits_for: "a look at the cloud".to_owned() };
        let (outbox, progress) = watch::channel(working);
        let purpose = Purpose::own(Priority::Interactive, request_id);
        let session = self.vendor.metered(purpose, self.unpaid(key));
        let handle = Handle { orders, progress, session: session.clone() };
        tasks.insert(name(key), handle.clone());
        let task = Arc::clone(self).run((key.clone(), term), session, inbox, outbox);
        self.tracker.spawn(task);
        Ok((0, handle))
    }

    /// The records of a key in a listing.
    pub(crate) fn records(view: &View<Record<D>>, key: &LoadBalancerKey) -> Vec<Arc<Record<D>>> {
        view.items.iter().filter(|record| record.belongs_to(key)).cloned().collect()
    }

    async fn run(
        self: Arc<Self>,
        (key, term): (LoadBalancerKey, Term),
        session: Session,
        mut inbox: watch::Receiver<Order>,
        outbox: watch::Sender<Progress<D::Detail>>,
    ) {
        let counted = self.metrics.key_task();
        let mut place =
            Place { converger: &self, key: &key, term: term.clone(), left: false, _counted: counted };
        let poll = self.driver.describe().poll;
        // What another replica saw before this term may be changed by it since.
        let trusted = Snapshot::<Record<D>>::no_older_than(self.snapshot.target_age() * TRUSTED_AGES);
        let bound = Some(trusted.max(term.since()));
        let last = self.remember(&key, |memory| memory.last.clone());
        let started = Instant::now();
        let mut work = Work { session, term, started, bound, done: 0, total: 0, poll, last, unknown: 0 };
        loop {
            let order = inbox.borrow_and_update().clone();
            match self.turn(&key, &order, &mut work).await {
                Ok(Turn::Again) => (),
                Ok(Turn::Wait(waits_for)) => {
                    outbox.send_replace(Progress::Working { done: work.done, total: work.total, waits_for });
                    // Who wakes on the same tick shares the listing of the first.
                    work.bound = Some(tokio::select! {
                        tick = tick(work.term.since(), work.poll) => tick,
                        () = newer(&mut inbox, order.number) => Instant::now(),
                        _ = work.term.clone().ended() => Instant::now(),
                    });
                    let overtaken = inbox.borrow().number != order.number;
                    work.poll = if overtaken { poll } else { (work.poll * 2).min(POLL_MAX) };
                }
                Ok(Turn::End(result)) => {
                    if place.leave(&inbox, &outbox, (order.number, work.done, result)) {
                        return;
                    }
                }
                Err(error) => {
                    if place.leave(&inbox, &outbox, (order.number, work.done, Err(error))) {
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
        work.term.check()?;
        let view = self.snapshot.at_least(work.bound, &*self.driver, &work.session).await?;
        let records = Self::records(&view, key);
        let proof = self.proof(work);
        let fresh = view.observed >= proof;
        match decide(&*self.driver, &order.goal, &records, fresh)? {
            Next::End(end) => Ok(Turn::End(Ok(end))),
            Next::Look if fresh => {
                Err(AdapterError::new(Reason::Internal, "the driver plans nothing for nothing"))
            }
            Next::Look if proof > Instant::now() => {
                let waits_for = "reads that are sure to show what was written last".to_owned();
                self.patience(work, waits_for)
            }
            Next::Look => {
                work.bound = Some(proof);
                Ok(Turn::Again)
            }
            Next::Wait(waits_for) => self.patience(work, waits_for),
            Next::Write(steps) => self.write(key, &steps, records.is_empty(), work).await,
            Next::Remove(steps) => self.remove(key, &steps, work).await,
        }
    }

    /// The time from which on a listing proves that there is nothing: after the task began, and late enough that reads show what was
    /// built last, by this process or, for all that is known, by the one that led before it.
    fn proof(&self, work: &Work<D>) -> Instant {
        let built = work.last.as_ref().filter(|last| !last.removes).map(|last| last.at);
        let built = built.map_or(work.term.since(), |at| at.max(work.term.since()));
        work.started.max(built + self.driver.describe().consistency_horizon)
    }

    /// Makes the first of the missing writes, unless it was just made and reads do not show it yet.
    async fn write(
        &self,
        key: &LoadBalancerKey,
        steps: &[D::Step],
        creates: bool,
        work: &mut Work<D>,
    ) -> Result<Turn<D>, AdapterError> {
        let Some(step) = steps.first() else { return Ok(Turn::Again) };
        work.total = work.done.saturating_add(u32::try_from(steps.len()).unwrap_or(u32::MAX));
        // Nothing is seen: after a create, however its order looked, another would make a second one.
        let early = if creates { self.proof(work) > Instant::now() } else { self.repeats(step, work) };
        if early {
            return Ok(Turn::Wait(format!("the cloud to show what it was told before: {step}")));
        }
        self.execute(key, step, false, work).await
    }

    async fn remove(
        &self,
        key: &LoadBalancerKey,
        steps: &[D::Step],
        work: &mut Work<D>,
    ) -> Result<Turn<D>, AdapterError> {
        let Some(step) = steps.first() else { return Ok(Turn::Again) };
        work.total = work.done.saturating_add(u32::try_from(steps.len()).unwrap_or(u32::MAX));
        if self.repeats(step, work) {
            return Ok(Turn::Wait(format!("the cloud to show: {step}")));
        }
        self.execute(key, step, true, work).await
    }

    /// Whether the very step was made so shortly ago that reads may not show it.
    fn repeats(&self, step: &D::Step, work: &Work<D>) -> bool {
        let horizon = self.driver.describe().consistency_horizon;
        work.last.as_ref().is_some_and(|last| last.step == *step && last.at.elapsed() < horizon)
    }

    async fn execute(
        &self,
        key: &LoadBalancerKey,
        step: &D::Step,
        removes: bool,
        work: &mut Work<D>,
    ) -> Result<Turn<D>, AdapterError> {
        let result = self.driver.execute(&work.session, step).await;
        let unknown = result.as_ref().is_err_and(|error| error.fault == Fault::OutcomeUnknown);
        if result.is_ok() || unknown {
            let written = Written { step: step.clone(), at: Instant::now(), removes };
            work.last = Some(written.clone());
            self.remember(key, |memory| memory.last = Some(written));
            work.poll = self.driver.describe().poll;
        }
        match result {
            Ok(Outcome::Accepted | Outcome::Items(_)) => {
                work.done += 1;
                work.unknown = 0;
                Ok(Turn::Wait(step.to_string()))
            }
            Err(error) => self.failed(step, error, work),
        }
    }

    fn failed(
        &self,
        step: &D::Step,
        error: VendorError,
        work: &mut Work<D>,
    ) -> Result<Turn<D>, AdapterError> {
        match error.fault {
            // Somebody changes it, or it vanished under us: look again.
            Fault::Busy | Fault::NotFound => self.patience(work, format!("{step}: {error}")),
            // Find out first whether it was done. Until reads can be trusted, the step is not repeated.
            Fault::OutcomeUnknown if work.unknown < UNKNOWN_MAX => {
                work.unknown += 1;
                Ok(Turn::Wait(format!("certainty whether this was done: {step}: {error}")))
            }
            Fault::OutcomeUnknown
            | Fault::Budget
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
        let since = work.last.as_ref().map_or(work.started, |last| last.at.max(work.started));
        if since.elapsed() > STUCK {
            let text = format!("nothing has moved for {} minutes: {waits_for}", STUCK.as_secs() / 60);
            return Err(AdapterError::new(Reason::VendorUnavailable, text));
        }
        Ok(Turn::Wait(waits_for))
    }

    /// Reads or changes what is remembered of a key. What nobody touched for long is forgotten.
    fn remember<R>(&self, key: &LoadBalancerKey, act: impl FnOnce(&mut Memory<D::Step>) -> R) -> R {
        let mut memories = self.memories.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if memories.len() >= MEMORIES_MAX {
            memories.retain(|_, memory| now.duration_since(memory.used) < STUCK);
        }
        let fresh = || Memory { last: None, meter: Arc::default(), used: now };
        let memory = memories.entry(name(key)).or_insert_with(fresh);
        memory.used = now;
        act(memory)
    }

    /// What the key's tasks cost so far and nobody was told of.
    pub(crate) fn unpaid(&self, key: &LoadBalancerKey) -> Arc<Meter> {
        self.remember(key, |memory| Arc::clone(&memory.meter))
    }
}

/// The next multiple of `delay` since the term began: tasks that wait equally long wake together and share a listing.
async fn tick(epoch: Instant, delay: Duration) -> Instant {
    let now = Instant::now();
    let since = now.duration_since(epoch).as_nanos();
    let delay = delay.max(Duration::from_millis(10)).as_nanos();
    let rest = u64::try_from(delay - since % delay).unwrap_or(u64::MAX);
    let tick = now + Duration::from_nanos(rest);
    tokio::time::sleep_until(tick).await;
    tick
}

/// Until there is another order than this. Only a broken adapter has nobody left who could give one.
async fn newer(inbox: &mut watch::Receiver<Order>, number: u64) {
    if inbox.wait_for(|order| order.number != number).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// A task's place among the running ones: given up with a result, or, if the task breaks, without one.
struct Place<'a, D: Driver> {
    converger: &'a Converger<D>,
    key: &'a LoadBalancerKey,
    term: Term,
    left: bool,
    _counted: TaskCount,
}

impl<D: Driver> Place<'_, D> {
    /// Ends the task and tells the result, unless a newer order came in meanwhile.
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
            tracing::warn!(owner_uid, reason = %error.reason, %error, "Load balancer is not as desired");
        }
        tasks.remove(&name(self.key));
        self.left = true;
        outbox.send_replace(Progress::Ended { order, done, result });
        true
    }
}

impl<D: Driver> Drop for Place<'_, D> {
    /// A driver that panics must not leave a task behind that everybody joins and nobody works on.
    fn drop(&mut self) {
        if !self.left {
            let mut tasks = self.converger.tasks.lock().unwrap_or_else(PoisonError::into_inner);
            tasks.remove(&name(self.key));
        }
    }
}

fn name(key: &LoadBalancerKey) -> KeyName {
    (key.cluster_id.clone(), key.owner_uid.clone())
}
