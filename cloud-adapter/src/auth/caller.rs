//! The identity of a caller, and the maximum urgency of its calls.

use std::sync::Arc;

use cloud_api_proto::v1alpha1::Priority;

/// Role of an identity in the adapter. The role determines the caller's share of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// The node-controller, which may use instances.
    NodeController,
    /// The service-controller, which may use load balancers.
    ServiceController,
    /// The route-controller, which may use routes.
    RouteController,
    /// Another replica of this adapter. This caller may only watch.
    Adapter,
    /// A person who uses a command-line tool. This caller may request dry runs and may watch.
    Operator,
    /// A caller that was not authenticated because authentication is off. This caller may call all methods with any urgency.
    Anyone,
}

impl Role {
    /// All roles that can be assigned to an identity.
    pub const NAMED: [Self; 5] =
        [Self::NodeController, Self::ServiceController, Self::RouteController, Self::Adapter, Self::Operator];

    /// Returns the name of the role in flags, metrics and logs.
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

    /// Parses the name of a role that can be assigned to an identity.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::NAMED.into_iter().find(|role| role.word() == word)
    }

    /// Returns the maximum urgency of the role's calls.
    #[must_use]
    pub const fn cap(self) -> Priority {
        match self {
            Self::NodeController => Priority::Interactive,
            Self::ServiceController | Self::RouteController | Self::Anyone => Priority::Traffic,
            Self::Adapter | Self::Operator => Priority::Background,
        }
    }
}

/// An authenticated caller.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Caller {
    /// The role of the caller.
    pub role: Role,
    /// The name in the caller's proof of identity, such as `system:serviceaccount:kube-system:cloud-node-controller`.
    pub subject: Arc<str>,
}

impl Caller {
    /// Returns a caller that was not authenticated.
    #[must_use]
    pub fn anyone() -> Self {
        Self { role: Role::Anyone, subject: Arc::from("anyone") }
    }
}
