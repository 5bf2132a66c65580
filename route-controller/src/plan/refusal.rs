//! What was asked for and is not done, or not to the end, in words for the person who looks at the node.

use std::fmt;

use super::node::Node;

/// What was asked for and is not done. Told by an Event on the node that asked.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Refusal {
    pub(crate) node_name: String,
    pub(crate) node_uid: String,
    /// As the node has it: it may be no CIDR at all.
    pub(crate) cidr: String,
    pub(crate) why: Why,
}

/// Why it is not done.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Why {
    Unreadable,
    /// The route is laid all the same: what is not done is to remove it some day.
    OutsideCluster {
        cluster: String,
    },
    /// An older node has the same CIDR.
    Claimed {
        by: String,
    },
    /// Somebody else's route has the same destination.
    Conflict {
        vendor_id: String,
        via: String,
        owner: String,
    },
}

impl Refusal {
    pub(crate) fn new(node: &Node, cidr: &impl ToString, why: Why) -> Self {
        Self { node_name: node.name.clone(), node_uid: node.uid.clone(), cidr: cidr.to_string(), why }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable => f.write_str("it is no CIDR: correct spec.podCIDRs"),
            Self::OutsideCluster { cluster } => write!(
                f,
                "it is outside of the cluster's {cluster}, so that its route stays when this node goes: correct the flag --cluster-cidr or spec.podCIDRs"
            ),
            Self::Claimed { by } => write!(
                f,
                "the older node {by} has the same one in spec.podCIDRs and keeps it: recreate one of both nodes"
            ),
            Self::Conflict { vendor_id, via, owner } => write!(
                f,
                "route {vendor_id} via {via} is {owner} and in the way: remove it, it is never removed from here"
            ),
        }
    }
}
