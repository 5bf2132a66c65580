//! Room 1: what is kept of both sides, and which change wakes which Service.
//!
//! Kept are Services that are or were ours, nodes as far as they are targets, and the load balancers of this cluster. What
//! Services share, the sets of targets and what the adapter can do, is kept here too; a change of either wakes all of them.

pub(crate) mod kubernetes;
mod shared;

use std::{sync::Arc, time::Duration};

use cloud_api_proto::v1alpha1::LoadBalancer;
use controller_core::{
    Clock, Link,
    adapter::Adapter,
    mirror::{Change, Mirror, ObjectName, cloud::LoadBalancers},
    queue::Queue,
};
use k8s_openapi::api::core::v1::{Node as KubeNode, Service as KubeService};
use kube::{Api, Client};
use tokio::{sync::Notify, time::sleep};

use self::shared::Shared;
use crate::plan::{
    annotations::settings::Defaults,
    cloud::Balancer,
    compat::Compat,
    features::Features,
    service::{Role, Service, ServiceId},
    targets::Node,
};

/// As often as a lasting difference between mirror and adapter is asked about again.
const RESYNC: Duration = crate::plan::memory::LAG;

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

/// All that is known of both sides. Cloning gives another handle to the same mirrors.
#[derive(Clone, Debug)]
pub(crate) struct Mirrors {
    pub(crate) services: Mirror<ObjectName, Service>,
    pub(crate) nodes: Mirror<ObjectName, Node>,
    pub(crate) cloud: Mirror<String, Item>,
    shared: Arc<Shared>,
    pub(crate) defaults: Arc<Defaults>,
    /// Whose annotations are understood beside ours.
    compat: Option<Compat>,
    nodes_changed: Arc<Notify>,
    queue: Queue<ServiceId>,
}

impl Mirrors {
    /// Empty mirrors that will wake keys of `queue`.
    pub(crate) fn new(
        clock: Clock,
        queue: Queue<ServiceId>,
        defaults: Defaults,
        compat: Option<Compat>,
    ) -> Self {
        Self {
            services: Mirror::new("services", clock),
            nodes: Mirror::new("nodes", clock),
            cloud: Mirror::new("load-balancers", clock),
            shared: Arc::default(),
            defaults: Arc::new(defaults),
            compat,
            nodes_changed: Arc::default(),
            queue,
        }
    }

    /// Keeps all of it in step with both sides. Never ends; drop it to stop.
    pub(crate) async fn follow(&self, client: &Client, adapter: &Adapter) {
        tokio::join!(
            self.services.follow_kubernetes(
                Api::<KubeService>::all(client.clone()),
                |object| ours(&object, self.compat),
                |change| self.service_changed(&change),
            ),
            self.nodes.follow_kubernetes(
                Api::<KubeNode>::all(client.clone()),
                |object| kubernetes::node(&object),
                |_change| self.nodes_changed.notify_one(),
            ),
            self.cloud
                .follow_cloud(adapter, LoadBalancers, Item::from, |change| self.balancer_changed(&change),),
            self.follow_targets(),
            self.follow_features(adapter),
            self.resync(),
        );
    }

    /// Waits until it is known which Services and which nodes there are: before that an empty list would be taken for the
    /// truth, and every load balancer would lose its backends.
    pub(crate) async fn listed(&self) {
        self.services.synced().await;
        self.shared.targets_known().await;
    }

    /// The Service, unless it is gone, replaced by another of the same name, or none of our business.
    pub(crate) fn service(&self, id: &ServiceId) -> Option<Service> {
        let found = self.services.get(&ObjectName::namespaced(&id.namespace, &id.name))?;
        (found.id.uid == id.uid).then(|| Service::clone(&found))
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

    /// Load balancers that nobody in this cluster wants.
    pub(crate) fn orphans(&self) -> usize {
        let owners = self.cloud.items();
        if !self.services.is_synced() {
            return 0;
        }
        owners.iter().filter(|(_, item)| self.service(&self.owner(item)).is_none()).count()
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

    /// Wakes every Service that is ours.
    fn wake_all(&self) {
        self.services.read(|services| services.values().for_each(|it| self.queue.add(it.id.clone())));
    }

    fn service_changed(&self, change: &Change<ObjectName, Service>) {
        let both = [&change.old, &change.new];
        both.into_iter().flatten().for_each(|service| self.queue.add(service.id.clone()));
    }

    fn balancer_changed(&self, change: &Change<String, Item>) {
        let both = [&change.old, &change.new];
        both.into_iter().flatten().for_each(|item| self.queue.add(self.owner(item)));
    }

    /// Whose an item is: the UID decides, the names in the cloud are for people and may be cut short.
    fn owner(&self, item: &Item) -> ServiceId {
        let uid = &item.owner.uid;
        let found =
            self.services.read(|all| all.values().find(|it| it.id.uid == *uid).map(|it| it.id.clone()));
        found.unwrap_or_else(|| item.owner.clone())
    }
}

/// Services that we have nothing to do with are not kept at all.
fn ours(object: &KubeService, compat: Option<Compat>) -> Option<Service> {
    kubernetes::service(object, compat).filter(|service| service.role() != Role::Ignored)
}
