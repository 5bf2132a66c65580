//! Pod CIDRs that get no route, or a route that is never removed, with the text for the Event on the node.

use std::fmt;

use super::node::Node;

/// A pod CIDR that gets no route, or whose route is never removed. Reported by an Event on the node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Refusal {
    pub(crate) node_name: String,
    pub(crate) node_uid: String,
    /// The CIDR as in the Node, which may be invalid.
    pub(crate) cidr: String,
    pub(crate) why: Why,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Why {
    Unreadable,
    /// The route is created, but is not removed with its node.
    OutsideCluster {
        cluster: String,
    },
    /// An older node has the same CIDR.
    Claimed {
        by: String,
    },
    /// A route of another owner has the same destination.
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
            Self::Unreadable => f.write_str("the CIDR is invalid. Recreate the node with a valid pod CIDR"),
            Self::OutsideCluster { cluster } => write!(
                f,
                "outside the cluster CIDR {cluster}, so its route is not removed when this node is deleted. \
                Correct routeController.clusterCidr, or recreate the node with a valid pod CIDR"
            ),
            Self::Claimed { by } => write!(
                f,
                "the older node {by} has the same CIDR in spec.podCIDRs and gets the route. Recreate one of the two nodes"
            ),
            Self::Conflict { vendor_id, via, owner } => write!(
                f,
                "route {vendor_id} via {via} is {owner} and conflicts with the new route. Remove the \
                existing route; the controller never removes it"
            ),
        }
    }
}
