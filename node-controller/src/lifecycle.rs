//! Handles the end of a node: sets the shutdown taint if the instance is switched off, and deletes the node if the instance is gone.
//!
//! Every few seconds the controller checks all nodes that are not ready. The cache suffices for instances that the cache shows. About all
//! other instances, the controller asks the cloud twice, some time apart, with one live call for all of them. The controller deletes a node
//! only if both answers report with evidence that the instance is gone. The deletion brake limits the deletions.
//!
//! - [`crate::absence`]: pure; keeps the answers about each instance, and decides whether they prove that the instance is gone.
//! - [`plan`]: pure; decides which nodes get or lose the taint, and about which nodes the controller asks the cloud.
//! - [`gate`]: pure; decides which nodes with a proof of absence are deleted now.
//! - [`question`], [`execute`]: make the calls to the cloud and to the API server.
//! - [`notices`]: emits the Events, once and not in each pass.
//!
//! Taints and deletions have separate loops. A cloud that answers slowly must not delay the removal of a taint from a node that is ready
//! again.

mod execute;
mod gate;
mod metrics;
mod notices;
mod plan;
mod question;

#[cfg(test)]
pub(crate) use self::notices::examples;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, MutexGuard},
    time::Duration,
};

use controller_core::{
    Clock,
    adapter::Adapter,
    brake::{Limits, Verdict},
    explain,
    leadership::{Holdings, Shards, Share},
    start::Process,
};
use futures::{StreamExt as _, stream};
use telemetry::traces::{self, Origin};
use tokio::time::{Instant, sleep};
use tracing::{Instrument as _, debug, warn};

pub(crate) use self::notices::DELETE_GONE_NODE;
use self::{
    execute::{Ended, Executor},
    gate::{BrakeInput, Gate, Judgement},
    metrics::Metrics,
    notices::{Notices, Reporter, Tripped},
    plan::{Facts, absence, taint},
};
use crate::{
    absence::{Conclusion, Ledger, Shown, Signs, Subject},
    mirror::{Found, Mirrors},
    plan::{Instance, Node, Ready, View},
    scheme::Scheme,
};

/// The component named in the Events of this module. The former cloud controller manager, which ran several controllers, used this name.
const COMPONENT: &str = "cloud-node-lifecycle-controller";
/// Number of nodes written at once, so that a hanging write does not block the others.
const AT_ONCE: usize = 10;
/// Name of the deletion brake on the status pages.
const BRAKE: &str = "node deletions";
/// Number of witnesses: known instances that are queried together with the instance that the cloud does not show. There are two, since one
/// of the two may be deleted during the query.
const WITNESSES: usize = 2;

/// Periods and limits. A flag sets each field.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// Pause between two checks of all nodes.
    pub(crate) period: Duration,
    /// Minimum time between the two answers that prove an absence.
    pub(crate) confirm_after: Duration,
    /// Minimum age of a node that is not initialised yet before it can be deleted.
    pub(crate) minimum_age: Duration,
    pub(crate) limits: Limits,
}

#[derive(Clone, Debug)]
pub(crate) struct Ledgers {
    /// Nodes that may be deleted, each with the plan to delete it or the reason why it is not deleted.
    pub(crate) ends: explain::Ledger,
    /// Nodes whose taint would change, in a dry run.
    pub(crate) taints: explain::Ledger,
}

pub(crate) fn start(
    process: &mut Process,
    mirrors: &Mirrors,
    signs: &Signs,
    settings: Settings,
    ledgers: Ledgers,
) {
    let lifecycle = Lifecycle {
        mirrors: mirrors.clone(),
        adapter: process.adapter.clone(),
        executor: Executor::new(process, Arc::clone(&mirrors.rules)),
        metrics: Metrics::register(process),
        scheme: mirrors.scheme.clone(),
        signs: signs.clone(),
        shards: process.shards.clone(),
        dry_run: process.dry_run.then_some(ledgers.taints),
        settings,
    };
    let (this, deletions) = (lifecycle.clone(), ledgers.ends);
    process.background("provider ID scheme", async move {
        this.scheme.follow(&this.mirrors.instances, &this.adapter).await;
    });
    let this = lifecycle.clone();
    process.background("shutdown taints", async move {
        loop {
            this.taint_all().await;
            sleep(this.settings.period).await;
        }
    });
    let reporter = Reporter::new(process.recorder.as_component(COMPONENT));
    let (clock, brakes) = (process.clock, process.explain.brakes());
    process.background("node deletions", async move {
        let gate = Gate::new(settings.limits, Instant::now());
        let holdings = Holdings::default();
        let mut deletions =
            Deletions { lifecycle, gate, holdings, reporter, clock, asked: None, deletions, brakes };
        loop {
            // A replica that has lost its shards may acquire them again, so it keeps the state of the brake and the cloud's answers.
            if deletions.lifecycle.shards.held() > 0 {
                deletions.begin();
                deletions.pass().await;
            } else {
                deletions.lifecycle.metrics.held(Verdict::Go, 0);
                deletions.deletions.replace_findings(BTreeMap::new(), |_| true);
            }
            sleep(settings.period).await;
        }
    });
}

/// The state that both loops share.
#[derive(Clone)]
struct Lifecycle {
    mirrors: Mirrors,
    adapter: Adapter,
    executor: Executor,
    metrics: Metrics,
    scheme: Scheme,
    /// The state of each node, including the answers of the cloud.
    signs: Signs,
    /// The shards of this replica. Nodes in the shards of other replicas serve only as witnesses.
    shards: Shards,
    /// Where a dry run records its plans. `None`: the controller executes its plans.
    dry_run: Option<explain::Ledger>,
    settings: Settings,
}

impl Lifecycle {
    async fn taint_all(&self) {
        let nodes = self.mirrors.nodes.items();
        let ours = nodes.into_iter().filter(|(_, node)| self.manages(node));
        let changes = ours.filter_map(|(_, node)| {
            let change = self.facts_for_the_taint(&node, |facts| taint(&node, facts))?;
            Some((node, change))
        });
        let write = |(node, change): (Arc<Node>, plan::Change)| async move {
            let Ok(pass) = self.shards.enter(&node.uid) else { return };
            if let Err(error) = pass.run(self.executor.taint(&node, change)).await {
                warn!(node = node.name, ?change, %error, "Cannot change the shutdown taint; retrying");
            }
        };
        let changes: Vec<_> = changes.collect();
        if let Some(would) = &self.dry_run {
            would.replace_findings(
                changes.iter().map(|(node, change)| notices::would_taint(node, *change)).collect(),
                |_| true,
            );
            return;
        }
        if changes.is_empty() {
            return;
        }
        let span =
            traces::child(traces::span!("taint", otel.name = "shutdown taints", nodes = changes.len()));
        stream::iter(changes).for_each_concurrent(AT_ONCE, write).instrument(span).await;
    }

    /// Whether the node is in a shard of this replica, and belongs to this release.
    fn manages(&self, node: &Node) -> bool {
        self.shards.has(&node.uid) && self.mirrors.apart(node).is_none()
    }

    /// Calls `decide` with what is known about a node's instance.
    fn facts<T>(&self, node: &Node, decide: impl FnOnce(&Facts<'_>) -> T) -> T {
        let instance = node.provider_id.as_ref().and_then(|id| self.mirrors.instance(id));
        self.facts_of(node, instance.as_deref(), decide)
    }

    /// Like [`Self::facts`], but finds the instance of a node without a provider ID by the node's name, if only one instance has that name.
    /// A name is enough for a taint, which can be removed again, but never for a deletion.
    fn facts_for_the_taint<T>(&self, node: &Node, decide: impl FnOnce(&Facts<'_>) -> T) -> T {
        if node.provider_id.is_some() || node.life.ready == Ready::True {
            return self.facts(node, decide);
        }
        match self.mirrors.find(node) {
            Found::One(instance) => self.facts_of(node, Some(&*instance), decide),
            Found::Nothing | Found::Many(_) => self.facts_of(node, None, decide),
        }
    }

    fn facts_of<T>(
        &self,
        node: &Node,
        instance: Option<&Instance>,
        decide: impl FnOnce(&Facts<'_>) -> T,
    ) -> T {
        let conclusion = Subject::of(node).and_then(|subject| self.ledger().conclusion(&subject).cloned());
        decide(&Facts {
            cloud: self.mirrors.view_of_the_cloud(),
            instance,
            conclusion: conclusion.as_ref(),
            scheme: self.scheme.get().as_deref(),
        })
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.signs.ledger()
    }
}

struct Candidate {
    node: Arc<Node>,
    shown: Shown,
}

struct Deletions {
    lifecycle: Lifecycle,
    gate: Gate,
    /// The shards for which the gate was created.
    holdings: Holdings,
    reporter: Reporter,
    clock: Clock,
    /// The trace of the last request to the cloud.
    asked: Option<Origin>,
    /// The nodes that may be deleted, each with the plan to delete it or the reason why it is not deleted, for the status pages.
    deletions: explain::Ledger,
    /// The nodes that the brake holds, for the status pages.
    brakes: explain::Brakes,
}

impl Deletions {
    /// Resets the brake when this replica acquires a shard, because another replica may have deleted nodes of that shard.
    fn begin(&mut self) {
        let Lifecycle { shards, settings, .. } = &self.lifecycle;
        let limits = settings.limits.of_share(shards.held(), shards.count());
        match self.holdings.update(shards) {
            Share::Same => (),
            Share::Other => self.gate.limit(limits),
            Share::Regained => self.gate = Gate::new(limits, Instant::now()),
        }
    }

    /// Checks all nodes once. Asks the cloud about the nodes that are due. Deletes the nodes whose instances are proven to be gone, as far
    /// as the brake allows.
    async fn pass(&mut self) {
        let candidates = self.candidates();
        let (asked, unproven) = {
            let mut ledger = self.lifecycle.ledger();
            let now = Instant::now();
            ledger.keep(candidates.iter().map(|(subject, candidate)| (subject, candidate.shown)), now);
            let due = ledger.due(now);
            let unproven = ledger.lacks_proof(&due);
            (due, unproven)
        };
        if !asked.is_empty() {
            let span = traces::child(traces::span!(
                "ask",
                otel.name = "ask about absent nodes",
                nodes = asked.len()
            ));
            self.asked = Some(Origin::of(&span));
            let witnesses = if unproven { self.witnesses() } else { Vec::new() };
            self.ask(asked, &witnesses).instrument(span).await;
        }
        // The candidates are computed again, since the request may have taken long.
        let candidates = self.candidates();
        let mut notices = Notices::default();
        let proven = self.proven(&candidates, &mut notices);
        let input = self.brake_input(proven);
        let going = self.judge(input, &mut notices);
        self.brakes.holds(BRAKE, notices.tripped_words());
        let mut found = notices.findings(candidates.values().map(|candidate| &*candidate.node), &going);
        self.others(&mut notices);
        let reported = self.reporter.report(notices, Instant::now());
        notices::mark_reported(&mut found, &reported);
        let dry_run = self.lifecycle.dry_run.is_some();
        if dry_run {
            notices::rest(&mut found, &going);
        }
        self.deletions.replace_findings(found, |_| true);
        if !going.is_empty() && !dry_run {
            let span =
                traces::child(traces::span!("delete", otel.name = "delete nodes", nodes = going.len()));
            self.delete(going).instrument(span).await;
        }
    }

    fn candidates(&self) -> BTreeMap<Subject, Candidate> {
        let (now, minimum_age) = (self.clock.now(), self.lifecycle.settings.minimum_age);
        let nodes = self.lifecycle.mirrors.nodes.items();
        let ours = nodes.into_iter().filter(|(_, node)| self.lifecycle.manages(node));
        let candidates = ours.filter_map(|(_, node)| {
            let shown = self.lifecycle.facts(&node, |facts| {
                let shown = if facts.instance.is_some() { Shown::Yes } else { Shown::No };
                absence(&node, facts, now, minimum_age).then_some(shown)
            })?;
            Some((Subject::of(&node)?, Candidate { node, shown }))
        });
        candidates.collect()
    }

    /// Reports nodes of other clouds, which this controller ignores. If other releases manage such nodes, they are not reported.
    fn others(&self, notices: &mut Notices) {
        let Lifecycle { mirrors, scheme, shards, .. } = &self.lifecycle;
        let Some(scheme) = scheme.get().filter(|_| !mirrors.rules.shares_nodes()) else { return };
        let is_another = |node: &&Arc<Node>| plan::is_of_another(node, &scheme) && shards.has(&node.uid);
        let others: Vec<_> = mirrors.nodes.read(|nodes| nodes.values().filter(is_another).cloned().collect());
        others.iter().for_each(|node| notices.of_another_cloud(node, &scheme));
    }

    /// Returns the provider IDs of a few instances that the cloud lists. An adapter that has just started, or whose last listing was empty,
    /// knows no instance of this cluster; the witnesses prove to the adapter that it queries the right scope.
    fn witnesses(&self) -> Vec<String> {
        let is_listed = |node: &&Arc<Node>| {
            self.lifecycle.facts(node, |facts| {
                facts.cloud == View::Fresh && facts.instance.is_some_and(|instance| !instance.ends)
            })
        };
        let known = self.of_this_cloud();
        let listed = known.iter().filter(is_listed);
        listed.filter_map(|node| node.provider_id.clone()).take(WITNESSES).collect()
    }

    async fn ask(&self, subjects: Vec<Subject>, witnesses: &[String]) {
        let asked = Instant::now();
        for batch in subjects.chunks(question::BATCH - witnesses.len()) {
            let answers = question::ask(&self.lifecycle.adapter, batch, witnesses).await;
            let (now, mut ledger) = (Instant::now(), self.lifecycle.ledger());
            for (subject, answer) in batch.iter().zip(answers) {
                debug!(?subject, ?answer, "Asked the cloud about a node that is not ready");
                ledger.record(subject, &answer, asked, now);
            }
        }
    }

    /// Returns the nodes whose instances are proven to be gone, and adds notices for nodes that are not deleted.
    fn proven(&self, candidates: &BTreeMap<Subject, Candidate>, notices: &mut Notices) -> Vec<Arc<Node>> {
        let (now, ledger) = (Instant::now(), self.lifecycle.ledger());
        let mut proven = Vec::new();
        for (subject, Candidate { node, .. }) in candidates {
            if ledger.is_proven(subject, now) {
                proven.push(Arc::clone(node));
                continue;
            }
            match ledger.conclusion(subject) {
                Some(Conclusion::NotVisible) => notices.not_visible(node),
                Some(Conclusion::Foreign) => notices.foreign(node),
                // A single failure is not reported, because it may be a fail-over or a short throttle.
                Some(Conclusion::Failed { error, repeated: true }) => notices.failed(node, error),
                Some(
                    Conclusion::Nothing
                    | Conclusion::Failed { repeated: false, .. }
                    | Conclusion::Exists { .. }
                    | Conclusion::Gone { .. }
                    | Conclusion::Deleted,
                )
                | None => {}
            }
        }
        proven
    }

    /// Groups the proven nodes with all nodes that count for the brake's percentage.
    fn brake_input(&self, proven: Vec<Arc<Node>>) -> BrakeInput {
        let present = self.present();
        let before = self.lifecycle.ledger().held();
        if before.is_empty() {
            return BrakeInput { proven, held: Vec::new(), present };
        }
        let nodes = self.lifecycle.mirrors.nodes.items();
        let lifeless: BTreeSet<Subject> = nodes
            .iter()
            .filter(|(_, node)| self.lifecycle.facts(node, |facts| plan::is_lifeless(node, facts)))
            .filter_map(|(_, node)| Subject::of(node))
            .collect();
        self.lifecycle.ledger().release(|subject| before.contains(subject) && !lifeless.contains(subject));
        let is_held = |node: &&Arc<Node>| {
            Subject::of(node).is_some_and(|subject| before.contains(&subject) && lifeless.contains(&subject))
        };
        let held = present.iter().filter(is_held).cloned().collect();
        BrakeInput { proven, held, present }
    }

    /// Returns the nodes that may be deleted now, and adds notices for the others.
    fn judge(&mut self, input: BrakeInput, notices: &mut Notices) -> Vec<Arc<Node>> {
        let n_nodes = input.present.len();
        let Judgement { going, held, verdict } = self.gate.judge(input, Instant::now());
        let limits = self.gate.limits();
        self.lifecycle.metrics.held(verdict, held.len());
        match verdict {
            Verdict::Go => {}
            Verdict::Later { .. } => held.iter().for_each(|node| notices.delayed(node, limits)),
            Verdict::Tripped { allowance } => {
                self.lifecycle.ledger().hold(held.iter().filter_map(|node| Subject::of(node)));
                for node in &held {
                    notices.held(node, held.len(), allowance, limits);
                }
                let window = limits.window;
                let tripped = Tripped { held: &held, n_nodes, allowance, window };
                notices.tripped(self.lifecycle.shards.regarding(), &tripped);
            }
        }
        going
    }

    /// Returns the nodes of this cloud in the shards of this replica, which are the base of the brake's percentage.
    fn present(&self) -> Vec<Arc<Node>> {
        let mut nodes = self.of_this_cloud();
        nodes.retain(|node| self.lifecycle.shards.has(&node.uid));
        nodes
    }

    fn of_this_cloud(&self) -> Vec<Arc<Node>> {
        let scheme = self.lifecycle.scheme.get();
        let Lifecycle { mirrors, .. } = &self.lifecycle;
        let is_ours =
            |node: &&Arc<Node>| plan::is_of(node, scheme.as_deref()) && mirrors.apart(node).is_none();
        mirrors.nodes.read(|nodes| nodes.values().filter(is_ours).cloned().collect())
    }

    async fn delete(&mut self, going: Vec<Arc<Node>>) {
        // The request that proved the absence has a trace of its own, to which this trace is linked.
        self.asked.iter().for_each(Origin::link);
        let Lifecycle { executor, shards, .. } = &self.lifecycle;
        let recorder = self.reporter.recorder();
        let delete = |node: Arc<Node>| async move {
            let ended = match shards.enter(&node.uid) {
                Ok(pass) => pass.run(executor.delete(&node, recorder)).await,
                Err(_another) => Ended::Stale,
            };
            (node, ended)
        };
        let mut deletions = stream::iter(going).map(delete).buffer_unordered(AT_ONCE);
        while let Some((node, ended)) = deletions.next().await {
            let now = Instant::now();
            self.lifecycle.metrics.ended(ended);
            if ended.may_have_gone() {
                self.gate.went(&node, now);
            }
            if let (Some(subject), Ended::Deleted) = (Subject::of(&node), ended) {
                self.lifecycle.ledger().deleted(&subject, now);
            }
        }
    }
}
