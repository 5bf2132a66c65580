//! State that Services share: the adapter's capabilities and the node sets. Each node set is computed once for all Services with the same
//! selector.

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
    selector::Selector,
};
use tokio::{
    sync::watch,
    time::{Instant, sleep, sleep_until},
};
use tracing::{info, warn};

use super::{Item, Mirrors, RESYNC};
use crate::plan::{
    annotations::node_selector,
    features::{Features, name},
    requested_address::requested,
    service::{Role, Service, ServiceId},
    targets::{Node, Targets},
};

/// Time between the last change of nodes and the computation of the sets.
const DEBOUNCE: Duration = Duration::from_millis(200);
/// Maximum time between the first change of nodes and the computation of the sets.
const MAX_DEBOUNCE: Duration = Duration::from_secs(1);
/// Delay between calls to an adapter that does not return its capabilities.
const CAPABILITIES_RETRY: Duration = Duration::from_secs(2);
/// Delay between calls to an adapter whose load balancers cannot be watched.
const UNWATCHABLE_POLL_INTERVAL: Duration = Duration::from_secs(10);

type Since = (Arc<Targets>, Instant);

#[derive(Debug, Default)]
pub(crate) struct Shared {
    /// Node sets by selector; `None`: the set of all nodes. Each operation is atomic, so a poisoned lock leaves the map consistent.
    targets: Mutex<BTreeMap<Option<Selector>, Since>>,
    /// The node selectors in force. Services that select all nodes have no entry.
    selectors: Mutex<BTreeMap<ServiceId, Selector>>,
    /// Services that request an address which a load balancer has released, and that were not reconciled since then.
    freed: Mutex<BTreeSet<ServiceId>>,
    /// Node count according to the watch events.
    census: Mutex<Census>,
    /// Whether the nodes are listed.
    computed: watch::Sender<bool>,
    /// Capabilities of the adapter. `None`: not known yet.
    features: watch::Sender<Option<Arc<Features>>>,
}

/// The number of nodes according to the watch events, and how the last node disappeared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Census {
    nodes: usize,
    /// Whether a watch event reported the removal of the last node. Otherwise the node was missing in a new listing.
    last_deletion_observed: bool,
}

impl Census {
    fn hear(&mut self, change: &Change<ObjectName, Node>) {
        self.nodes =
            (self.nodes + usize::from(change.old.is_none())).saturating_sub(change.new.is_none().into());
        if change.new.is_none() {
            self.last_deletion_observed = change.reported;
        }
    }

    /// Whether an empty node list must not be trusted. That is so if no watch event reported the deletion of the last node, or if some
    /// removals are not processed yet.
    fn doubts_that_none_is_left(self) -> bool {
        self.nodes > 0 || !self.last_deletion_observed
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

    /// Replaces the sets and returns whether any of them changed. An unchanged set keeps its time of last change.
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
        // `self` owns the sender, so waiting cannot fail.
        let _closed = self.computed.subscribe().wait_for(|computed| *computed).await.is_err();
    }
}

impl Mirrors {
    /// Computes the sets after changes of nodes, and requeues all Services if any set changed.
    ///
    /// If a hundred nodes join within a second, the cost is one computation and one ensure per Service, not a hundred.
    pub(super) async fn follow_targets(&self) {
        self.nodes.synced().await;
        loop {
            self.compute_targets();
            self.nodes_changed.notified().await;
            self.until_quiet().await;
        }
    }

    /// Watches the load balancers of an adapter that supports them. For other adapters, only checks the capabilities at intervals.
    pub(super) async fn follow_balancers(&self, adapter: &Adapter) {
        loop {
            tokio::select! {
                () = self.cloud.follow_cloud(adapter, LoadBalancers, Item::from, |it| self.balancer_changed(&it)) => (),
                () = self.follow_features(adapter) => (),
                () = self.without_load_balancers(adapter) => (),
            }
            warn!(
                "The cloud adapter does not support load balancers; Services of type LoadBalancer are not managed"
            );
            while self.has_load_balancers() == Some(false) {
                sleep(RESYNC).await;
                self.ask_features(adapter).await;
            }
        }
    }

    /// Waits until the adapter reports that it does not support load balancers. Such an adapter may also lack the watch, so a failed watch
    /// leads to a request for the capabilities.
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
                sleep(UNWATCHABLE_POLL_INTERVAL).await;
            }
        };
        let became_known = known.wait_for(|known| known.as_deref().is_some_and(without));
        tokio::select! {
            () = asked => (),
            // `self` owns the sender, so waiting cannot fail.
            _known = became_known => (),
        }
    }

    /// Requests the adapter's capabilities when the cache of load balancers is synced, and on each new connection, because the adapter may
    /// have been updated.
    async fn follow_features(&self, adapter: &Adapter) {
        let (mut links, mut connections) = (self.cloud.links(), self.cloud.connections());
        self.cloud.synced().await;
        // `self` owns the senders, so waiting fails only when the process ends.
        while links.wait_for(Link::is_up).await.is_ok() {
            connections.mark_unchanged();
            self.ask_features(adapter).await;
            if connections.changed().await.is_err() {
                return;
            }
        }
    }

    async fn until_quiet(&self) {
        let latest = Instant::now() + MAX_DEBOUNCE;
        loop {
            let quiet = (Instant::now() + DEBOUNCE).min(latest);
            tokio::select! {
                biased;
                () = sleep_until(quiet) => return,
                () = self.nodes_changed.notified() => (),
            }
        }
    }

    /// Returns the nodes that a Service's load balancer selects, and the time at which that set last changed.
    ///
    /// Records the selector in force, so that its node set is kept up to date. The selector in force may differ from the selector in the
    /// Service.
    pub(crate) fn targets_of(&self, id: &ServiceId, selector: Option<&Selector>) -> (Arc<Targets>, Instant) {
        match selector {
            None => self.shared.selectors().remove(id),
            Some(selector) => self.shared.selectors().insert(id.clone(), selector.clone()),
        };
        self.targets(selector)
    }

    /// Returns the nodes that a selector matches, and the time at which that set last changed. The set is computed on first use.
    pub(crate) fn targets(&self, selector: Option<&Selector>) -> (Arc<Targets>, Instant) {
        let compute = || (Arc::new(self.select(selector)), Instant::now());
        self.shared.sets().entry(selector.cloned()).or_insert_with(compute).clone()
    }

    /// Requeues the Services that request one of these addresses, because load balancers have released the addresses.
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

    /// Whether an address that the Service requests was released since the last call of this function.
    pub(crate) fn address_was_freed(&self, id: &ServiceId) -> bool {
        self.shared.freed().remove(id)
    }

    pub(super) fn node_changed(&self, change: &Change<ObjectName, Node>) {
        self.shared.census().hear(change);
        self.nodes_changed.notify_one();
    }

    fn select(&self, selector: Option<&Selector>) -> Targets {
        self.nodes.read(|nodes| {
            let mut targets = Targets::of(nodes.values().map(AsRef::as_ref), selector);
            // A selector that matches no node by design needs no proof that the nodes are gone.
            let empties = selector.is_some_and(Selector::is_nothing);
            targets.blind = !empties && nodes.is_empty() && self.shared.census().doubts_that_none_is_left();
            targets
        })
    }

    /// Computes all sets in use, and drops the other sets.
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
                warn!(
                    "The node list is empty although no node deletion was observed; load balancers \
                     keep their backends"
                );
            } else {
                info!(nodes = all.len(), withheld = all.withheld, "Computed the nodes behind load balancers");
            }
            self.wake_all();
        }
    }

    async fn ask_features(&self, adapter: &Adapter) {
        let answer = loop {
            match adapter.get_info().await {
                Ok(answer) => break answer,
                Err(error) => warn!(%error, "Cannot get the capabilities of the cloud adapter; retrying"),
            }
            sleep(CAPABILITIES_RETRY).await;
        };
        let (name, version) = (&answer.adapter_name, &answer.adapter_version);
        info!(adapter = %name, %version, "Received the capabilities of the cloud adapter");
        self.know(Features::from(&answer));
    }

    fn know(&self, features: Features) {
        self.shared.features.send_replace(Some(Arc::new(features)));
        // All Services are requeued, even those that need no new capability. Otherwise, a Service that waits for the adapter would wait
        // until its backoff ends.
        self.wake_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A new listing removes the nodes from the cache before the controller processes the removals.
    // Behaviour: SN7
    #[test]
    fn empty_node_list_is_trusted_only_after_observed_deletions() {
        let node = || Some(Arc::new(Node::default()));
        let change = |old, new, reported| Change { key: ObjectName::cluster("a"), old, new, reported };
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
