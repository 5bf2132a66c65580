//! The end of nodes: the shutdown taint of machines that are switched off, and the deletion of nodes whose machines are gone.
//!
//! Every few seconds all nodes that are not ready are looked at, which costs nothing: what the mirror of the cloud shows of their
//! machines is enough, but for those that it does not show. These the cloud is asked about, live and all in one call, twice, some
//! time apart. Only what it says both times to be gone, with evidence, is deleted, and only as many within a while as the brake
//! lets go.
//!
//! - [`absence`]: pure; what was heard about whom, and whether it is a proof.
//! - [`plan`]: pure; who gets or loses the taint, and who is asked about.
//! - [`gate`]: pure; who of those that are proven to be gone goes now.
//! - [`question`], [`execute`]: the calls to the cloud and to the API server.
//! - [`notices`]: what people read, told once and not in each pass.
//!
//! Taints and deletions have a loop each: a cloud that is slow to answer keeps no taint on a node that is ready again.

mod absence;
mod execute;
mod gate;
mod metrics;
mod notices;
mod plan;
mod question;
mod scheme;

#[cfg(test)]
pub(crate) use self::notices::examples;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use controller_core::{
    Clock,
    adapter::Adapter,
    brake::{Limits, Verdict},
    explain as told,
    start::{Holdings, Process, Shards, Share},
};
use futures::{StreamExt as _, stream};
use tokio::time::{Instant, sleep};
use traces::Origin;
use tracing::{Instrument as _, debug, warn};

use self::{
    absence::{Heard, Ledger, Shown, Subject},
    execute::{Ended, Executor},
    gate::{Crowd, Gate, Judgement},
    metrics::Metrics,
    notices::{Board, Notices},
    plan::{Facts, absence, taint},
    scheme::Scheme,
};
pub(crate) use self::{notices::GOES, plan::View};
use crate::{
    mirror::{Found, Mirrors},
    plan::{Instance, Node, Ready},
};

/// As in the classic cloud controller manager, which was several: this is who speaks of the end of nodes.
const COMPONENT: &str = "cloud-node-lifecycle-controller";
/// So many nodes are written at once: one for which the API server hangs keeps no other.
const AT_ONCE: usize = 10;
/// The brake's name among all.
const BRAKE: &str = "node deletions";
/// So many others are asked about along with one that the cloud does not show. One of them may end just then.
const WITNESSES: usize = 2;

/// The periods and limits, all of them flags.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// From the end of a pass to the begin of the next.
    pub(crate) period: Duration,
    /// Between the two looks that prove an absence, at least.
    pub(crate) confirm_after: Duration,
    /// A node that is not initialised yet is not deleted before it is so old.
    pub(crate) minimum_age: Duration,
    /// The brake's.
    pub(crate) limits: Limits,
}

/// Signs of life, told by the mirrors as they come: a look every few seconds would miss those that are over soon. Cloning gives another
/// handle.
#[derive(Clone, Debug)]
pub(crate) struct Signs(Arc<Mutex<Ledger>>);

impl Signs {
    pub(crate) fn new(confirm_after: Duration) -> Self {
        Self(Arc::new(Mutex::new(Ledger::new(confirm_after))))
    }

    /// A node is ready.
    pub(crate) fn of_node(&self, uid: &str) {
        self.ledger().forget(|subject| subject.uid == uid);
    }

    /// The cloud lists a machine that does not end.
    pub(crate) fn of_machine(&self, provider_id: &str) {
        self.ledger().forget(|subject| subject.provider_id == provider_id);
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Which nodes are not as they should be, for people who ask.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    /// Those that may have to go, and why they do not.
    pub(crate) ends: told::Ledger,
    /// Those whose taint would be changed, where nothing is.
    pub(crate) taints: told::Ledger,
}

/// Starts the loops.
pub(crate) fn start(
    process: &mut Process,
    mirrors: &Mirrors,
    signs: &Signs,
    (settings, told): (Settings, Told),
) {
    let lifecycle = Lifecycle {
        mirrors: mirrors.clone(),
        adapter: process.adapter.clone(),
        executor: Executor::new(process),
        metrics: Metrics::register(process),
        scheme: Scheme::default(),
        signs: signs.clone(),
        shards: process.shards.clone(),
        dry_run: process.dry_run.then_some(told.taints),
        settings,
    };
    let (this, told) = (lifecycle.clone(), told.ends);
    process.background("provider ID scheme", async move {
        this.scheme.follow(&this.mirrors, &this.adapter).await;
    });
    let this = lifecycle.clone();
    process.background("shutdown taints", async move {
        loop {
            this.taint_all().await;
            sleep(this.settings.period).await;
        }
    });
    let board = Board::new(process.recorder.as_component(COMPONENT));
    let (clock, brakes) = (process.clock, process.explain.brakes());
    process.background("node deletions", async move {
        let gate = Gate::new(settings.limits, Instant::now());
        let holdings = Holdings::default();
        let mut deletions = Deletions { lifecycle, gate, holdings, board, clock, asked: None, told, brakes };
        loop {
            // Who has no shard for a moment need not have lost any: what is known stays.
            if deletions.lifecycle.shards.held() > 0 {
                deletions.begin();
                deletions.pass().await;
            } else {
                deletions.lifecycle.metrics.held(Verdict::Go, 0);
                deletions.told.replace(BTreeMap::new(), |_| true);
            }
            sleep(settings.period).await;
        }
    });
}

/// What both loops look at.
#[derive(Clone)]
struct Lifecycle {
    mirrors: Mirrors,
    adapter: Adapter,
    executor: Executor,
    metrics: Metrics,
    scheme: Scheme,
    /// And with it what was heard.
    signs: Signs,
    /// Whose nodes are of no concern here but as mirrors show them.
    shards: Shards,
    /// Where stands what would be written. `None`: it is written.
    dry_run: Option<told::Ledger>,
    settings: Settings,
}

impl Lifecycle {
    async fn taint_all(&self) {
        let nodes = self.mirrors.nodes.items();
        let ours = nodes.into_iter().filter(|(_, node)| self.shards.has(&node.uid));
        let changes = ours.filter_map(|(_, node)| {
            let change = self.facts_for_the_taint(&node, |facts| taint(&node, facts))?;
            Some((node, change))
        });
        let write = |(node, change): (Arc<Node>, plan::Change)| async move {
            let Ok(turn) = self.shards.enter(&node.uid) else { return };
            if let Err(error) = turn.run(self.executor.taint(&node, change)).await {
                warn!(node = node.name, ?change, %error, "Cannot change the shutdown taint, tries again");
            }
        };
        let changes: Vec<_> = changes.collect();
        if let Some(would) = &self.dry_run {
            would.replace(
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

    /// What is known about a node's machine.
    fn facts<T>(&self, node: &Node, look: impl FnOnce(&Facts<'_>) -> T) -> T {
        let instance = node.provider_id.as_ref().and_then(|id| self.mirrors.instance(id));
        self.facts_of(node, instance.as_deref(), look)
    }

    /// The same, and of a node without a provider ID the only machine that is called like it: enough for a taint, which goes by itself,
    /// and never for an end.
    fn facts_for_the_taint<T>(&self, node: &Node, look: impl FnOnce(&Facts<'_>) -> T) -> T {
        if node.provider_id.is_some() || node.life.ready == Ready::True {
            return self.facts(node, look);
        }
        match self.mirrors.find(node) {
            Found::One(instance) => self.facts_of(node, Some(&*instance), look),
            Found::Nothing | Found::Many(_) => self.facts_of(node, None, look),
        }
    }

    fn facts_of<T>(&self, node: &Node, instance: Option<&Instance>, look: impl FnOnce(&Facts<'_>) -> T) -> T {
        let heard = Subject::of(node).and_then(|subject| self.ledger().heard(&subject).cloned());
        look(&Facts {
            cloud: self.mirrors.view_of_the_cloud(),
            instance,
            heard: heard.as_ref(),
            scheme: self.scheme.get().as_deref(),
        })
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.signs.ledger()
    }
}

/// A node that may have to go.
struct Candidate {
    node: Arc<Node>,
    shown: Shown,
}

/// The loop that deletes.
struct Deletions {
    lifecycle: Lifecycle,
    gate: Gate,
    /// For which the gate was made.
    holdings: Holdings,
    board: Board,
    clock: Clock,
    /// The trace of the last question.
    asked: Option<Origin>,
    /// Which nodes may have to go, and why they do not, for people who ask.
    told: told::Ledger,
    /// What the brake holds, for the same.
    brakes: told::Brakes,
}

impl Deletions {
    /// A replica that has come to a shard has not deleted anything there, but another one may have: the brake begins anew.
    fn begin(&mut self) {
        let Lifecycle { shards, settings, .. } = &self.lifecycle;
        let limits = settings.limits.of_share(shards.held(), shards.count());
        match self.holdings.look(shards) {
            Share::Same => (),
            Share::Other => self.gate.limit(limits),
            Share::Anew => self.gate = Gate::new(limits, Instant::now()),
        }
    }

    /// One look at all nodes: who is to be asked about, who is proven to be gone, and who of them goes.
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
        // Looked at anew: the answers may have taken their time.
        let candidates = self.candidates();
        let mut notices = Notices::default();
        let proven = self.proven(&candidates, &mut notices);
        let crowd = self.crowd(proven);
        let going = self.judge(crowd, &mut notices);
        self.brakes.holds(BRAKE, notices.tripped_words());
        let mut found = notices.findings(candidates.values().map(|candidate| &*candidate.node), &going);
        self.others(&mut notices);
        let shown = self.board.show(notices);
        notices::mark_shown(&mut found, &shown);
        let dry_run = self.lifecycle.dry_run.is_some();
        if dry_run {
            notices::rest(&mut found, &going);
        }
        self.told.replace(found, |_| true);
        if !going.is_empty() && !dry_run {
            let span =
                traces::child(traces::span!("delete", otel.name = "delete nodes", nodes = going.len()));
            self.delete(going).instrument(span).await;
        }
    }

    fn candidates(&self) -> BTreeMap<Subject, Candidate> {
        let (now, minimum_age) = (self.clock.now(), self.lifecycle.settings.minimum_age);
        let nodes = self.lifecycle.mirrors.nodes.items();
        let ours = nodes.into_iter().filter(|(_, node)| self.lifecycle.shards.has(&node.uid));
        let candidates = ours.filter_map(|(_, node)| {
            let shown = self.lifecycle.facts(&node, |facts| {
                let shown = if facts.instance.is_some() { Shown::Yes } else { Shown::No };
                absence(&node, facts, now, minimum_age).then_some(shown)
            })?;
            Some((Subject::of(&node)?, Candidate { node, shown }))
        });
        candidates.collect()
    }

    /// Nodes of other clouds, for which nothing is done here.
    fn others(&self, notices: &mut Notices) {
        let Lifecycle { mirrors, scheme, shards, .. } = &self.lifecycle;
        let Some(scheme) = scheme.get() else { return };
        let is_another = |node: &&Arc<Node>| plan::is_of_another(node, &scheme) && shards.has(&node.uid);
        let others: Vec<_> = mirrors.nodes.read(|nodes| nodes.values().filter(is_another).cloned().collect());
        others.iter().for_each(|node| notices.of_another_cloud(node, &scheme));
    }

    /// Machines of other nodes, which the cloud lists. An adapter that was just started, or was shown nothing for a moment, does not know
    /// of any that it is of this cluster, and so not whether it looks at the right place.
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
                debug!(?subject, ?answer, "The cloud was asked about a node that is not ready");
                ledger.hear(subject, &answer, asked, now);
            }
        }
    }

    /// The nodes that are proven to have no machine any more; about the others people hear why they stay, if it is worth it.
    fn proven(&self, candidates: &BTreeMap<Subject, Candidate>, notices: &mut Notices) -> Vec<Arc<Node>> {
        let (now, ledger) = (Instant::now(), self.lifecycle.ledger());
        let mut proven = Vec::new();
        for (subject, Candidate { node, .. }) in candidates {
            if ledger.is_proven(subject, now) {
                proven.push(Arc::clone(node));
                continue;
            }
            match ledger.heard(subject) {
                Some(Heard::NotVisible) => notices.not_visible(node),
                Some(Heard::Foreign) => notices.foreign(node),
                // Once is nobody's concern: a fail-over, or a moment of too many calls.
                Some(Heard::Failed { error, repeated: true }) => notices.failed(node, error),
                Some(
                    Heard::Nothing
                    | Heard::Failed { repeated: false, .. }
                    | Heard::Exists { .. }
                    | Heard::Gone { .. }
                    | Heard::Deleted,
                )
                | None => {}
            }
        }
        proven
    }

    /// Those that are proven, with all among whom they are judged.
    fn crowd(&self, proven: Vec<Arc<Node>>) -> Crowd {
        let present = self.present();
        let before = self.lifecycle.ledger().held();
        if before.is_empty() {
            return Crowd { proven, held: Vec::new(), present };
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
        Crowd { proven, held, present }
    }

    /// Those of them that go now; the others hear why they do not.
    fn judge(&mut self, crowd: Crowd, notices: &mut Notices) -> Vec<Arc<Node>> {
        let n_nodes = crowd.present.len();
        let Judgement { going, held, verdict } = self.gate.judge(crowd, Instant::now());
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
                notices.tripped(self.lifecycle.shards.regarding(), &held, (n_nodes, allowance), limits);
            }
        }
        going
    }

    /// The nodes of this cloud in our shards: others have no share in what may go.
    fn present(&self) -> Vec<Arc<Node>> {
        let mut nodes = self.of_this_cloud();
        nodes.retain(|node| self.lifecycle.shards.has(&node.uid));
        nodes
    }

    fn of_this_cloud(&self) -> Vec<Arc<Node>> {
        let scheme = self.lifecycle.scheme.get();
        let is_ours = |node: &&Arc<Node>| plan::is_of(node, scheme.as_deref());
        self.lifecycle.mirrors.nodes.read(|nodes| nodes.values().filter(is_ours).cloned().collect())
    }

    async fn delete(&mut self, going: Vec<Arc<Node>>) {
        // What the cloud said last is in a trace of its own.
        self.asked.iter().for_each(Origin::link);
        let Lifecycle { executor, shards, .. } = &self.lifecycle;
        let recorder = self.board.recorder();
        let delete = |node: Arc<Node>| async move {
            let ended = match shards.enter(&node.uid) {
                Ok(turn) => turn.run(executor.delete(&node, recorder)).await,
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
