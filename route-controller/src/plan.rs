//! Step 2: compares the routes that the nodes need with the cloud's routes. The code is pure: no I/O, no clock, no randomness.
//!
//! The plan ignores earlier attempts: `error::attempts` removes actions that are not due. The plan never removes two kinds of routes:
//! routes that neither have the owner tag nor are on record, and unneeded routes outside of the cluster's CIDRs.

pub(crate) mod claims;
pub(crate) mod condition;
pub(crate) mod node;
pub(crate) mod record;
pub(crate) mod refusal;
pub(crate) mod route;
#[cfg(test)]
pub(crate) mod tests;

use std::borrow::{Borrow, Cow};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use ipnet::IpNet;

use self::claims::{Claim, Claims, RouteState, by_age, claims};
use self::node::Node;
use self::record::Record;
use self::refusal::{Refusal, Why};
use self::route::{NextHop, Owner, Route, State};
use crate::config::ClusterCidrs;

/// The actions to execute, and the state of the routes of the claims that need no action.
///
/// Routes are created before unneeded ones are removed, so that a crash in between leaves too many routes, never too few.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) creations: Vec<Creation>,
    /// Routes that no node needs and that block no other route.
    pub(crate) removals: Vec<Removal>,
    pub(crate) refusals: Vec<Refusal>,
    /// Pod CIDRs outside of the cluster's CIDRs. Their routes are created, and stay when their nodes are deleted.
    pub(crate) outside: Vec<Refusal>,
    /// The state of the route of each claim that needs no action.
    pub(crate) route_states: BTreeMap<Claim, RouteState>,
    /// The UIDs of nodes to which routes of this cluster lead.
    pub(crate) reached: BTreeSet<String>,
    /// The UID of the node that a route serves if the route was created for another node, by the vendor's ID of the route.
    pub(crate) successors: BTreeMap<String, String>,
    /// Number of routes owned by this cluster.
    pub(crate) n_ours: usize,
    /// Routes of other owners that overlap the cluster's CIDRs or a pod CIDR.
    pub(crate) foreign: Vec<Foreign>,
    /// The record of untagged routes that belong to this cluster, updated in this pass.
    pub(crate) record: Record,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Creation {
    pub(crate) claim: Claim,
    pub(crate) node_name: String,
    pub(crate) via: NextHop,
    /// Routes of this cluster to the same destination that must be removed first.
    pub(crate) instead_of: Vec<Removal>,
}

/// A route that this cluster does not own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Foreign {
    pub(crate) vendor_id: String,
    pub(crate) to: IpNet,
    pub(crate) via: NextHop,
    pub(crate) owner: Owner,
}

/// Why a route of this cluster must be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Cause {
    /// Another route to the destination exists or is created, so packets are delivered in any case.
    Replaced,
    /// No node needs the route, and its instance is gone.
    LeadsNowhere,
    /// No node needs the route, according to the list of nodes.
    Unasked,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Removal {
    pub(crate) cause: Cause,
    pub(crate) vendor_id: String,
    pub(crate) to: IpNet,
    /// The node that the route was created for, according to the cloud, the instance that the route leads to, or the record.
    pub(crate) node_uid: Option<String>,
    /// The cached next hop of an untagged route. The adapter removes the route only if the route still has this next hop.
    pub(crate) via: Option<NextHop>,
}

/// Compares the routes that the nodes need with the cloud's routes. Cost: no vendor calls, O(n log n).
///
/// `record` contains the untagged routes known from earlier passes. `None` means that this cloud tags routes, so this cluster does not own
/// untagged routes.
pub(crate) fn plan(
    nodes: &[impl Borrow<Node>],
    routes: &[impl Borrow<Route>],
    cluster: &ClusterCidrs,
    record: Option<&Record>,
) -> Plan {
    let claims = claims(nodes, cluster);
    let record = record.map(|record| record.after(routes, &claims, cluster)).unwrap_or_default();
    let routes = || routes.iter().map(Borrow::borrow);
    let near =
        |route: &Route| cluster.contain(&route.destination) || claims.wanted.contains_key(&route.destination);
    let table = Table::new(nodes, routes().filter(|route| near(route)), &record);
    let (reached, n_ours) = (table.reached(), table.ours().count());
    let in_sight = |route: &&Route| cluster.overlap(&route.destination) || near(route);
    let foreign = foreign(routes().filter(in_sight), &record);
    let Claims { wanted, refusals, outside } = claims;
    let mut plan = Plan { refusals, outside, reached, n_ours, foreign, ..Plan::default() };
    for (to, node) in &wanted {
        if let Some(via) = node.next_hop(to) {
            plan.serve(node, *to, via, table.to(to));
        }
    }
    for (to, known) in &table.by_destination {
        if !wanted.contains_key(to) {
            plan.removals.extend(known.iter().filter(|known| known.ours).map(Known::unasked));
        }
    }
    plan.record = record;
    plan
}

/// Returns the routes that neither the cloud nor the record attributes to this cluster.
fn foreign<'a>(routes: impl Iterator<Item = &'a Route>, record: &Record) -> Vec<Foreign> {
    let theirs = routes.filter(|route| route.owner != Owner::Ours && record.node_of(route).is_none());
    let foreign = |route: &Route| Foreign {
        vendor_id: route.vendor_id.clone(),
        to: route.destination,
        via: route.next_hop.clone(),
        owner: route.owner,
    };
    theirs.map(foreign).collect()
}

/// The cloud's routes by destination: those inside of the cluster's CIDRs, and those to the pod CIDRs of nodes.
struct Table<'a> {
    by_destination: BTreeMap<IpNet, Vec<Known<'a>>>,
}

struct Known<'a> {
    route: &'a Route,
    /// The node that the route was created for, if that is known.
    holder: Option<&'a str>,
    /// The node that runs on the instance to which the route leads.
    machine: Option<&'a str>,
    /// Whether this cluster owns the route, according to the cloud or the record.
    ours: bool,
}

impl Plan {
    /// Keeps the part of the plan about shard keys for which `ours` is true. See [`Creation::shard_key`].
    pub(crate) fn of(mut self, ours: impl Fn(&str) -> bool) -> Self {
        self.creations.retain(|creation| ours(creation.shard_key()));
        self.removals.retain(|removal| ours(&removal.shard_key()));
        self.refusals.retain(|refusal| ours(&refusal.node_uid));
        self.outside.retain(|refusal| ours(&refusal.node_uid));
        self
    }

    pub(crate) const fn is_settled(&self) -> bool {
        self.creations.is_empty() && self.removals.is_empty()
    }

    /// Plans the actions for one destination, given all routes to it.
    fn serve(&mut self, node: &Node, to: IpNet, via: NextHop, known: &[Known<'_>]) {
        let claim = Claim { node_uid: node.uid.clone(), to };
        if let Some(good) = Known::that_serves(known, node, &via) {
            self.route_states.insert(claim, good.route_state());
            if good.holder.is_some_and(|holder| holder != node.uid) {
                self.successors.insert(good.route.vendor_id.clone(), node.uid.clone());
            }
            // Only routes that were created for other nodes are removed. A second route for the same node stays, because both routes have
            // the same key, and a removal by key would be ambiguous.
            let others = known.iter().filter(|other| other.ours && other.holder != good.holder);
            self.removals.extend(others.map(Known::replaced));
            return;
        }
        // The route is right, but it is neither tagged nor on record. The node uses the route, which stays when the node is deleted.
        let unmanaged = |known: &&Known<'_>| known.route.owner == Owner::Unmanaged && known.leads_to(&via);
        if let Some(good) = known.iter().find(unmanaged) {
            self.route_states.insert(claim, good.route_state());
            return;
        }
        if let Some(foreign) = known.iter().find(|known| !known.ours) {
            self.refusals.push(Refusal::new(node, &to, foreign.in_the_way()));
            return;
        }
        let blocks = |known: &&Known<'_>| !known.is_replaced_by(&claim);
        let instead_of = known.iter().filter(blocks).map(Known::replaced).collect();
        self.creations.push(Creation { claim, node_name: node.name.clone(), via, instead_of });
    }
}

impl Creation {
    /// Returns the UID of the claim's node. The replica that holds the shard of this UID creates the route and removes conflicting routes.
    pub(crate) fn shard_key(&self) -> &str {
        &self.claim.node_uid
    }
}

impl Removal {
    /// Returns the shard key of a removal that precedes no new route: the UID of the node that the route was created for, or its
    /// destination.
    pub(crate) fn shard_key(&self) -> Cow<'_, str> {
        match &self.node_uid {
            Some(uid) => Cow::Borrowed(uid),
            None => Cow::Owned(self.to.to_string()),
        }
    }
}

impl<'a> Table<'a> {
    fn new(
        nodes: &'a [impl Borrow<Node>],
        routes: impl Iterator<Item = &'a Route>,
        record: &'a Record,
    ) -> Self {
        let mut by_machine: BTreeMap<&str, &str> = BTreeMap::new();
        for node in by_age(nodes) {
            if let Some(machine) = &node.provider_id {
                by_machine.entry(machine).or_insert(&node.uid);
            }
        }
        let mut by_destination: BTreeMap<IpNet, Vec<Known<'a>>> = BTreeMap::new();
        for route in routes {
            let machine =
                route.next_hop.provider_id.as_deref().and_then(|machine| by_machine.get(machine)).copied();
            let noted = record.node_of(route);
            let holder = route.node_uid.as_deref().or(machine).or(noted);
            let ours = route.owner == Owner::Ours || noted.is_some();
            by_destination.entry(route.destination).or_default().push(Known { route, holder, machine, ours });
        }
        for known in by_destination.values_mut() {
            known.sort_by(|a, b| a.route.vendor_id.cmp(&b.route.vendor_id));
        }
        Self { by_destination }
    }

    fn to(&self, destination: &IpNet) -> &[Known<'a>] {
        self.by_destination.get(destination).map_or(&[], Vec::as_slice)
    }

    fn ours(&self) -> impl Iterator<Item = &Known<'a>> {
        self.by_destination.values().flatten().filter(|known| known.ours)
    }

    fn reached(&self) -> BTreeSet<String> {
        self.ours().flat_map(|known| [known.holder, known.machine]).flatten().map(str::to_owned).collect()
    }
}

impl Known<'_> {
    /// Returns a route of this cluster with the right next hop, preferably the node's own route. A route for an earlier node on the same
    /// instance serves as well. Its key has the UID of the earlier node and cannot be changed in place, and a replacement would lose
    /// packets.
    fn that_serves<'a, 'b>(known: &'a [Known<'b>], node: &Node, via: &NextHop) -> Option<&'a Known<'b>> {
        let good = || known.iter().filter(|known| known.ours && known.leads_to(via));
        good().find(|known| known.holder == Some(&node.uid)).or_else(|| good().next())
    }

    fn leads_to(&self, via: &NextHop) -> bool {
        self.route.state != State::Blackhole && self.route.next_hop.is_same_as(via)
    }

    fn route_state(&self) -> RouteState {
        if self.route.state == State::Active { RouteState::Ready } else { RouteState::Open }
    }

    /// Whether creating the claim's route replaces this route, because both have the same key (the node's UID and the destination). Only a
    /// key stored in the cloud counts, since the adapter does not know a key that was inferred from the instance.
    fn is_replaced_by(&self, claim: &Claim) -> bool {
        self.route.node_uid.as_ref() == Some(&claim.node_uid)
    }

    fn replaced(&self) -> Removal {
        self.removal(Cause::Replaced)
    }

    /// Returns the removal of a route that no node needs. A black hole whose instance is known is treated like any other route. A cloud
    /// also reports a black hole for an existing instance that does not accept such packets.
    fn unasked(&self) -> Removal {
        let leads_nowhere = self.route.state == State::Blackhole && self.route.next_hop.provider_id.is_none();
        self.removal(if leads_nowhere { Cause::LeadsNowhere } else { Cause::Unasked })
    }

    fn removal(&self, cause: Cause) -> Removal {
        Removal {
            cause,
            vendor_id: self.route.vendor_id.clone(),
            to: self.route.destination,
            node_uid: self.holder.map(str::to_owned),
            via: (self.route.owner != Owner::Ours).then(|| self.route.next_hop.clone()),
        }
    }

    fn in_the_way(&self) -> Why {
        Why::Conflict {
            vendor_id: self.route.vendor_id.clone(),
            via: self.route.next_hop.to_string(),
            owner: self.route.owner.to_string(),
        }
    }
}

impl fmt::Display for Creation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "create {} to {} via {}", self.claim.to, self.node_name, self.via)?;
        self.instead_of.iter().try_for_each(|removal| write!(f, " instead of {}", removal.vendor_id))
    }
}

impl fmt::Display for Removal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let holder = self.node_uid.as_deref().unwrap_or("unknown");
        write!(f, "remove {} ({}) to node {holder}", self.to, self.vendor_id)?;
        self.via.iter().try_for_each(|via| write!(f, " if via {via}"))
    }
}

/// Prints one line per action, for the log and for tests.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.creations.iter().try_for_each(|creation| writeln!(f, "{creation}"))?;
        self.removals.iter().try_for_each(|removal| writeln!(f, "{removal}"))?;
        self.refusals.iter().try_for_each(|Refusal { node_name, cidr, why, .. }| {
            writeln!(f, "refuse {cidr} to {node_name}: {why}")
        })?;
        self.outside.iter().try_for_each(|Refusal { node_name, cidr, why, .. }| {
            writeln!(f, "report {cidr} to {node_name}: {why}")
        })
    }
}
