//! What Services share: the sets of targets, each computed once for all that select the same nodes, and what the adapter can do.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use controller_core::{Link, adapter::Adapter};
use tokio::{
    sync::watch,
    time::{Instant, sleep, sleep_until},
};
use tracing::{info, warn};

use super::Mirrors;
use crate::plan::{
    annotations::{node_selector, selector::Selector},
    features::Features,
    targets::Targets,
};

/// After the last change of a node nothing else has to come for so long.
const QUIET: Duration = Duration::from_millis(200);
/// But the first change never waits longer than this.
const PATIENCE: Duration = Duration::from_secs(1);
/// Between two questions to an adapter that does not say what it can do.
const ASK_AGAIN: Duration = Duration::from_secs(2);

/// A set of targets, and since when it is these.
type Since = (Arc<Targets>, Instant);

/// What Services share.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    /// By what selects them; `None`: all nodes. Every operation is a single one: it is consistent whatever happened.
    targets: Mutex<BTreeMap<Option<Selector>, Since>>,
    /// Whether it is known which nodes there are.
    computed: watch::Sender<bool>,
    /// `None`: not known yet.
    features: watch::Sender<Option<Arc<Features>>>,
}

impl Shared {
    fn sets(&self) -> MutexGuard<'_, BTreeMap<Option<Selector>, Since>> {
        self.targets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a set is another one now. One that stays keeps its time.
    fn replace(&self, computed: Vec<Targets>) -> bool {
        let mut sets = self.sets();
        let mut former = std::mem::take(&mut *sets);
        let mut changed = false;
        for targets in computed {
            let selector = targets.selector.clone();
            let stays = former.remove(&selector).filter(|(known, _)| **known == targets);
            changed |= stays.is_none();
            sets.insert(selector, stays.unwrap_or_else(|| (Arc::new(targets), Instant::now())));
        }
        changed
    }

    pub(super) fn features(&self) -> Option<Arc<Features>> {
        self.features.borrow().clone()
    }

    pub(super) async fn targets_known(&self) {
        // The sender lives in `self`: waiting cannot fail.
        let _closed = self.computed.subscribe().wait_for(|computed| *computed).await.is_err();
    }
}

impl Mirrors {
    /// Computes the targets when nodes changed, and wakes all Services if a set is another one.
    ///
    /// A hundred nodes that join within a second cost one set and one ensure per Service, not a hundred.
    pub(super) async fn follow_targets(&self) {
        self.nodes.synced().await;
        loop {
            self.compute_targets();
            self.nodes_changed.notified().await;
            self.until_quiet().await;
        }
    }

    /// Asks the adapter what it can do: once its mirror is complete, and again whenever it was away, since another version may
    /// be back.
    pub(super) async fn follow_features(&self, adapter: &Adapter) {
        let mut links = self.cloud.links();
        self.cloud.synced().await;
        // The sender lives in `self`: waiting fails only when nobody is left to care.
        while links.wait_for(Link::is_up).await.is_ok() {
            self.ask_features(adapter).await;
            let _away = links.wait_for(|link| !link.is_up()).await.is_ok();
        }
    }

    async fn until_quiet(&self) {
        let latest = Instant::now() + PATIENCE;
        loop {
            let quiet = (Instant::now() + QUIET).min(latest);
            tokio::select! {
                biased;
                () = sleep_until(quiet) => return,
                () = self.nodes_changed.notified() => (),
            }
        }
    }

    /// The nodes that are selected, and since when it is these. Computed for the first Service that selects so.
    pub(crate) fn targets(&self, selector: Option<&Selector>) -> (Arc<Targets>, Instant) {
        let compute = || (Arc::new(self.select(selector)), Instant::now());
        self.shared.sets().entry(selector.cloned()).or_insert_with(compute).clone()
    }

    fn select(&self, selector: Option<&Selector>) -> Targets {
        self.nodes.read(|nodes| Targets::of(nodes.values().map(AsRef::as_ref), selector))
    }

    /// Sets that nobody selects any more are forgotten.
    fn compute_targets(&self) {
        let mut selectors = self.services.read(|services| {
            services.values().map(|service| node_selector(service, &self.defaults)).collect::<BTreeSet<_>>()
        });
        selectors.insert(None);
        let computed = selectors.iter().map(|selector| self.select(selector.as_ref()));
        let changed = self.shared.replace(computed.collect());
        self.shared.computed.send_replace(true);
        if changed {
            let (all, _since) = self.targets(None);
            info!(nodes = all.len(), withheld = all.withheld, "Load balancers have these nodes behind them");
            self.wake_all();
        }
    }

    async fn ask_features(&self, adapter: &Adapter) {
        let answer = loop {
            match adapter.get_info().await {
                Ok(answer) => break answer,
                Err(error) => warn!(%error, "The adapter does not say what it can do, asks again"),
            }
            sleep(ASK_AGAIN).await;
        };
        let (name, version) = (&answer.adapter_name, &answer.adapter_version);
        info!(adapter = %name, %version, "Knows what the adapter can do");
        self.shared.features.send_replace(Some(Arc::new(Features::from(&answer))));
        // Not only those that need another feature: whoever waits for the adapter need not wait for its backoff to end.
        self.wake_all();
    }
}
