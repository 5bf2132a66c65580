//! The record of routes that belong to this cluster, for clouds that cannot store the owner. The record contains routes that were observed
//! to serve a node.
//!
//! That observation is the only proof of ownership and cannot be repeated once the node is gone, so it is stored. A route that never served
//! a node of this cluster is never recorded, whatever its fields are.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};

use super::claims::Claims;
use super::route::{Owner, Route};
use crate::config::ClusterCidrs;

/// The UID of the node that a route served last, by the vendor's route ID.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Record(BTreeMap<String, String>);

impl Record {
    pub(crate) fn node_of(&self, route: &Route) -> Option<&str> {
        let unmarked = route.owner == Owner::Unmanaged;
        self.0.get(&route.vendor_id).filter(|_| unmarked).map(String::as_str)
    }

    /// Returns the record updated from all routes: entries of deleted routes are dropped, and routes that serve a node are added.
    ///
    /// An ID consists only of destination and next hop, so a later route with the same destination and next hop must not inherit the entry.
    pub(crate) fn after(
        &self,
        routes: &[impl Borrow<Route>],
        claims: &Claims<'_>,
        cluster: &ClusterCidrs,
    ) -> Self {
        let mut after = BTreeMap::new();
        let near = |to| cluster.contain(to) || claims.wanted.contains_key(to);
        for route in routes.iter().map(Borrow::borrow).filter(|route: &&Route| near(&route.destination)) {
            if let Some(uid) = served(route, claims).or_else(|| self.node_of(route)) {
                after.insert(route.vendor_id.clone(), uid.to_owned());
            }
        }
        Self(after)
    }

    /// Drops the entries of deleted routes, and adds none.
    pub(crate) fn keep(&mut self, routes: &[impl Borrow<Route>]) {
        let there: BTreeSet<&str> = routes
            .iter()
            .map(Borrow::borrow)
            .filter(|route: &&Route| route.owner == Owner::Unmanaged)
            .map(|route| route.vendor_id.as_str())
            .collect();
        self.0.retain(|vendor_id, _| there.contains(vendor_id.as_str()));
    }

    /// Adds the entries of an earlier process. Entries of this process are newer and take precedence.
    pub(crate) fn recall(&mut self, earlier: &Self) {
        for (vendor_id, uid) in &earlier.0 {
            self.0.entry(vendor_id.clone()).or_insert_with(|| uid.clone());
        }
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(id, uid)| (id.as_str(), uid.as_str()))
    }

    /// Returns the changes to write to the stored record. `None`: the entry must be removed.
    pub(crate) fn changes_since<'a>(&'a self, stored: &'a Self) -> BTreeMap<&'a str, Option<&'a str>> {
        let goes = stored.0.keys().filter(|id| !self.0.contains_key(*id)).map(|id| (id.as_str(), None));
        let comes = self.0.iter().filter(|(id, uid)| stored.0.get(*id) != Some(*uid));
        goes.chain(comes.map(|(id, uid)| (id.as_str(), Some(uid.as_str())))).collect()
    }
}

impl FromIterator<(String, String)> for Record {
    fn from_iter<T: IntoIterator<Item = (String, String)>>(entries: T) -> Self {
        Self(entries.into_iter().collect())
    }
}

/// Returns the node that needs the destination and whose instance is the route's next hop. An address alone proves nothing, since addresses
/// are reused.
fn served<'a>(route: &Route, claims: &Claims<'a>) -> Option<&'a str> {
    let node = claims.wanted.get(&route.destination).filter(|_| route.owner == Owner::Unmanaged)?;
    let machine = route.next_hop.provider_id.as_ref()?;
    (node.provider_id.as_ref() == Some(machine)).then_some(node.uid.as_str())
}
