//! Names of vendor operations and of the families that share a budget.

use std::fmt;

/// Operations that share one budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// Machines.
    Compute,
    /// Networks and routes.
    Network,
    /// Load balancers.
    LoadBalancer,
    /// Credentials.
    Identity,
}

impl Family {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Compute, Self::Network, Self::LoadBalancer, Self::Identity];

    /// The word in configuration, metrics and `Cost`.
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
    /// Whose budget pays.
    pub family: Family,
    /// The vendor's word for it, such as `CreateListener`.
    pub name: &'static str,
    /// Whether it changes anything.
    pub write: bool,
}

impl Operation {
    /// An operation that changes nothing.
    #[must_use]
    pub const fn read(family: Family, name: &'static str) -> Self {
        Self { family, name, write: false }
    }

    /// An operation that changes something.
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
