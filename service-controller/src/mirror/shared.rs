//! What all Services share: the set of targets, computed once for all of them, and what the adapter can do.

use std::{sync::Arc, time::Duration};

use controller_core::{Link, adapter::Adapter};
use tokio::{
    sync::watch,
    time::{Instant, sleep, sleep_until},
};
use tracing::{info, warn};

use super::Mirrors;
use crate::plan::{features::Features, targets::Targets};

/// After the last change of a node nothing else has to come for so long.
const QUIET: Duration = Duration::from_millis(200);
/// But the first change never waits longer than this.
const PATIENCE: Duration = Duration::from_secs(1);
/// Between two questions to an adapter that does not say what it can do.
const ASK_AGAIN: Duration = Duration::from_secs(2);

/// What all Services share. `None`: not known yet.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    /// With the time at which it became these.
    targets: watch::Sender<Option<(Arc<Targets>, Instant)>>,
    features: watch::Sender<Option<Arc<Features>>>,
}

impl Shared {
    pub(super) fn targets(&self) -> (Arc<Targets>, Instant) {
        self.targets.borrow().clone().unwrap_or_else(|| (Arc::default(), Instant::now()))
    }

    pub(super) fn features(&self) -> Option<Arc<Features>> {
        self.features.borrow().clone()
    }

    pub(super) async fn targets_known(&self) {
        // The sender lives in `self`: waiting cannot fail.
        let _closed = self.targets.subscribe().wait_for(Option::is_some).await.is_err();
    }
}

impl Mirrors {
    /// Computes the targets when nodes changed, and wakes all Services if the set is another one.
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

    fn compute_targets(&self) {
        let targets = self.nodes.read(|nodes| Targets::of(nodes.values().map(AsRef::as_ref)));
        let (nodes, withheld) = (targets.len(), targets.withheld);
        let changed = self.shared.targets.send_if_modified(|current| {
            let same = current.as_ref().is_some_and(|(known, _)| **known == targets);
            if !same {
                *current = Some((Arc::new(targets), Instant::now()));
            }
            !same
        });
        if changed {
            info!(nodes, withheld, "Load balancers have these nodes behind them");
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
        self.shared.features.send_replace(Some(Arc::new(Features::of(&answer.capabilities))));
        // Not only those that need another feature: whoever waits for the adapter need not wait for its backoff to end.
        self.wake_all();
    }
}
