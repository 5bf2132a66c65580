//! Decides which node gets which pod CIDR.

use std::borrow::Borrow;
use std::collections::BTreeMap;

use ipnet::IpNet;

use super::node::Node;
use super::refusal::{Refusal, Why};
use crate::config::ClusterCidrs;

/// A claim: one pod CIDR of one node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Claim {
    pub(crate) node_uid: String,
    pub(crate) to: IpNet,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RouteState {
    /// Packets arrive.
    Ready,
    /// The state is not certain yet: the action is in progress, or was not attempted.
    Open,
    Failed,
}

/// The pod CIDRs of all nodes; the type enforces one node per destination.
#[derive(Debug, Default)]
pub(crate) struct Claims<'a> {
    pub(crate) wanted: BTreeMap<IpNet, &'a Node>,
    pub(crate) refusals: Vec<Refusal>,
    /// Pod CIDRs outside of the cluster's CIDRs. Their routes are created and never removed; an Event on the node reports this.
    pub(crate) outside: Vec<Refusal>,
}

/// Sorts the nodes by age. If two nodes have the same CIDR or instance, the older node gets it, regardless of the order of the list.
pub(crate) fn by_age(nodes: &[impl Borrow<Node>]) -> Vec<&Node> {
    let mut by_age: Vec<&Node> = nodes.iter().map(Borrow::borrow).collect();
    by_age.sort_by(|a, b| (a.created, &a.name, &a.uid).cmp(&(b.created, &b.name, &b.uid)));
    by_age
}

/// Assigns each CIDR to the oldest node that has it. A node that is not initialised yet keeps its CIDRs, so that no other node gets a route
/// that it would lose later. A node of another cloud keeps its CIDRs, too; nothing is reported for it.
pub(crate) fn claims<'a>(nodes: &'a [impl Borrow<Node>], cluster: &ClusterCidrs) -> Claims<'a> {
    let mut claims = Claims::default();
    for node in by_age(nodes) {
        for text in node.unreadable_cidrs.iter().filter(|_| !node.elsewhere) {
            claims.refusals.push(Refusal::new(node, text, Why::Unreadable));
        }
        for to in &node.pod_cidrs {
            match claims.wanted.get(to) {
                Some(_) if node.elsewhere => (),
                Some(older) => {
                    let why = Why::Claimed { by: older.name.clone() };
                    claims.refusals.push(Refusal::new(node, to, why));
                }
                None => {
                    if !cluster.contain(to) && node.next_hop(to).is_some() {
                        let why = Why::OutsideCluster { cluster: cluster.to_string() };
                        claims.outside.push(Refusal::new(node, to, why));
                    }
                    claims.wanted.insert(*to, node);
                }
            }
        }
    }
    claims
}
