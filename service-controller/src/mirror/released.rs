//! The orphans that users released in a ConfigMap. The ConfigMap is in the namespace of this process: the namespace of the pod or of the
//! kubeconfig.
//!
//! A client that may write the ConfigMap can delete only load balancers that no Service uses. If the ConfigMap does not exist or the
//! controller may not read it, no orphan is released.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use controller_core::mirror::one::follow_one;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use tokio::sync::watch;
use tracing::warn;

use super::{Item, Mirrors};
use crate::plan::{
    left_over::{MOST_RELEASES, Release, Releases},
    service::ServiceId,
};

/// Name of the ConfigMap. Each key is the UID of a former Service; the value is the `NAMESPACE/NAME` of that Service.
pub(crate) const RELEASES: &str = "cloud-controllers-orphans";

pub(super) type Released = Arc<watch::Sender<Releases>>;

impl Mirrors {
    /// Returns whether a user released the load balancer that was created for this Service, and whether the released name is right.
    pub(crate) fn release(&self, id: &ServiceId) -> Release {
        self.released.borrow().of(id)
    }

    /// Load balancers whose Service is not in the cache, by former owner.
    pub(crate) fn without_service(&self) -> Vec<(ServiceId, Vec<String>)> {
        if !self.services.is_synced() {
            return Vec::new();
        }
        let there =
            self.services.read(|all| all.values().map(|it| it.id.uid.clone()).collect::<BTreeSet<_>>());
        let mut orphans = BTreeMap::<ServiceId, Vec<String>>::new();
        self.cloud.read(|items| {
            for item in items.values().filter(|item| !there.contains(&item.owner.uid)) {
                orphans.entry(item.owner.clone()).or_default().push(item.balancer.vendor_id.clone());
            }
        });
        orphans.into_iter().collect()
    }

    /// Watches the ConfigMap. Never returns; drop the future to stop.
    pub(super) async fn follow_releases(&self, client: &Client) {
        let look =
            |found: Option<ConfigMap>| self.releases_are(found.and_then(|map| map.data).unwrap_or_default());
        follow_one(Api::default_namespaced(client.clone()), RELEASES, look).await;
    }

    fn releases_are(&self, data: BTreeMap<String, String>) {
        if data.len() > MOST_RELEASES {
            warn!(
                config_map = RELEASES,
                keys = data.len(),
                read = MOST_RELEASES,
                "The ConfigMap with permitted deletions has more keys than the controller reads; ignoring the others"
            );
        }
        let now = Releases::read(data);
        let before = self.released.send_replace(now.clone());
        let differs = |item: &&Arc<Item>| !now.agrees(&before, &item.owner.uid);
        let changed: Vec<_> = self.cloud.read(|items| items.values().filter(differs).cloned().collect());
        changed.iter().for_each(|item| self.queue.add(self.owner(item)));
    }
}
