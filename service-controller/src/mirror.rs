//! Room 1: what is kept of both sides, and which change wakes which Service.
//!
//! Kept are Services that are or were ours, nodes as far as they are targets, and the load balancers of this cluster. What
//! Services share, the sets of targets and what the adapter can do, is kept here too; a change of either wakes all of them.

pub(crate) mod kubernetes;
pub(crate) mod released;
mod shared;

use std::{collections::BTreeSet, net::IpAddr, sync::Arc, time::Duration};

use cloud_api_proto::v1alpha1::LoadBalancer;
use controller_core::{
    Clock, Link,
    adapter::Adapter,
    mirror::{Change, Mirror, ObjectName, kubernetes::Listing},
    node::LeanNode,
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

/// As often as a lasting difference between mirror and adapter is asked about again.
const RESYNC: Duration = crate::plan::memory::LAG;

/// How soon it is noticed that nothing is left to remove.
const LOOK_EACH: Duration = Duration::from_secs(1);

/// How Services are read: what stands in the flags.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reading {
    /// What the cluster says of every Service that says nothing itself.
    pub(crate) defaults: Defaults,
    /// Whose annotations are understood beside ours.
    pub(crate) compat: Option<Compat>,
    /// Which Services are ours.
    pub(crate) classes: Classes,
    /// Whether they are read as if none of them wanted a load balancer: all that there are go.
    pub(crate) none_wanted: bool,
}

impl Reading {
    /// Whether what stands under this manager's name on a Service was written for one that is ours.
    pub(crate) fn writes_as(&self, manager: &str) -> bool {
        let taken_over = self.compat.filter(|_| self.classes.unclassed).map(Compat::manager);
        self.classes.write_as(manager) || taken_over == Some(manager)
    }
}

/// A load balancer, and whose it says it is.
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

/// How many load balancers this cluster has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Balance {
    pub(crate) all: usize,
    /// That no Service wants.
    pub(crate) orphans: usize,
}

/// All that is known of both sides. Cloning gives another handle to the same mirrors.
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
    /// Empty mirrors that will wake keys of `queue`.
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

    /// Keeps all of it in step with both sides. Never ends; drop it to stop.
    pub(crate) async fn follow(&self, (client, listing): (&Client, Listing), adapter: &Adapter) {
        tokio::join!(
            self.services.follow_kubernetes(
                (Api::<KubeService>::all(client.clone()), listing),
                |object| of_interest(&object, &self.reading),
                |change| self.service_changed(&change),
            ),
            self.nodes.follow_kubernetes(
                (Api::<LeanNode>::all(client.clone()), listing),
                |LeanNode(object)| kubernetes::node(&object),
                |change| self.node_changed(&change),
            ),
            self.follow_balancers(adapter),
            self.follow_targets(),
            self.follow_releases(client),
            self.resync(),
        );
    }

    /// Waits until it is known which Services and which nodes there are: before that an empty list would be taken for the
    /// truth, and every load balancer would lose its backends.
    pub(crate) async fn listed(&self) {
        self.services.synced().await;
        self.shared.targets_known().await;
    }

    /// Waits until no Service of ours has a load balancer to lose.
    pub(crate) async fn nothing_held(&self) {
        self.services.synced().await;
        let held = |service: &Arc<Service>| service.role() == Role::Cleanup && service.class != Class::Lost;
        while self.services.read(|all| all.values().any(held)) {
            sleep(LOOK_EACH).await;
        }
    }

    /// The Service, unless it is gone, replaced by another of the same name, or none of our business.
    pub(crate) fn service(&self, id: &ServiceId) -> Option<Service> {
        let found = self.services.get(&ObjectName::namespaced(&id.namespace, &id.name))?;
        (found.id.uid == id.uid).then(|| Service::clone(&found))
    }

    /// Whether Services get load balancers from this adapter at all. `None`: it was never reached.
    pub(crate) fn has_load_balancers(&self) -> Option<bool> {
        self.features().map(|features| features.has(name::LOAD_BALANCERS))
    }

    /// Readiness: nothing of an adapter without load balancers is waited for.
    ///
    /// # Errors
    /// The text for `/readyz`.
    pub(crate) fn cloud_readiness(&self) -> Result<(), String> {
        if self.has_load_balancers() == Some(false) { Ok(()) } else { self.cloud.readiness() }
    }

    /// What the cloud has under a Service's key. `None`: the adapter has not listed it yet.
    pub(crate) fn balancers(&self, uid: &str) -> Option<Vec<Balancer>> {
        self.cloud.is_synced().then(|| {
            self.cloud.read(|items| {
                let own = items.values().filter(|item| item.owner.uid == uid);
                own.map(|item| item.balancer.clone()).collect()
            })
        })
    }

    /// What the adapter can do. `None`: it was never reached.
    pub(crate) fn features(&self) -> Option<Arc<Features>> {
        self.shared.features()
    }

    /// How the connection to the adapter is.
    pub(crate) fn adapter_link(&self) -> Link {
        self.cloud.link()
    }

    /// How many load balancers there are whose owners are that.
    pub(crate) fn n_balancers(&self, of: impl Fn(&str) -> bool) -> usize {
        self.cloud.read(|items| items.values().filter(|item| of(&item.owner.uid)).count())
    }

    /// How many load balancers of this cluster there are, and how many of them no Service wants.
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

    /// Services that would get a load balancer if the adapter had any.
    pub(crate) fn elsewhere(&self) -> usize {
        if self.has_load_balancers() != Some(false) {
            return 0;
        }
        self.services.read(|services| services.values().filter(|it| it.role() == Role::Wanted).count())
    }

    /// Looks at every Service now and then, so that no difference stays only because nobody was woken.
    ///
    /// Cost: no call at all while nothing differs.
    async fn resync(&self) {
        loop {
            sleep(RESYNC).await;
            self.wake_all();
        }
    }

    /// All Services, and all that load balancers were made for: some are in shards that were another's.
    pub(crate) fn look_at_all(&self) {
        self.wake_all();
        let items = self.cloud.items();
        items.iter().for_each(|(_, item)| self.queue.add_with_all(self.owner(item)));
    }

    /// Wakes every Service that is ours. Whom a user changes meanwhile comes before them.
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

    /// Whose an item is: the UID decides, the names in the cloud are for people and may be cut short.
    fn owner(&self, item: &Item) -> ServiceId {
        let uid = &item.owner.uid;
        let found =
            self.services.read(|all| all.values().find(|it| it.id.uid == *uid).map(|it| it.id.clone()));
        found.unwrap_or_else(|| item.owner.clone())
    }
}

/// The addresses that a load balancer has no more.
fn freed(change: &Change<String, Item>) -> BTreeSet<IpAddr> {
    let addresses = |item: &Option<Arc<Item>>| -> BTreeSet<IpAddr> {
        let ingress = item.iter().flat_map(|item| &item.balancer.ingress);
        ingress.filter_map(|it| it.ip.as_deref()?.parse().ok()).collect()
    };
    addresses(&change.old).difference(&addresses(&change.new)).copied().collect()
}

/// Whether nothing has come but our finalizer, to a Service that shall have it. Whoever put it there is at work, or waits for a good
/// reason before the next try.
fn is_echo(change: &Change<ObjectName, Service>) -> bool {
    let (Some(old), Some(new)) = (&change.old, &change.new) else { return false };
    let echo = Service { finalizer: true, version: new.version.clone(), ..Service::clone(old) };
    old.role() == Role::Wanted && !old.finalizer && echo == **new
}

/// Services that we have nothing to do with are not kept at all. Those of another's class are: something of ours may be left of them.
fn of_interest(object: &KubeService, reading: &Reading) -> Option<Service> {
    let of_another = |service: &Service| service.kind == Kind::LoadBalancer && service.class == Class::Others;
    kubernetes::service(object, reading)
        .filter(|service| service.role() != Role::Ignored || of_another(service))
}
