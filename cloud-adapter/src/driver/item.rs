//! The items of collections: instances, load balancers, routes.

use std::fmt;

use cloud_api_proto::v1alpha1::{Instance, LoadBalancer, LoadBalancerKey, Route};

use super::Cursor;
use crate::vendor::Family;

/// An object that a listing returns.
pub trait Item: Clone + PartialEq + fmt::Debug + Send + Sync + 'static {
    /// The name of the collection, as in `SnapshotStatus.collection`.
    const COLLECTION: &'static str;
    /// The family of the vendor calls that read the collection.
    const FAMILY: Family;

    /// Returns the key of the item in its collection and in the watch.
    fn key(&self) -> &str;

    /// Returns the cluster to which the item belongs. Empty: the item belongs to no cluster. The cluster and the key decide which watches
    /// include the item.
    fn cluster(&self) -> &str {
        ""
    }
}

impl Item for Instance {
    const COLLECTION: &'static str = "instances";
    const FAMILY: Family = Family::Compute;

    fn key(&self) -> &str {
        &self.provider_id
    }
}

impl Item for Route {
    const COLLECTION: &'static str = "routes";
    const FAMILY: Family = Family::Network;

    fn key(&self) -> &str {
        &self.vendor_id
    }

    fn cluster(&self) -> &str {
        self.key.as_ref().map_or("", |key| &key.cluster_id)
    }
}

impl<D: Clone + PartialEq + fmt::Debug + Send + Sync + 'static> Item for LoadBalancerRecord<D> {
    const COLLECTION: &'static str = "load-balancers";
    const FAMILY: Family = Family::LoadBalancer;

    fn key(&self) -> &str {
        &self.summary.vendor_id
    }

    fn cluster(&self) -> &str {
        self.summary.key.as_ref().filter(|_| !self.left).map_or("", |key| &key.cluster_id)
    }
}

/// A load balancer as listed. A shared load balancer has one record for each user. A further record describes the load balancer itself, and
/// belongs to its owner, if it has one.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadBalancerRecord<D> {
    /// The load balancer as the contract describes it. `key`, `owner` and `fence` come from the tags, and are unset without tags. If the
    /// tags contain only one part of the key, the other part is empty. The load balancer then has no owner, and only a Service whose key
    /// matches the remaining part may adopt it.
    ///
    /// The state `ABSENT` marks remains of a deleted load balancer, such as its address. A deletion removes the remains, and a create does
    /// not build on them.
    pub summary: LoadBalancer,
    /// The driver-specific details.
    pub detail: D,
    /// Whether the owner has released the load balancer while other users still share it. A released load balancer does not block requests
    /// of its owner, and a deletion for the owner ignores it. When the owner needs a load balancer again, the owner takes back the released
    /// load balancer.
    pub left: bool,
    /// The origin according to the tags.
    pub origin: Origin,
    /// The namespaces, according to a tag, whose Services may adopt the load balancer if it has no owner.
    pub adoptable_by: Namespaces,
    /// The namespaces, according to a tag, whose Services may share the load balancer. The owner's namespace is not in the list.
    pub shared_with: Namespaces,
}

/// How a load balancer came into being.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Origin {
    /// The load balancer was created for its owner.
    #[default]
    Created,
    /// The load balancer existed before its owner, which adopted it by its ID. When the owner is deleted, the load balancer is released and
    /// not deleted.
    Adopted,
}

/// Names of namespaces in a tag; `*` means any namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Namespaces(Vec<String>);

impl Namespaces {
    /// Parses the values of tags: names separated by commas.
    pub fn read<'a>(values: impl IntoIterator<Item = &'a str>) -> Self {
        let names = values.into_iter().flat_map(|value| value.split(',')).map(str::trim);
        Self(names.filter(|name| !name.is_empty()).map(str::to_owned).collect())
    }

    pub(crate) fn include(&self, namespace: &str) -> bool {
        self.0.iter().any(|name| name == namespace || name == "*")
    }
}

impl<D> LoadBalancerRecord<D> {
    /// Creates the record of a load balancer that was created for its owner and is not shared.
    pub fn new(summary: LoadBalancer, detail: D) -> Self {
        let (adoptable_by, shared_with) = (Namespaces::default(), Namespaces::default());
        Self { summary, detail, left: false, origin: Origin::Created, adoptable_by, shared_with }
    }

    /// Returns whether the tags of the load balancer name this key.
    pub fn belongs_to(&self, key: &LoadBalancerKey) -> bool {
        self.summary.key.as_ref() == Some(key)
    }
}

/// A page of a listing.
#[derive(Clone, Debug, PartialEq)]
pub struct Page<T> {
    /// The items, in the vendor's order.
    pub items: Vec<T>,
    /// Cursor of the next page. `None`: this was the last page.
    pub next: Option<Cursor>,
    /// The total number of items, from vendors that page by offset and return this number. With it, the runtime detects pages that shift
    /// during the listing, and restarts the listing. `None`: the vendor's cursors are stable.
    pub total: Option<u64>,
}

/// The answer to a look-up by ID.
#[derive(Clone, Debug, PartialEq)]
pub enum Lookup<T> {
    /// The instance exists.
    Found(T),
    /// The vendor reported that this ID does not exist.
    Gone,
    /// The vendor's answer does not mention this ID.
    Unknown,
}
