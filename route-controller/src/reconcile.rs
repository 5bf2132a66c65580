//! The corridor: takes the one key through the four rooms. Decides nothing itself.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use controller_core::Again;
use controller_core::mirror;
use controller_core::start::Process;
use kube::Api;
use tokio::sync::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, warn};

use crate::config::{ClusterCidrs, Config};
use crate::events::Events;
use crate::events::told::Told;
use crate::execute::record::Store;
use crate::execute::{Executor, Fencing};
use crate::metrics::Metrics;
use crate::mirror::{Mirrors, Trigger};
use crate::plan::condition::changes;
use crate::plan::node::Node;
use crate::plan::plan;
use crate::plan::record::Record;
use crate::plan::refusal::Refusal;
use crate::requeue::Error;
use crate::requeue::attempts::Attempts;

/// An adapter that is away for less than this is being restarted, which is nobody's concern.
const PATIENCE: Duration = Duration::from_secs(10);

/// Compares all nodes with all routes, again and again.
pub(crate) struct Reconciler {
    mirrors: Mirrors,
    trigger: Trigger,
    executor: Executor,
    cluster_cidrs: ClusterCidrs,
    /// The next pass is at the latest after this.
    period: Duration,
    /// Ends the passes, and the process with them when nobody asked for that.
    stop: CancellationToken,
    memory: Mutex<Memory>,
}

/// What is known from earlier passes. Lost with the process but for the record, at the cost of an early retry and a repeated Event.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    attempts: Attempts,
    /// Whether the cloud marks our routes. `None`: the adapter was not asked yet.
    marks: Option<bool>,
    /// Where it does not: which routes without a mark are ours.
    record: Record,
    /// What of it is kept for the next process. `None`: it was not read yet.
    stored: Option<Record>,
    told_refusals: Told<Refusal>,
    told_waiting: Told<String>,
    waits_since: Option<Instant>,
    /// The adapter asked for peace until then, whatever changes.
    resume: Option<Instant>,
}

impl Memory {
    /// The record, on a cloud that does not mark our routes. Until that is known, nothing without a mark is ours.
    fn unmarked(&self) -> Option<&Record> {
        (self.marks == Some(false)).then_some(&self.record)
    }

    /// The wait is over: the next one is told anew.
    fn is_served(&mut self) {
        self.waits_since = None;
        self.resume = None;
        self.told_waiting = Told::default();
    }
}

impl Reconciler {
    pub(crate) fn new(process: &mut Process, config: &Config, mirrors: &Mirrors, trigger: &Trigger) -> Self {
        let executor = Executor {
            adapter: process.adapter.clone(),
            nodes: Api::all(process.kube.clone()),
            store: Store::new(process.kube.clone()),
            events: Events::new(process.recorder.clone()),
            metrics: Metrics::register(process),
            cluster_cidrs: config.cluster_cidrs.clone(),
            fencing: Fencing::starting_at(&process.clock),
            clock: process.clock,
        };
        Self {
            mirrors: mirrors.clone(),
            trigger: trigger.clone(),
            executor,
            cluster_cidrs: config.cluster_cidrs.clone(),
            period: config.period,
            stop: process.stop.child_token(),
            memory: Mutex::default(),
        }
    }

    /// Shows on the pages of the process how it stands with the mirrors and the passes.
    pub(crate) fn show(&self, process: &mut Process) {
        process.health.needs(&self.mirrors.nodes);
        process.health.needs(&self.mirrors.routes);
        process.health.watches(&self.trigger.queue);
        self.trigger.queue.register(&mut process.registry);
        let measured = [self.mirrors.nodes.measured(), self.mirrors.routes.measured()];
        mirror::register(process.metrics(), measured);
    }

    /// Passes, one at a time, until the process stops or a newer one is at work.
    pub(crate) async fn run(self: Arc<Self>) {
        self.trigger.wake();
        let (queue, stop) = (self.trigger.queue.clone(), self.stop.clone());
        let pass = |_key, _attempt| {
            let this = Arc::clone(&self);
            async move { this.reconcile().await }
        };
        queue.run(1, stop, pass).await;
    }

    /// One pass, and when the next is.
    async fn reconcile(&self) -> Again {
        let (memory, now) = (&mut *self.memory.lock().await, Instant::now());
        if let Some(resume) = memory.resume.filter(|resume| *resume > now) {
            self.trigger.wake_after(resume.duration_since(now));
            return Again::Done;
        }
        self.executor.metrics.passes.inc();
        if let Err(missing) = self.mirrors.readiness() {
            debug!(%missing, "Waits");
            self.tell_waiting(memory, &self.mirrors.facts().0, &missing);
            self.trigger.wake_after(PATIENCE);
            return Again::Done;
        }
        self.trigger.begins();
        let (nodes, outcome) = self.pass(memory).await;
        let Err(error) = outcome else {
            memory.is_served();
            let next = memory.attempts.next(Instant::now()).unwrap_or(self.period);
            self.trigger.wake_after(next.min(self.period));
            return Again::Done;
        };
        self.report(memory, &nodes, &error);
        let again = error.again();
        if let Again::After(delay) = again {
            memory.resume = Some(Instant::now() + delay);
        }
        again
    }

    async fn pass(&self, memory: &mut Memory) -> (Vec<Node>, Result<(), Error>) {
        let recalled = self.recall(memory).await;
        let (nodes, routes) = self.mirrors.facts();
        let plan = plan(&nodes, &routes, &self.cluster_cidrs, memory.unmarked());
        memory.record.clone_from(&plan.record);
        memory.attempts.keep(&plan);
        let due = memory.attempts.due(plan.clone(), Instant::now());
        if !due.is_settled() {
            debug!(plan = %due, "Carries out");
        }
        let applied = self.executor.apply(&due, &mut memory.attempts).await;
        // What is certain is said even if the adapter went away in between.
        let changes = changes(&nodes, &plan, |lay| memory.attempts.standing(lay));
        let said = self.executor.say(changes).await;
        self.tell_refusals(memory, &plan.refusals);
        let kept = self.keep(memory).await;
        (nodes, applied.and(said).and(recalled).and(kept))
    }

    /// Reads, once, what earlier processes knew of routes. Without it all goes on, but nothing of theirs is removed.
    async fn recall(&self, memory: &mut Memory) -> Result<(), Error> {
        if memory.marks.is_none() {
            memory.marks = Some(self.executor.marks_routes().await?);
        }
        if memory.marks == Some(false) && memory.stored.is_none() {
            let loaded = self.executor.store.load().await;
            let stored = loaded.map_err(|error| Error::Record { done: "read", source: Box::new(error) })?;
            memory.record.recall(&stored);
            memory.stored = Some(stored);
        }
        Ok(())
    }

    /// Writes what has become known, for the next process.
    async fn keep(&self, memory: &mut Memory) -> Result<(), Error> {
        let Some(stored) = &memory.stored else { return Ok(()) };
        let saved = self.executor.store.save(&memory.record, stored).await;
        saved.map_err(|error| Error::Record { done: "written", source: Box::new(error) })?;
        memory.stored = Some(memory.record.clone());
        Ok(())
    }

    fn report(&self, memory: &mut Memory, nodes: &[Node], error: &Error) {
        let cause = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
        match error {
            Error::Superseded { .. } => {
                error!(%error, cause, "Ends");
                self.stop.cancel();
            }
            Error::Adapter { .. } => {
                warn!(%error, cause, "Waits");
                self.tell_waiting(memory, nodes, &format!("{error}: {cause}"));
            }
            Error::Conditions { .. } | Error::Record { .. } => warn!(%error, cause, "Tries again"),
        }
    }

    fn tell_refusals(&self, memory: &mut Memory, refusals: &[Refusal]) {
        self.executor.metrics.refusals.set(i64::try_from(refusals.len()).unwrap_or(i64::MAX));
        for refusal in memory.told_refusals.news(refusals, Instant::now()) {
            self.executor.events.refused(refusal);
        }
    }

    /// Tells it on each node that has no route yet, so that whoever looks at the node sees why.
    fn tell_waiting(&self, memory: &mut Memory, nodes: &[Node], why: &str) {
        let now = Instant::now();
        let since = *memory.waits_since.get_or_insert(now);
        if now.duration_since(since) < PATIENCE {
            return;
        }
        let waiting: Vec<&Node> = nodes.iter().filter(|node| node.waits_for_a_route()).collect();
        let uids: BTreeSet<String> = waiting.iter().map(|node| node.uid.clone()).collect();
        let news: BTreeSet<&String> = memory.told_waiting.news(&uids, now).into_iter().collect();
        for node in waiting.into_iter().filter(|node| news.contains(&node.uid)) {
            self.executor.events.waits(node, why);
        }
    }
}
