//! What Services share: the sets of targets, each computed once for all that select the same nodes, and what the adapter can do.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use controller_core::{
    Link,
    adapter::Adapter,
    mirror::{Change, ObjectName, cloud::LoadBalancers},
};
use tokio::{
    sync::watch,
    time::{Instant, sleep, sleep_until},
};
use tracing::{info, warn};

use super::{Item, Mirrors, RESYNC};
use crate::plan::{
    annotations::{node_selector, selector::Selector},
    features::{Features, name},
    requested_address::requested,
    service::{Role, Service, ServiceId},
    targets::{Node, Targets},
};

/// After the last change of a node nothing else has to come for so long.
const QUIET: Duration = Duration::from_millis(200);
/// But the first change never waits longer than this.
const PATIENCE: Duration = Duration::from_secs(1);
/// Between two questions to an adapter that does not say what it can do.
const ASK_AGAIN: Duration = Duration::from_secs(2);
/// Between two questions to an adapter whose load balancers cannot be watched.
const ASK_BESIDE: Duration = Duration::from_secs(10);

/// A set of targets, and since when it is these.
type Since = (Arc<Targets>, Instant);

/// What Services share.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    /// By what selects them; `None`: all nodes. Every operation is a single one: it is consistent whatever happened.
    targets: Mutex<BTreeMap<Option<Selector>, Since>>,
    /// What Services select that do not select all nodes, as they were looked at last.
    selectors: Mutex<BTreeMap<ServiceId, Selector>>,
    /// Services that ask for an address that a load balancer has lost, and did not ask for it again yet.
    freed: Mutex<BTreeSet<ServiceId>>,
    /// What changes of nodes said.
    census: Mutex<Census>,
    /// Whether it is known which nodes there are.
    computed: watch::Sender<bool>,
    /// `None`: not known yet.
    features: watch::Sender<Option<Arc<Features>>>,
}

/// How many nodes there are by the changes that were heard of, and how the last one went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Census {
    nodes: usize,
    /// The API server told of the node that went last. If not, a listing had it no more.
    told_of_last: bool,
}

impl Census {
    fn hear(&mut self, change: &Change<ObjectName, Node>) {
        self.nodes =
            (self.nodes + usize::from(change.old.is_none())).saturating_sub(change.new.is_none().into());
        if change.new.is_none() {
            self.told_of_last = change.told;
        }
    }

    /// Whether it is not known that there are no nodes, though none is listed: nobody told, or nobody has heard of all that went yet.
    fn doubts_that_none_is_left(self) -> bool {
        self.nodes > 0 || !self.told_of_last
    }
}

impl Shared {
    fn census(&self) -> MutexGuard<'_, Census> {
        self.census.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sets(&self) -> MutexGuard<'_, BTreeMap<Option<Selector>, Since>> {
        self.targets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn selectors(&self) -> MutexGuard<'_, BTreeMap<ServiceId, Selector>> {
        self.selectors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn freed(&self) -> MutexGuard<'_, BTreeSet<ServiceId>> {
        self.freed.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// Mirrors the load balancers of an adapter that has some. Of one that has none nothing is expected but the word, now and then,
    /// that this is still so.
    pub(super) async fn follow_balancers(&self, adapter: &Adapter) {
        loop {
            tokio::select! {
                () = self.cloud.follow_cloud(adapter, LoadBalancers, Item::from, |it| self.balancer_changed(&it)) => (),
                () = self.follow_features(adapter) => (),
                () = self.without_load_balancers(adapter) => (),
            }
            warn!(
                "The cloud adapter has no load balancers: Services of type LoadBalancer are left to others"
            );
            while self.has_load_balancers() == Some(false) {
                sleep(RESYNC).await;
                self.ask_features(adapter).await;
            }
        }
    }

    /// Waits until the adapter says that it has none. Such an adapter need not know the watch, so it is asked when that fails.
    async fn without_load_balancers(&self, adapter: &Adapter) {
        let without = |features: &Features| !features.has(name::LOAD_BALANCERS);
        let (mut links, mut known) = (self.cloud.links(), self.shared.features.subscribe());
        let asked = async {
            while links.wait_for(|link| matches!(link, Link::Down { .. })).await.is_ok() {
                let answer = adapter.get_info().await.map(|answer| Features::from(&answer));
                if let Some(features) = answer.ok().filter(without) {
                    self.know(features);
                    return;
                }
                sleep(ASK_BESIDE).await;
            }
        };
        let told = known.wait_for(|known| known.as_deref().is_some_and(without));
        tokio::select! {
            () = asked => (),
            // The sender lives in `self`: waiting cannot fail.
            _told = told => (),
        }
    }

    /// Asks the adapter what it can do: once its mirror is complete, and again on each new connection, since another version may
    /// be behind it.
    async fn follow_features(&self, adapter: &Adapter) {
        let (mut links, mut connections) = (self.cloud.links(), self.cloud.connections());
        self.cloud.synced().await;
        // The senders live in `self`: waiting fails only when nobody is left to care.
        while links.wait_for(Link::is_up).await.is_ok() {
            connections.mark_unchanged();
            self.ask_features(adapter).await;
            if connections.changed().await.is_err() {
                return;
            }
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

    /// The nodes that a Service's load balancer selects, and since when it is these.
    ///
    /// Noted is what is selected, which need not be what the Service says now: so the set goes on following the nodes.
    pub(crate) fn targets_of(&self, id: &ServiceId, selector: Option<&Selector>) -> (Arc<Targets>, Instant) {
        match selector {
            None => self.shared.selectors().remove(id),
            Some(selector) => self.shared.selectors().insert(id.clone(), selector.clone()),
        };
        self.targets(selector)
    }

    /// The nodes that are selected, and since when it is these. Computed for the first Service that selects so.
    pub(crate) fn targets(&self, selector: Option<&Selector>) -> (Arc<Targets>, Instant) {
        let compute = || (Arc::new(self.select(selector)), Instant::now());
        self.shared.sets().entry(selector.cloned()).or_insert_with(compute).clone()
    }

    /// The cloud shows that load balancers do not have these addresses any more: the Services that ask for one of them may get it now.
    pub(super) fn addresses_freed(&self, addresses: &BTreeSet<IpAddr>) {
        let defaults = &self.reading.defaults;
        let asks = |service: &Service| {
            service.role() == Role::Wanted
                && requested(service, defaults).iter().any(|address| addresses.contains(address))
        };
        let asking: Vec<ServiceId> = self.services.read(|services| {
            services.values().filter(|service| asks(service)).map(|service| service.id.clone()).collect()
        });
        self.shared.freed().extend(asking.iter().cloned());
        asking.into_iter().for_each(|id| self.queue.add(id));
    }

    /// Whether an address that the Service asks for has become free since this was asked last.
    pub(crate) fn address_was_freed(&self, id: &ServiceId) -> bool {
        self.shared.freed().remove(id)
    }

    /// A node is not what it was.
    pub(super) fn node_changed(&self, change: &Change<ObjectName, Node>) {
        self.shared.census().hear(change);
        self.nodes_changed.notify_one();
    }

    fn select(&self, selector: Option<&Selector>) -> Targets {
        self.nodes.read(|nodes| {
            let mut targets = Targets::of(nodes.values().map(AsRef::as_ref), selector);
            // What shall lead to no node needs no proof that they are gone.
            let empties = selector.is_some_and(Selector::is_nothing);
            targets.blind = !empties && nodes.is_empty() && self.shared.census().doubts_that_none_is_left();
            targets
        })
    }

    /// Sets that nobody selects any more are forgotten.
    fn compute_targets(&self) {
        let defaults = &self.reading.defaults;
        let mut selectors = self.services.read(|services| {
            let wanted = services.values().filter(|service| service.role() == Role::Wanted);
            wanted.map(|service| node_selector(service, defaults)).collect::<BTreeSet<_>>()
        });
        let mut noted = self.shared.selectors();
        noted.retain(|id, _selector| self.service(id).is_some());
        selectors.extend(noted.values().cloned().map(Some));
        drop(noted);
        self.shared.freed().retain(|id| self.service(id).is_some());
        selectors.insert(None);
        let computed = selectors.iter().map(|selector| self.select(selector.as_ref()));
        let changed = self.shared.replace(computed.collect());
        self.shared.computed.send_replace(true);
        if changed {
            let (all, _since) = self.targets(None);
            if all.blind {
                warn!("No node is listed at all: load balancers that have nodes keep them until one is");
            } else {
                info!(
                    nodes = all.len(),
                    withheld = all.withheld,
                    "Load balancers have these nodes behind them"
                );
            }
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
        self.know(Features::from(&answer));
    }

    fn know(&self, features: Features) {
        self.shared.features.send_replace(Some(Arc::new(features)));
        // Not only those that need another feature: whoever waits for the adapter need not wait for its backoff to end.
        self.wake_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A listing empties the mirror before anybody hears of the nodes that it has no more.
    #[test]
    fn no_node_is_believed_only_when_all_that_went_were_heard_of() {
        let node = || Some(Arc::new(Node::default()));
        let change = |old, new, told| Change { key: ObjectName::cluster("a"), old, new, told };
        let mut census = Census::default();
        let steps = [
            (change(None, node(), false), true),
            (change(node(), node(), true), true),
            (change(node(), None, true), false),
            (change(None, node(), true), true),
            (change(None, node(), true), true),
            (change(node(), None, false), true),
            (change(node(), None, false), true),
        ];
        assert!(census.doubts_that_none_is_left(), "at the start");
        for (at, (change, doubts)) in steps.iter().enumerate() {
            census.hear(change);
            assert_eq!(census.doubts_that_none_is_left(), *doubts, "{at}: {census:?}");
        }
    }
}
