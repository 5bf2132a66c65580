//! Which node asks for which CIDR, and which of them may have it.

use std::borrow::Borrow;
use std::collections::BTreeMap;

use ipnet::IpNet;

use super::node::Node;
use super::refusal::{Refusal, Why};
use crate::config::ClusterCidrs;

/// One CIDR of one node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Claim {
    pub(crate) node_uid: String,
    pub(crate) to: IpNet,
}

/// How it stands with a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Packets arrive.
    Ready,
    /// Not certain yet: under way, or not tried.
    Open,
    /// Tried or refused.
    Failed,
}

/// What the nodes ask for: one node a destination, which the type enforces.
#[derive(Debug, Default)]
pub(crate) struct Claims<'a> {
    pub(crate) wanted: BTreeMap<IpNet, &'a Node>,
    pub(crate) refusals: Vec<Refusal>,
    /// What is asked for outside of the cluster's CIDRs. It is laid, and nobody removes it: the node hears of that.
    pub(crate) outside: Vec<Refusal>,
}

/// The oldest first: whatever two nodes have in common is the older one's, in whichever order they are listed.
pub(crate) fn by_age(nodes: &[impl Borrow<Node>]) -> Vec<&Node> {
    let mut by_age: Vec<&Node> = nodes.iter().map(Borrow::borrow).collect();
    by_age.sort_by(|a, b| (a.created, &a.name, &a.uid).cmp(&(b.created, &b.name, &b.uid)));
    by_age
}

/// Hands each CIDR to the oldest node that asks for it. A node that is not initialised yet holds its place, so that nobody
/// loses a route when it comes up. So does one on another cloud's machine, which hears of nothing.
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
