//! Which orphans a person has released: one ConfigMap in the namespace of this process, that of the pod or of the kubeconfig.
//!
//! Who may write it may have load balancers removed that no Service wants, and no others. It need not be there, nor the right to read it:
//! then nothing is released.

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

/// The ConfigMap: a key is the UID that a Service had, its value the `NAMESPACE/NAME` that it had.
pub(crate) const RELEASES: &str = "cloud-controllers-orphans";

/// What the ConfigMap said last.
pub(super) type Released = Arc<watch::Sender<Releases>>;

impl Mirrors {
    /// What a person has said of the load balancer that was made for this Service.
    pub(crate) fn release(&self, id: &ServiceId) -> Release {
        self.released.borrow().of(id)
    }

    /// Load balancers that no Service here has, by whose they were.
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

    /// Never ends; drop it to stop.
    pub(super) async fn follow_releases(&self, client: &Client) {
        let look =
            |found: Option<ConfigMap>| self.releases_are(found.and_then(|map| map.data).unwrap_or_default());
        follow_one(Api::default_namespaced(client.clone()), RELEASES, look).await;
    }

    /// Looks at those of which something else is said now.
    fn releases_are(&self, data: BTreeMap<String, String>) {
        if data.len() > MOST_RELEASES {
            warn!(
                config_map = RELEASES,
                keys = data.len(),
                read = MOST_RELEASES,
                "Has more keys than are read"
            );
        }
        let now = Releases::read(data);
        let before = self.released.send_replace(now.clone());
        let differs = |item: &&Arc<Item>| !now.agrees(&before, &item.owner.uid);
        let changed: Vec<_> = self.cloud.read(|items| items.values().filter(differs).cloned().collect());
        changed.iter().for_each(|item| self.queue.add(self.owner(item)));
    }
}
