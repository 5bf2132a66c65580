//! Why nodes are not behind load balancers.

use std::{collections::BTreeMap, fmt};

/// This label excludes a node from all load balancers. The label's value is parsed like a Go bool.
pub(crate) const EXCLUDE_LABEL: &str = "node.kubernetes.io/exclude-from-external-load-balancers";

/// The taint that the cluster autoscaler sets on a node that it is about to remove.
pub(crate) const AUTOSCALER_TAINT: &str = "ToBeDeletedByClusterAutoscaler";

/// Why a node is not behind a load balancer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LeftOut {
    /// The node selector does not match the node.
    Unselected,
    Excluded,
    Deleting,
    Leaving,
    NoProviderId,
    NoAddress,
}

/// The number of nodes of each cause.
pub(crate) type Counts = BTreeMap<LeftOut, usize>;

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unselected => f.write_str("not matched by node-selector"),
            Self::Excluded => write!(f, "excluded by label {EXCLUDE_LABEL}"),
            Self::Deleting => f.write_str("being deleted"),
            Self::Leaving => write!(f, "with taint {AUTOSCALER_TAINT}"),
            Self::NoProviderId => f.write_str("without a provider ID"),
            Self::NoAddress => f.write_str("without an internal address"),
        }
    }
}
