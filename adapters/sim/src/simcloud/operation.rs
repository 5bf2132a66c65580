//! The table of operations. It holds name, method, path, family and access in one place, for routing, counts, limits, faults and the
//! documentation.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A group of operations that the vendor counts and limits together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    /// The project of the caller's token.
    Identity,
    /// Instances.
    Compute,
    /// Load balancers with listeners, pools and members.
    Loadbalancer,
    /// Route tables.
    Network,
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Identity => "identity",
            Self::Compute => "compute",
            Self::Loadbalancer => "loadbalancer",
            Self::Network => "network",
        })
    }
}

/// Whether an operation changes anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Access {
    /// A read, which changes nothing.
    Read,
    /// A write, which creates, changes or deletes an object.
    Write,
}

/// The operations of the API. Serialised by name, as in `ListInstances`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names are self-explanatory, and the README has the table")]
pub enum Operation {
    GetProject,
    ListInstances,
    BatchGetInstances,
    FindInstances,
    GetInstance,
    ListLoadBalancers,
    GetLoadBalancer,
    CreateLoadBalancer,
    UpdateLoadBalancer,
    DeleteLoadBalancer,
    CreateListener,
    UpdateListener,
    DeleteListener,
    CreatePool,
    UpdatePool,
    DeletePool,
    SetMembers,
    UpdateMembers,
    ListRoutes,
    BatchRoutes,
}

impl Operation {
    /// All operations, in the order of the documentation.
    pub const ALL: [Self; 20] = [
        Self::GetProject,
        Self::ListInstances,
        Self::BatchGetInstances,
        Self::FindInstances,
        Self::GetInstance,
        Self::ListLoadBalancers,
        Self::GetLoadBalancer,
        Self::CreateLoadBalancer,
        Self::UpdateLoadBalancer,
        Self::DeleteLoadBalancer,
        Self::CreateListener,
        Self::UpdateListener,
        Self::DeleteListener,
        Self::CreatePool,
        Self::UpdatePool,
        Self::DeletePool,
        Self::SetMembers,
        Self::UpdateMembers,
        Self::ListRoutes,
        Self::BatchRoutes,
    ];

    /// Returns the method and the path. `{id}` is a placeholder for the object's ID.
    pub const fn endpoint(self) -> (&'static str, &'static str) {
        match self {
            Self::GetProject => ("GET", "/v1/project"),
            Self::ListInstances | Self::BatchGetInstances | Self::FindInstances => ("GET", "/v1/instances"),
            Self::GetInstance => ("GET", "/v1/instances/{id}"),
            Self::ListLoadBalancers => ("GET", "/v1/load-balancers"),
            Self::GetLoadBalancer => ("GET", "/v1/load-balancers/{id}"),
            Self::CreateLoadBalancer => ("POST", "/v1/load-balancers"),
            Self::UpdateLoadBalancer => ("PATCH", "/v1/load-balancers/{id}"),
            Self::DeleteLoadBalancer => ("DELETE", "/v1/load-balancers/{id}"),
            Self::CreateListener => ("POST", "/v1/load-balancers/{id}/listeners"),
            Self::UpdateListener => ("PATCH", "/v1/listeners/{id}"),
            Self::DeleteListener => ("DELETE", "/v1/listeners/{id}"),
            Self::CreatePool => ("POST", "/v1/load-balancers/{id}/pools"),
            Self::UpdatePool => ("PATCH", "/v1/pools/{id}"),
            Self::DeletePool => ("DELETE", "/v1/pools/{id}"),
            Self::SetMembers => ("PUT", "/v1/pools/{id}/members"),
            Self::UpdateMembers => ("POST", "/v1/pools/{id}/members:update"),
            Self::ListRoutes => ("GET", "/v1/routes"),
            Self::BatchRoutes => ("POST", "/v1/routes:batch"),
        }
    }

    /// Returns the query parameter that selects this operation among those with the same method and path.
    pub const fn selector(self) -> Option<&'static str> {
        match self {
            Self::BatchGetInstances => Some("ids"),
            Self::FindInstances => Some("name"),
            Self::GetProject
            | Self::ListInstances
            | Self::GetInstance
            | Self::ListLoadBalancers
            | Self::GetLoadBalancer
            | Self::CreateLoadBalancer
            | Self::UpdateLoadBalancer
            | Self::DeleteLoadBalancer
            | Self::CreateListener
            | Self::UpdateListener
            | Self::DeleteListener
            | Self::CreatePool
            | Self::UpdatePool
            | Self::DeletePool
            | Self::SetMembers
            | Self::UpdateMembers
            | Self::ListRoutes
            | Self::BatchRoutes => None,
        }
    }

    /// Returns the family of the operation. The limit of this family applies.
    pub const fn family(self) -> Family {
        match self {
            Self::GetProject => Family::Identity,
            Self::ListInstances | Self::BatchGetInstances | Self::FindInstances | Self::GetInstance => {
                Family::Compute
            }
            Self::ListLoadBalancers
            | Self::GetLoadBalancer
            | Self::CreateLoadBalancer
            | Self::UpdateLoadBalancer
            | Self::DeleteLoadBalancer
            | Self::CreateListener
            | Self::UpdateListener
            | Self::DeleteListener
            | Self::CreatePool
            | Self::UpdatePool
            | Self::DeletePool
            | Self::SetMembers
            | Self::UpdateMembers => Family::Loadbalancer,
            Self::ListRoutes | Self::BatchRoutes => Family::Network,
        }
    }

    /// Returns whether the operation reads or writes. Every `GET` reads; every other method writes.
    pub fn access(self) -> Access {
        if self.endpoint().0 == "GET" { Access::Read } else { Access::Write }
    }

    /// Returns the field that contains the items in a listing's response. `None`: the operation is not a listing.
    pub const fn items(self) -> Option<&'static str> {
        match self {
            Self::ListInstances | Self::BatchGetInstances | Self::FindInstances => Some("instances"),
            Self::ListLoadBalancers => Some("load_balancers"),
            Self::ListRoutes => Some("routes"),
            Self::GetProject
            | Self::GetInstance
            | Self::GetLoadBalancer
            | Self::CreateLoadBalancer
            | Self::UpdateLoadBalancer
            | Self::DeleteLoadBalancer
            | Self::CreateListener
            | Self::UpdateListener
            | Self::DeleteListener
            | Self::CreatePool
            | Self::UpdatePool
            | Self::DeletePool
            | Self::SetMembers
            | Self::UpdateMembers
            | Self::BatchRoutes => None,
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The name of the variant is also the name of the operation on the wire.
        fmt::Debug::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_operation_is_listed_once_and_has_a_row_in_the_readme() {
        let readme = include_str!("../../README.md");
        for (nth, operation) in Operation::ALL.into_iter().enumerate() {
            assert_eq!(operation as usize, nth, "{operation} is out of order in ALL");
            let (method, path) = operation.endpoint();
            let family = serde_json::to_value(operation.family()).unwrap();
            let access = serde_json::to_value(operation.access()).unwrap();
            let query = operation.selector().map(|key| format!("?{key}=")).unwrap_or_default();
            let row = format!(
                "| `{operation}` | `{method} {path}{query}` | {} | {} |",
                family.as_str().unwrap(),
                access.as_str().unwrap()
            );
            assert!(readme.contains(&row), "README.md lacks the row: {row}");
        }
    }
}
