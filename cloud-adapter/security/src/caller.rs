//! Who calls, and what that says of how urgent it may be.

use std::sync::Arc;

use cloud_api_proto::v1alpha1::Priority;

/// What an identity is to the adapter. The queue share goes with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Nodes: instances.
    NodeController,
    /// Services: load balancers.
    ServiceController,
    /// Routes.
    RouteController,
    /// Another replica of this adapter: its watches.
    Adapter,
    /// A person with a tool: dry runs and watches.
    Operator,
    /// Nobody asked who it is: all methods, no cap. Only where authentication is switched off.
    Anyone,
}

impl Role {
    /// All that an identity can be given.
    pub const NAMED: [Self; 5] =
        [Self::NodeController, Self::ServiceController, Self::RouteController, Self::Adapter, Self::Operator];

    /// The word in flags, metrics and logs.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::NodeController => "node-controller",
            Self::ServiceController => "service-controller",
            Self::RouteController => "route-controller",
            Self::Adapter => "adapter",
            Self::Operator => "operator",
            Self::Anyone => "anyone",
        }
    }

    /// Reads the word of a role that an identity can be given.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::NAMED.into_iter().find(|role| role.word() == word)
    }

    /// The most urgent that its calls may be.
    #[must_use]
    pub const fn cap(self) -> Priority {
        match self {
            Self::NodeController => Priority::Interactive,
            Self::ServiceController | Self::RouteController | Self::Anyone => Priority::Traffic,
            Self::Adapter | Self::Operator => Priority::Background,
        }
    }
}

/// Who calls.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Caller {
    /// What it may do.
    pub role: Role,
    /// The name that it proved, such as `system:serviceaccount:kube-system:cloud-node-controller`.
    pub subject: Arc<str>,
}

impl Caller {
    /// Nobody asked.
    #[must_use]
    pub fn anyone() -> Self {
        Self { role: Role::Anyone, subject: Arc::from("anyone") }
    }
}
