//! Which routes are known to be ours where the cloud cannot remember whose a route is: those that were seen to serve a node.
//!
//! That is the only proof there is, and it is gone with the node: so it is kept. What was never seen to serve a node of ours is
//! never in it, whatever it looks like.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};

use super::claims::Claims;
use super::route::{Owner, Route};
use crate::config::ClusterCidrs;

/// By the vendor's ID of the route, the UID of the node that it served last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Record(BTreeMap<String, String>);

impl Record {
    /// The node that a route served, if it served one.
    pub(crate) fn node_of(&self, route: &Route) -> Option<&str> {
        let unmarked = route.owner == Owner::Unmanaged;
        self.0.get(&route.vendor_id).filter(|_| unmarked).map(String::as_str)
    }

    /// The record after a look at all routes: those that are gone are forgotten, and those that serve a node are noted.
    ///
    /// An ID says destination and next hop: should another route come to the same place later, it is another one.
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

    /// Forgets those that are gone, and notes nothing.
    pub(crate) fn keep(&mut self, routes: &[impl Borrow<Route>]) {
        let there: BTreeSet<&str> = routes
            .iter()
            .map(Borrow::borrow)
            .filter(|route: &&Route| route.owner == Owner::Unmanaged)
            .map(|route| route.vendor_id.as_str())
            .collect();
        self.0.retain(|vendor_id, _| there.contains(vendor_id.as_str()));
    }

    /// Takes in what an earlier process noted. What this one saw itself is newer.
    pub(crate) fn recall(&mut self, earlier: &Self) {
        for (vendor_id, uid) in &earlier.0 {
            self.0.entry(vendor_id.clone()).or_insert_with(|| uid.clone());
        }
    }

    /// All that is known.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(id, uid)| (id.as_str(), uid.as_str()))
    }

    /// What has to be written where `stored` is kept. `None`: the entry goes.
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

/// The node that asks for the route's destination and whose machine the route leads to. An address alone is no proof: addresses
/// are given to others.
fn served<'a>(route: &Route, claims: &Claims<'a>) -> Option<&'a str> {
    let node = claims.wanted.get(&route.destination).filter(|_| route.owner == Owner::Unmanaged)?;
    let machine = route.next_hop.provider_id.as_ref()?;
    (node.provider_id.as_ref() == Some(machine)).then_some(node.uid.as_str())
}
