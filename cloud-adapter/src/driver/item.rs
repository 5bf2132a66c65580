//! What collections hold: instances, load balancers, routes.

use std::fmt;

use cloud_api_proto::v1alpha1::{Instance, LoadBalancer, LoadBalancerKey, Route};

use super::Cursor;
use crate::vendor::Family;

/// An object of a listing.
pub trait Item: Clone + PartialEq + fmt::Debug + Send + Sync + 'static {
    /// The name of the collection, as in `SnapshotStatus.collection`.
    const COLLECTION: &'static str;
    /// Whose budget pays for reading it.
    const FAMILY: Family;

    /// Names the item in its collection, and in the watch.
    fn key(&self) -> &str;

    /// The cluster that it belongs to; empty if to none. Decides together with the key whose watches show it.
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

/// A load balancer as listed. One that is shared is a record for each that uses it, and one for itself, which is its owner's, if it has any.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadBalancerRecord<D> {
    /// What the contract says of it. `key`, `owner` and `fence` come from its tags and are unset where there are none. Where only one
    /// part of the key is left, the other is empty: such a load balancer is nobody's, and not everybody's either.
    ///
    /// In state `ABSENT` it is what is left of a load balancer that is gone, such as its address: a deletion removes it, and nothing is
    /// built from it.
    pub summary: LoadBalancer,
    /// What only the driver knows of it.
    pub detail: D,
    /// Its owner has done with it, and others share it still: it is in nobody's way, a deletion for its owner finds nothing, and its owner
    /// takes it back who wants one again.
    pub left: bool,
    /// Where it comes from, as its tags say.
    pub origin: Origin,
    /// The namespaces whose Services may take it over, if it has no owner, as a tag on it says.
    pub adoptable_by: Namespaces,
    /// The namespaces whose Services may share it beside those of its owner's namespace, as a tag on it says.
    pub shared_with: Namespaces,
}

/// Where a load balancer comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Origin {
    /// It was created for its owner.
    #[default]
    Created,
    /// It was there before its owner, which took it over by its ID: it is released with its owner, and not deleted.
    Adopted,
}

/// Names of namespaces on a tag; `*` is any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Namespaces(Vec<String>);

impl Namespaces {
    /// Reads the values of tags: names with commas between them.
    pub fn read<'a>(values: impl IntoIterator<Item = &'a str>) -> Self {
        let names = values.into_iter().flat_map(|value| value.split(',')).map(str::trim);
        Self(names.filter(|name| !name.is_empty()).map(str::to_owned).collect())
    }

    /// Whether the namespace is among them.
    pub(crate) fn include(&self, namespace: &str) -> bool {
        self.0.iter().any(|name| name == namespace || name == "*")
    }
}

impl<D> LoadBalancerRecord<D> {
    /// One that was created for its owner, which still has it for itself.
    pub fn new(summary: LoadBalancer, detail: D) -> Self {
        let (adoptable_by, shared_with) = (Namespaces::default(), Namespaces::default());
        Self { summary, detail, left: false, origin: Origin::Created, adoptable_by, shared_with }
    }

    /// Whether its tags name this key.
    pub fn belongs_to(&self, key: &LoadBalancerKey) -> bool {
        self.summary.key.as_ref() == Some(key)
    }
}

/// A page of a listing.
#[derive(Clone, Debug, PartialEq)]
pub struct Page<T> {
    /// The items, in the vendor's order.
    pub items: Vec<T>,
    /// Where the next page begins. `None`: this was the last.
    pub next: Option<Cursor>,
    /// How many items there are in all, from vendors that page by offset and say so: then pages that shift while they are read are
    /// noticed, and the listing begins again. `None`: the vendor's cursors are stable.
    pub total: Option<u64>,
}

/// The answer to a look-up by ID.
#[derive(Clone, Debug, PartialEq)]
pub enum Lookup<T> {
    /// It is there.
    Found(T),
    /// The vendor says, for this very ID, that there is none.
    Gone,
    /// The vendor did not say.
    Unknown,
}
