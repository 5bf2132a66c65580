//! Runs the four steps of each pass. All decisions are made in the steps.

mod rehearse;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex as Plain, PoisonError};
use std::time::Duration;

use cloud_api_proto::Reason;
use controller_core::Again;
use controller_core::brake::Limits;
use controller_core::events::{REMIND, Repeat, gist};
use controller_core::explain::{Brakes, Kind, Ledger, Object, Rehearse, Sources};
use controller_core::mirror;
use controller_core::{
    leadership::{Holdings, ShardPass, Shards, Share},
    start::Process,
};
use kube::Api;
use tokio::sync::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

use self::rehearse::Wanted;
use crate::config::{ClusterCidrs, Config};
use crate::error::Error;
use crate::error::attempts::Attempts;
use crate::error::guard::{Guard, Judgement, Nodes};
use crate::error::write_order::WriteOrder;
use crate::events::Events;
use crate::execute::record::Store;
use crate::execute::{Applied, Executor};
use crate::explain::{findings, rest, waiting};
use crate::metrics::Metrics;
use crate::mirror::ability::Ability;
use crate::mirror::{AllRoutes, Mirrors, Trigger};
use crate::plan::condition::judged;
use crate::plan::node::Node;
use crate::plan::record::Record;
use crate::plan::refusal::Refusal;
use crate::plan::route::Route;
use crate::plan::{Foreign, Plan, plan};

/// Minimum duration of a reported outage. A shorter outage is probably a restart of the adapter.
const OUTAGE_GRACE: Duration = Duration::from_secs(10);

/// Name of the guard among the brakes on the status pages.
const BRAKE: &str = "route removals";

/// Delay before the controller retries shards that another replica holds, or whose Lease is uncertain.
const SHARD_RETRY: Duration = Duration::from_secs(1);

/// Compares all nodes with all routes in passes.
pub(crate) struct Reconciler {
    pub(crate) mirrors: Mirrors,
    trigger: Trigger,
    pub(crate) executor: Executor,
    cluster_cidrs: ClusterCidrs,
    /// Maximum time between two passes.
    period: Duration,
    /// Stops the passes. Cancelled when the process stops, or when a newer process takes over.
    stop: CancellationToken,
    shards: Shards,
    removal_limits: Limits,
    memory: Mutex<Memory>,
    /// The nodes whose routes are not in sync, for the status pages.
    pub(crate) ledger: Ledger,
    /// The removals that the guard holds, for the status pages.
    brakes: Brakes,
    wanted: Plain<Arc<Wanted>>,
    dry_run: bool,
}

/// State from earlier passes. A restart loses all of it except the record, at the cost of early retries and repeated Events.
#[derive(Debug)]
pub(crate) struct Memory {
    attempts: Attempts,
    /// The order of condition writes, and the recent writes.
    order: WriteOrder,
    guard: Guard,
    /// The shards for which the guard was created.
    holdings: Holdings,
    /// Whether the replica had no shard for a while, and made no passes.
    was_idle: bool,
    /// The shard with which the next pass begins.
    next: usize,
    /// The untagged routes that belong to this cluster, on clouds without owner tags on routes.
    record: Record,
    /// The stored copy of the record. `None`: not loaded yet.
    stored: Option<Record>,
    refusals: Repeat<Refusal>,
    /// Nodes that wait for the cloud, by UID and gist of the cause.
    waits: Repeat<(String, String)>,
    /// The reported reasons for holding removals.
    holds: Repeat<&'static str>,
    /// Routes of other owners that were logged.
    foreign: BTreeSet<String>,
    waits_since: Option<Instant>,
    /// The end of the delay that the adapter asked for. The delay applies even if something changes.
    resume: Option<Instant>,
}

impl Memory {
    fn new(guard: Guard) -> Self {
        Self {
            attempts: Attempts::default(),
            order: WriteOrder::default(),
            guard,
            holdings: Holdings::default(),
            was_idle: false,
            next: 0,
            record: Record::default(),
            stored: None,
            refusals: Repeat::every(REMIND),
            waits: Repeat::every(REMIND),
            holds: Repeat::every(REMIND),
            foreign: BTreeSet::new(),
            waits_since: None,
            resume: None,
        }
    }

    /// Records that the cloud is available again. The next outage is then reported.
    fn is_served(&mut self) {
        self.waits_since = None;
        self.resume = None;
        self.waits = Repeat::every(REMIND);
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
            shards: process.shards.clone(),
            clock: process.clock,
        };
        let guard = Guard::new(config.removal_grace, config.removal_limits, Instant::now());
        Self {
            mirrors: mirrors.clone(),
            trigger: trigger.clone(),
            executor,
            cluster_cidrs: config.cluster_cidrs.clone(),
            period: config.period,
            stop: process.stop.child_token(),
            shards: process.shards.clone(),
            removal_limits: config.removal_limits,
            memory: Mutex::new(Memory::new(guard)),
            ledger: Ledger::new(process.clock),
            brakes: process.explain.brakes(),
            wanted: Plain::default(),
            dry_run: process.dry_run,
        }
    }

    /// Registers the readiness, queue and status pages of the controller.
    pub(crate) fn show(self: &Arc<Self>, process: &mut Process) {
        process.health.needs(&self.mirrors.nodes);
        let mirrors = self.mirrors.clone();
        process.health.ready_if("routes", move || mirrors.routes_readiness());
        process.health.watches(&self.trigger.queue);
        self.trigger.queue.register(&mut process.registry);
        let (objects, ledgers) = (Arc::new(self.mirrors.clone()), vec![self.ledger.clone()]);
        let sources = Sources::of_all(Kind::Node, objects, ledgers, &self.trigger.queue, AllRoutes);
        let sources = sources.linked(&self.mirrors.routes).watching(&self.mirrors.nodes);
        process.explain.by(sources.rehearsed(Arc::clone(self) as Arc<dyn Rehearse>));
        let measured = [self.mirrors.nodes.measured(), self.mirrors.routes.measured()];
        mirror::register(process.metrics(), measured);
    }

    /// Makes passes, one at a time, until the process stops or a newer process takes over.
    pub(crate) async fn run(self: Arc<Self>) {
        self.trigger.wake();
        let (queue, stop) = (self.trigger.queue.clone(), self.stop.clone());
        let pass = |_key, _attempt| {
            let this = Arc::clone(&self);
            async move { this.reconcile().await }
        };
        queue.run(1, stop, pass).await;
    }

    async fn reconcile(&self) -> Again {
        let (memory, now) = (&mut *self.memory.lock().await, Instant::now());
        if let Some(resume) = memory.resume.filter(|resume| *resume > now) {
            self.trigger.wake_after(resume.duration_since(now));
            return Again::Done;
        }
        self.executor.metrics.passes.inc();
        if let Err(missing) = self.mirrors.readiness() {
            debug!(%missing, "Waiting until the caches are complete");
            // No Event reports that nodes wait for an adapter that does not support routes.
            if self.mirrors.ability() == Some(Ability::None) {
                self.ledger.replace_findings(BTreeMap::new(), |_| true);
                self.record_seen(&self.mirrors.nodes());
                self.wants(Wanted::default());
            } else {
                self.report_waiting(memory, &self.mirrors.nodes(), &missing, None);
            }
            self.trigger.wake_after(OUTAGE_GRACE);
            return Again::Done;
        }
        let passes = self.shards.enter_all();
        if passes.is_empty() {
            memory.was_idle = true;
            // A replica without shards makes a pass when it acquires a shard.
            if self.shards.held() > 0 {
                self.trigger.wake_after(SHARD_RETRY);
            }
            return Again::Done;
        }
        self.begin(memory);
        self.trigger.begins();
        let (nodes, (outcome, again)) = self.pass(memory, &passes).await;
        let again = (passes.len() < self.shards.held()).then_some(SHARD_RETRY).into_iter().chain(again).min();
        drop(passes);
        let Err(error) = outcome else {
            memory.is_served();
            let next = memory.attempts.next(Instant::now()).into_iter().chain(again).min();
            self.trigger.wake_after(next.unwrap_or(self.period).min(self.period));
            return Again::Done;
        };
        if !error.is_of_the_cloud() {
            memory.is_served();
        }
        self.report(memory, &nodes, &error);
        let again = error.again();
        if let Again::After(delay) = again {
            memory.resume = Some(Instant::now() + delay);
        }
        again
    }

    /// After the replica acquires a shard, the guard starts again and the stored record is reloaded. After a time without any shard, all
    /// earlier state is dropped.
    fn begin(&self, memory: &mut Memory) {
        let limits = self.removal_limits.of_share(self.shards.held(), self.shards.count());
        match memory.holdings.update(&self.shards) {
            Share::Same => (),
            Share::Other => memory.guard.limit(limits),
            Share::Regained => {
                if memory.was_idle {
                    let guard = memory.guard.forgetful();
                    let holdings = std::mem::take(&mut memory.holdings);
                    *memory = Memory { holdings, ..Memory::new(guard) };
                }
                memory.guard.begins(limits, Instant::now());
                memory.stored = None;
            }
        }
        memory.was_idle = false;
    }

    /// Returns the compared nodes, the result, and when the next pass is needed if nothing changes.
    async fn pass(
        &self,
        memory: &mut Memory,
        passes: &[ShardPass],
    ) -> (Vec<Arc<Node>>, (Result<(), Error>, Option<Duration>)) {
        let recalled = self.recall(memory).await;
        let nodes = self.mirrors.nodes();
        let scope = self.executor.adapter.scope();
        let routes = match scope.read_mirror(&self.mirrors.routes, || self.mirrors.routes()) {
            Ok(routes) => routes,
            Err(source) => return (nodes, (Err(Error::Elsewhere { source: Box::new(source) }), None)),
        };
        let routes: Vec<&Route> = routes.iter().filter_map(|route| Option::as_ref(route)).collect();
        let unmarked = (self.mirrors.ability() == Some(Ability::Unmarked)).then_some(&memory.record);
        let plan = plan(&nodes, &routes, &self.cluster_cidrs, unmarked);
        if unmarked.is_some() {
            memory.record.clone_from(&plan.record);
        } else {
            // During a rolling upgrade the adapter may briefly report owner tags, so entries stay as long as their routes exist.
            memory.record.keep(&routes);
        }
        let is_ours = |key: &str| passes.iter().any(|pass| pass.is_for(key));
        let n_ours = plan.n_ours.saturating_mul(passes.len()).div_ceil(self.shards.count());
        let plan = Plan { n_ours, ..plan.of(is_ours) };
        memory.attempts.keep(&plan);
        let (plan, judgement) = self.guarded(memory, plan, nodes.len());
        let due = memory.attempts.due(&plan, Instant::now());
        if !due.is_settled() {
            debug!(plan = %due, "Executing the plan of this pass");
        }
        self.wants(Wanted { plan: plan.clone(), held: judgement.held.clone() });
        let ordered = if self.dry_run { Vec::new() } else { rotated(passes, memory.next) };
        let Applied { left_out, reached } = self.executor.apply(&ordered, &due, &mut memory.attempts).await;
        memory.next = reached + 1;
        // Conditions that are certain are written even if the adapter became unavailable in this pass.
        let mut judged = judged(&nodes, &plan, |creation| memory.attempts.route_state(creation));
        judged.retain(|uid, _| is_ours(uid));
        let mut found = findings(&nodes, &plan, &memory.attempts, Instant::now());
        found.retain(|object, _| is_ours(&object.uid));
        let away = matches!(left_out, Err(Error::Adapter { .. }));
        found.values_mut().for_each(|finding| finding.stays = away);
        let mut changes = self.mirrors.judge(&judged);
        if self.dry_run {
            rest(&mut found, &changes);
            changes.clear();
        }
        self.ledger.replace_findings(found, is_ours);
        self.record_seen(&nodes);
        let (more, written) = self.executor.write_conditions(passes, changes, &mut memory.order).await;
        self.report_refusals(memory, &plan);
        self.report_foreign(memory, &plan.foreign);
        self.report_held(memory, &judgement);
        let kept = match passes.iter().find(|pass| pass.shard() == 0 && !self.dry_run) {
            Some(first) => first.run(self.keep(memory)).await,
            None => Ok(()),
        };
        let more = more || matches!(left_out, Ok(true));
        let rest = memory.order.rest(Instant::now());
        let again = if more { Some(Duration::ZERO) } else { judgement.again.into_iter().chain(rest).min() };
        (nodes, (left_out.and(written).and(recalled).and(kept), again))
    }

    /// Drops the removals from the plan that are not allowed yet.
    fn guarded(&self, memory: &mut Memory, mut plan: Plan, n_listed: usize) -> (Plan, Judgement) {
        let reached = plan.reached.iter().chain(memory.guard.successors()).cloned().collect();
        let deleted = self.mirrors.deleted(reached);
        let judgement = memory.guard.judge(&mut plan, Nodes { n_listed, deleted: &deleted }, Instant::now());
        (plan, judgement)
    }

    pub(crate) fn wanted(&self) -> Arc<Wanted> {
        Arc::clone(&self.wanted.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn wants(&self, wanted: Wanted) {
        *self.wanted.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(wanted);
    }

    fn record_seen(&self, nodes: &[Arc<Node>]) {
        let ours = nodes.iter().filter(|node| self.shards.has(&node.uid));
        self.ledger.replace_seen(ours.map(|node| Object::node(&node.name, &node.uid)));
    }

    /// Loads the record of earlier processes once. If that fails, passes continue, but routes of earlier processes are not removed.
    async fn recall(&self, memory: &mut Memory) -> Result<(), Error> {
        if self.mirrors.ability() == Some(Ability::Unmarked) && memory.stored.is_none() {
            let loaded = self.executor.store.load().await;
            let stored = loaded.map_err(|error| Error::Record { done: "read", source: Box::new(error) })?;
            memory.record.recall(&stored);
            memory.stored = Some(stored);
        }
        Ok(())
    }

    /// Stores the updated record for the next process.
    async fn keep(&self, memory: &mut Memory) -> Result<(), Error> {
        let Some(stored) = &memory.stored else { return Ok(()) };
        let saved = self.executor.store.save(&memory.record, stored).await;
        saved.map_err(|error| Error::Record { done: "written", source: Box::new(error) })?;
        memory.stored = Some(memory.record.clone());
        Ok(())
    }

    fn report(&self, memory: &mut Memory, nodes: &[Arc<Node>], error: &Error) {
        let cause = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
        match error {
            Error::Superseded { .. } => {
                error!(%error, cause, "Stopping this replica");
                self.stop.cancel();
            }
            Error::Adapter { .. } => {
                warn!(%error, cause, "Cannot reconcile routes; waiting for the cloud adapter");
                self.report_waiting(memory, nodes, &format!("{error}: {cause}"), error.reason());
            }
            Error::Elsewhere { source } => {
                warn!(%error, cause, "Cannot reconcile routes; waiting for the cloud adapter");
                self.report_waiting(memory, nodes, &source.message, None);
            }
            Error::Conditions { .. } | Error::Record { .. } => {
                warn!(%error, cause, "Cannot reconcile routes; retrying");
            }
        }
    }

    fn report_refusals(&self, memory: &mut Memory, plan: &Plan) {
        self.executor.metrics.refusals.set(i64::try_from(plan.refusals.len()).unwrap_or(i64::MAX));
        let present = plan.refusals.iter().chain(&plan.outside);
        for refusal in memory.refusals.observe(present, Instant::now(), |_| false) {
            self.executor.events.refused(refusal);
        }
    }

    /// Logs each route of another owner once while the route exists. Gauges count these routes.
    fn report_foreign(&self, memory: &mut Memory, foreign: &[Foreign]) {
        self.executor.metrics.foreign(foreign);
        for Foreign { vendor_id, to, via, owner } in foreign {
            if !memory.foreign.contains(vendor_id) {
                info!(vendor_id, %to, %via, %owner, "A route of another owner overlaps \
                                                     the pod CIDRs; leaving the route unchanged");
            }
        }
        memory.foreign = foreign.iter().map(|foreign| foreign.vendor_id.clone()).collect();
    }

    fn report_held(&self, memory: &mut Memory, judgement: &Judgement) {
        self.brakes.holds(BRAKE, judgement.held.iter().map(ToString::to_string).collect());
        self.executor.metrics.held.set(i64::try_from(judgement.n_held()).unwrap_or(i64::MAX));
        let present: Vec<&str> = judgement.held.iter().map(|held| held.why.name()).collect();
        let due = memory.holds.observe(&present, Instant::now(), |_| false);
        for held in judgement.held.iter().filter(|held| due.contains(&&held.why.name())) {
            self.executor.events.held(&self.shards.regarding(), held);
        }
    }

    /// Reports the outage on each node that has no route yet.
    fn report_waiting(&self, memory: &mut Memory, nodes: &[Arc<Node>], why: &str, reason: Option<Reason>) {
        let now = Instant::now();
        let since = *memory.waits_since.get_or_insert(now);
        let waits = |node: &&Node| node.waits_for_a_route() && self.shards.has(&node.uid);
        let those: Vec<&Node> = nodes.iter().map(Arc::as_ref).filter(waits).collect();
        let gist = gist(why);
        let all: BTreeSet<_> = those.iter().map(|node| (node.uid.clone(), gist.clone())).collect();
        let due: BTreeSet<&String> = if now.duration_since(since) < OUTAGE_GRACE {
            BTreeSet::new()
        } else {
            memory.waits.observe(&all, now, |_| true).into_iter().map(|(uid, _)| uid).collect()
        };
        let listed: BTreeSet<&str> = nodes.iter().map(|node| node.uid.as_str()).collect();
        self.ledger.forget_where(|uid| !listed.contains(uid));
        for node in those {
            let is_due = due.contains(&node.uid);
            self.ledger.record_wait(&Object::node(&node.name, &node.uid), &waiting(why, reason, is_due));
            if is_due {
                self.executor.events.waits(node, why);
            }
        }
    }
}

/// Returns the shards' passes in order, beginning with shard `first`, or with the next existing shard if `first` does not exist.
fn rotated(passes: &[ShardPass], first: usize) -> Vec<&ShardPass> {
    let (before, from): (Vec<&ShardPass>, Vec<&ShardPass>) =
        passes.iter().partition(|pass| pass.shard() < first);
    [from, before].concat()
}

#[cfg(test)]
mod tests;
