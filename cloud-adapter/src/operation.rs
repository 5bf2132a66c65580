//! Names of vendor operations and of the families that share a budget.

use std::fmt;

/// Operations that share one budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// Operations on instances.
    Compute,
    /// Operations on networks and routes.
    Network,
    /// Operations on load balancers.
    LoadBalancer,
    /// Operations on credentials.
    Identity,
}

impl Family {
    /// All families.
    pub const ALL: [Self; 4] = [Self::Compute, Self::Network, Self::LoadBalancer, Self::Identity];

    /// Returns the name of the family in configuration, metrics and `Cost`.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Compute => "compute",
            Self::Network => "network",
            Self::LoadBalancer => "loadbalancer",
            Self::Identity => "identity",
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// A vendor operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// The family to whose budget the operation is charged.
    pub family: Family,
    /// The vendor's name of the operation, such as `CreateListener`.
    pub name: &'static str,
    /// Whether the operation is a write.
    pub write: bool,
}

impl Operation {
    /// Creates a read operation.
    #[must_use]
    pub const fn read(family: Family, name: &'static str) -> Self {
        Self { family, name, write: false }
    }

    /// Creates a write operation.
    #[must_use]
    pub const fn write(family: Family, name: &'static str) -> Self {
        Self { family, name, write: true }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}
