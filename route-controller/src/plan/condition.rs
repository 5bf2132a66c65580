//! The condition `NetworkUnavailable`, which shows the state of a node's routes. Reasons and messages equal those of the route controller
//! of k8s.io/cloud-provider, since users and other components search for them.

use std::borrow::Borrow;
use std::collections::BTreeMap;

use super::claims::RouteState;
use super::node::Node;
use super::{Creation, Plan};

pub(crate) const NETWORK_UNAVAILABLE: &str = "NetworkUnavailable";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Network {
    Available,
    Unavailable,
}

impl Network {
    pub(crate) const fn status(self) -> &'static str {
        match self {
            Self::Available => "False",
            Self::Unavailable => "True",
        }
    }

    pub(crate) const fn reason(self) -> &'static str {
        match self {
            Self::Available => "RouteCreated",
            Self::Unavailable => "NoRouteCreated",
        }
    }

    pub(crate) const fn message(self) -> &'static str {
        match self {
            Self::Available => "RouteController created a route",
            Self::Unavailable => "RouteController failed to create a route",
        }
    }

    /// Whether the node already has this condition. Message and times are ignored: the condition is written only if status or reason
    /// changes.
    pub(crate) fn stands_on(self, node: &Node) -> bool {
        node.network_unavailable
            .as_ref()
            .is_some_and(|now| now.status == self.status() && now.reason == self.reason())
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) node_name: String,
    /// The node's UID, since another node may have the same name by now.
    pub(crate) node_uid: String,
    pub(crate) network: Network,
}

/// The condition that each node should have, by the node's UID. Nodes whose state is not certain yet are left out.
pub(crate) type NetworkByNode = BTreeMap<String, Network>;

/// Computes the condition of all nodes on this cloud's instances. `route_state` returns the state of a route to create.
pub(crate) fn judged(
    nodes: &[impl Borrow<Node>],
    plan: &Plan,
    route_state: impl Fn(&Creation) -> RouteState,
) -> NetworkByNode {
    let mut states: BTreeMap<&str, Vec<RouteState>> = BTreeMap::new();
    for (claim, state) in &plan.route_states {
        states.entry(&claim.node_uid).or_default().push(*state);
    }
    for creation in &plan.creations {
        states.entry(&creation.claim.node_uid).or_default().push(route_state(creation));
    }
    for refusal in &plan.refusals {
        states.entry(&refusal.node_uid).or_default().push(RouteState::Failed);
    }
    let ours = nodes.iter().map(Borrow::borrow).filter(|node: &&Node| !node.elsewhere);
    let judged = ours.filter_map(|node| {
        let states = states.get(node.uid.as_str()).map_or(&[][..], Vec::as_slice);
        let stray = node.asks_for_nothing() && plan.reached.contains(&node.uid);
        Some((node.uid.clone(), judge(states, stray)?))
    });
    judged.collect()
}

/// Returns a change for each node whose current condition differs from `judged`.
pub(crate) fn changes<'a>(nodes: impl IntoIterator<Item = &'a Node>, judged: &NetworkByNode) -> Vec<Change> {
    let certain = nodes.into_iter().filter_map(|node| Some((node, *judged.get(&node.uid)?)));
    certain
        .filter(|(node, network)| !network.stands_on(node))
        .map(|(node, network)| {
            let (node_name, node_uid) = (node.name.clone(), node.uid.clone());
            Change { node_name, node_uid, network }
        })
        .collect()
}

/// Computes the condition of a node from all of its claims. Returns `None` if nothing is certain yet, so that the condition is not changed.
///
/// `stray` means that the node has no pod CIDR, but a route of this cluster leads to the node.
fn judge(states: &[RouteState], stray: bool) -> Option<Network> {
    if stray || states.contains(&RouteState::Failed) {
        return Some(Network::Unavailable);
    }
    let ready = !states.is_empty() && states.iter().all(|state| *state == RouteState::Ready);
    ready.then_some(Network::Available)
}
