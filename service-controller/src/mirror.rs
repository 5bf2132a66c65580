//! Caches Kubernetes objects and load balancers, and decides which change requeues which Service.
//!
//! The caches hold the Services that this controller manages or managed, the nodes, and the load balancers of this cluster. They also hold
//! the state that Services share: the node sets and the adapter's capabilities. A change of that state requeues all Services.

pub(crate) mod kubernetes;
pub(crate) mod released;
mod shared;

use std::{collections::BTreeSet, net::IpAddr, sync::Arc, time::Duration};

use cloud_api_proto::v1alpha1::LoadBalancer;
use controller_core::{
    Clock, Link,
    adapter::Adapter,
    config::Listing,
    mirror::{Change, Mirror, ObjectName},
    node::TrimmedNode,
    queue::Queue,
};
use k8s_openapi::api::core::v1::Service as KubeService;
use kube::{Api, Client};
use tokio::{sync::Notify, time::sleep};

use self::{released::Released, shared::Shared};
use crate::plan::{
    annotations::settings::Defaults,
    cloud::Balancer,
    compat::Compat,
    features::{Features, name},
    service::{Class, Classes, Kind, Role, Service, ServiceId},
    targets::Node,
};

/// Interval of the resync. A difference between the cache and the adapter's answer that lasts this long causes another call to the adapter.
const RESYNC: Duration = crate::plan::memory::LAG;

/// Interval at which the controller checks whether all load balancers are removed.
const CHECK_EVERY: Duration = Duration::from_secs(1);

/// How Services are interpreted, according to the flags.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reading {
    /// Cluster defaults for Services that do not set the annotation themselves.
    pub(crate) defaults: Defaults,
    /// The other controller whose annotations are honoured, too.
    pub(crate) compat: Option<Compat>,
    pub(crate) classes: Classes,
    /// Whether to treat all Services as if they needed no load balancer, so that all load balancers are deleted.
    pub(crate) none_wanted: bool,
}

impl Reading {
    /// Whether writes by this field manager count as writes of this controller.
    pub(crate) fn writes_as(&self, manager: &str) -> bool {
        let taken_over = self.compat.filter(|_| self.classes.unclassed).map(Compat::manager);
        self.classes.write_as(manager) || taken_over == Some(manager)
    }
}

/// A load balancer, and its owner according to its tags in the cloud.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Item {
    owner: ServiceId,
    balancer: Balancer,
}

impl From<LoadBalancer> for Item {
    fn from(item: LoadBalancer) -> Self {
        let owner = item.owner.clone().unwrap_or_default();
        let uid = item.key.as_ref().map_or(owner.uid, |key| key.owner_uid.clone());
        Self {
            balancer: Balancer::from(&item),
            owner: ServiceId { namespace: owner.namespace, name: owner.name, uid },
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Balance {
    pub(crate) all: usize,
    /// The load balancers that no Service uses.
    pub(crate) orphans: usize,
}

/// All caches. Clones share the content.
#[derive(Clone, Debug)]
pub(crate) struct Mirrors {
    pub(crate) services: Mirror<ObjectName, Service>,
    pub(crate) nodes: Mirror<ObjectName, Node>,
    pub(crate) cloud: Mirror<String, Item>,
    shared: Arc<Shared>,
    released: Released,
    pub(crate) reading: Arc<Reading>,
    nodes_changed: Arc<Notify>,
    queue: Queue<ServiceId>,
}

impl Mirrors {
    /// Returns empty caches that add keys to `queue`.
    pub(crate) fn new(clock: Clock, queue: Queue<ServiceId>, reading: Reading) -> Self {
        Self {
            services: Mirror::new("services", clock),
            nodes: Mirror::new("nodes", clock),
            cloud: Mirror::new("load-balancers", clock),
            shared: Arc::default(),
            released: Arc::default(),
            reading: Arc::new(reading),
            nodes_changed: Arc::default(),
            queue,
        }
    }

    /// Never returns; drop the future to stop.
    pub(crate) async fn follow(&self, client: &Client, listing: Listing, adapter: &Adapter) {
        tokio::join!(
            self.services.follow_kubernetes(
                Api::<KubeService>::all(client.clone()),
                listing,
                |object| of_interest(&object, &self.reading),
                |change| self.service_changed(&change),
            ),
            self.nodes.follow_kubernetes(
                Api::<TrimmedNode>::all(client.clone()),
                listing,
                |TrimmedNode(object)| kubernetes::node(&object),
                |change| self.node_changed(&change),
            ),
            self.follow_balancers(adapter),
            self.follow_targets(),
            self.follow_releases(client),
            self.resync(),
        );
    }

    /// Waits until Services and nodes are listed. Without that wait, an empty node list would remove the backends of every load balancer.
    pub(crate) async fn listed(&self) {
        self.services.synced().await;
        self.shared.targets_known().await;
    }

    /// Waits until no managed Service holds a load balancer that must be removed.
    pub(crate) async fn nothing_held(&self) {
        self.services.synced().await;
        let held = |service: &Arc<Service>| service.role() == Role::Cleanup && service.class != Class::Lost;
        while self.services.read(|all| all.values().any(held)) {
            sleep(CHECK_EVERY).await;
        }
    }

    /// Returns the Service. `None`: the Service is gone, was recreated with the same name, or is not managed by this controller.
    pub(crate) fn service(&self, id: &ServiceId) -> Option<Service> {
        let found = self.services.get(&ObjectName::namespaced(&id.namespace, &id.name))?;
        (found.id.uid == id.uid).then(|| Service::clone(&found))
    }

    /// Whether the adapter supports load balancers. `None`: the adapter was never reached.
    pub(crate) fn has_load_balancers(&self) -> Option<bool> {
        self.features().map(|features| features.has(name::LOAD_BALANCERS))
    }

    /// Whether the cache of load balancers is ready. If the adapter does not support load balancers, no listing is needed.
    pub(crate) fn cloud_readiness(&self) -> Result<(), String> {
        if self.has_load_balancers() == Some(false) { Ok(()) } else { self.cloud.readiness() }
    }

    /// Returns the load balancers whose owner tag contains this UID. `None`: the adapter has not listed the load balancers yet.
    pub(crate) fn balancers(&self, uid: &str) -> Option<Vec<Balancer>> {
        self.cloud.is_synced().then(|| {
            self.cloud.read(|items| {
                let own = items.values().filter(|item| item.owner.uid == uid);
                own.map(|item| item.balancer.clone()).collect()
            })
        })
    }

    /// The adapter's capabilities. `None`: the adapter was never reached.
    pub(crate) fn features(&self) -> Option<Arc<Features>> {
        self.shared.features()
    }

    pub(crate) fn adapter_link(&self) -> Link {
        self.cloud.link()
    }

    /// Number of load balancers whose owner's UID satisfies `of`.
    pub(crate) fn n_balancers(&self, of: impl Fn(&str) -> bool) -> usize {
        self.cloud.read(|items| items.values().filter(|item| of(&item.owner.uid)).count())
    }

    pub(crate) fn balance(&self) -> Balance {
        let items = self.cloud.items();
        let orphaned = |item: &Item| self.service(&self.owner(item)).is_none();
        let orphans = if self.services.is_synced() {
            items.iter().filter(|(_, item)| orphaned(item)).count()
        } else {
            0
        };
        Balance { all: items.len(), orphans }
    }

    /// Number of Services that need a load balancer although the adapter does not support them.
    pub(crate) fn elsewhere(&self) -> usize {
        if self.has_load_balancers() != Some(false) {
            return 0;
        }
        self.services.read(|services| services.values().filter(|it| it.role() == Role::Wanted).count())
    }

    /// Requeues every Service at intervals. A missed change is therefore noticed at the next resync at the latest.
    ///
    /// Cost: no call while the adapter's confirmation and the cache agree.
    async fn resync(&self) {
        loop {
            sleep(RESYNC).await;
            self.wake_all();
        }
    }

    /// Requeues all Services and the owners of all load balancers, because this replica acquired shards.
    pub(crate) fn requeue_all(&self) {
        self.wake_all();
        let items = self.cloud.items();
        items.iter().for_each(|(_, item)| self.queue.add_with_all(self.owner(item)));
    }

    /// Requeues every managed Service. Services that a user changed come first in the queue.
    fn wake_all(&self) {
        self.services
            .read(|services| services.values().for_each(|it| self.queue.add_with_all(it.id.clone())));
    }

    fn service_changed(&self, change: &Change<ObjectName, Service>) {
        if is_echo(change) {
            return;
        }
        let both = [&change.old, &change.new];
        both.into_iter().flatten().for_each(|service| self.queue.add(service.id.clone()));
    }

    fn balancer_changed(&self, change: &Change<String, Item>) {
        let both = [&change.old, &change.new];
        both.into_iter().flatten().for_each(|item| self.queue.add(self.owner(item)));
        let freed = freed(change);
        if !freed.is_empty() {
            self.addresses_freed(&freed);
        }
    }

    /// The owner of a load balancer. Only the UID decides, because names in tags may be truncated.
    fn owner(&self, item: &Item) -> ServiceId {
        let uid = &item.owner.uid;
        let found =
            self.services.read(|all| all.values().find(|it| it.id.uid == *uid).map(|it| it.id.clone()));
        found.unwrap_or_else(|| item.owner.clone())
    }
}

/// Addresses that a load balancer no longer has.
fn freed(change: &Change<String, Item>) -> BTreeSet<IpAddr> {
    let addresses = |item: &Option<Arc<Item>>| -> BTreeSet<IpAddr> {
        let ingress = item.iter().flat_map(|item| &item.balancer.ingress);
        ingress.filter_map(|it| it.ip.as_deref()?.parse().ok()).collect()
    };
    addresses(&change.old).difference(&addresses(&change.new)).copied().collect()
}

/// Whether this controller wrote the change. That is so if it set its finalizer on a Service that needs the finalizer, or wrote its
/// conditions, and nothing else changed. The worker that made the change is still active, or waits before its next try.
fn is_echo(change: &Change<ObjectName, Service>) -> bool {
    let (Some(old), Some(new)) = (&change.old, &change.new) else { return false };
    let (version, conditions) = (new.version.clone(), new.conditions.clone());
    let echo = Service { finalizer: new.finalizer, version, conditions, ..Service::clone(old) };
    let changed = old.conditions != new.conditions || old.finalizer != new.finalizer;
    old.role() == Role::Wanted && (new.finalizer || !old.finalizer) && changed && echo == **new
}

/// Drops Services that are not managed. Services of another controller's class are kept, because they may still have a load balancer of
/// this controller. Services from which this controller must remove conditions are kept, too.
fn of_interest(object: &KubeService, reading: &Reading) -> Option<Service> {
    let of_another = |service: &Service| service.kind == Kind::LoadBalancer && service.class == Class::Others;
    kubernetes::service(object, reading)
        .filter(|it| it.role() != Role::Ignored || of_another(it) || (it.conditions.are_ours && !it.deleting))
}
