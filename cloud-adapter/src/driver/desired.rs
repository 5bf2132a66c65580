//! What shall be: the input of a driver's pure plans.

use std::sync::Arc;

use cloud_api_proto::v1alpha1::{Backend, Fence, LoadBalancerKey, LoadBalancerSpec, Owner, RouteUpsert};

/// What a load balancer shall be: checked, complete, its backends resolved.
#[derive(Clone, Debug, PartialEq)]
pub struct DesiredLoadBalancer {
    /// Whose it is. Goes into the tags.
    pub key: LoadBalancerKey,
    /// For whom. Goes into the tags and, for people, into the name.
    pub owner: Owner,
    /// The cluster's name, for people.
    pub cluster_name: String,
    /// What its owner may take over by name.
    pub inheritance: Inheritance,
    /// What it shall be.
    pub spec: LoadBalancerSpec,
    /// The backends, ordered by provider ID. Shared: thousands of load balancers have the same ones.
    pub backends: Arc<[Backend]>,
    /// The versioned hash of the specification without the backends. Recorded at the vendor by the last step.
    pub hash: String,
}

impl DesiredLoadBalancer {
    /// For whom it is.
    #[must_use]
    pub fn heir(&self) -> Heir {
        let Self { key, owner, cluster_name, inheritance, .. } = self;
        let (key, owner, cluster_name) = (key.clone(), owner.clone(), cluster_name.clone());
        Heir { key, owner, cluster_name, inheritance: *inheritance }
    }

    /// The vendor's ID of the load balancer that it shall share with others. `None`: it has one for itself.
    #[must_use]
    pub fn shares(&self) -> Option<&str> {
        Some(self.spec.load_balancer_id.as_str()).filter(|id| !id.is_empty())
    }
}

/// For whom a load balancer is, with all that the names are made of which other controllers give.
#[derive(Clone, Debug, PartialEq)]
pub struct Heir {
    /// Whose it is.
    pub key: LoadBalancerKey,
    /// For whom.
    pub owner: Owner,
    /// The cluster's name.
    pub cluster_name: String,
    /// What it may take over by name.
    pub inheritance: Inheritance,
}

/// What proves that another controller made an object for an owner.
///
/// Names are no proof by themselves: two clusters of one project may have the same name, and `kubernetes` is the default of most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Inheritance {
    /// The owner's UID alone.
    #[default]
    ByUid,
    /// Also the names of cluster, namespace and Service: the operator says that no other cluster of the project has this name.
    ByName,
}

/// What the vendor's usual cloud controller manager made of an heir's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heritage {
    /// It did not make it.
    Unrelated,
    /// It is the heir's, and nobody else's.
    Sole,
    /// It is the heir's and somebody else's: why it stays as it is, and what to do.
    Shared(String),
    /// It has the heir's names, which prove nothing without the operator: why it stays as it is, and what to do.
    Unproven(String),
    /// It is somebody else's: whose, and what to do.
    Others(String),
}

/// Route changes that were found necessary and allowed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RouteChanges {
    /// Vendor IDs of routes to remove. They come first.
    pub remove: Vec<String>,
    /// Routes to lay.
    pub add: Vec<WantedRoute>,
}

/// A route to lay.
#[derive(Clone, Debug, PartialEq)]
pub struct WantedRoute {
    /// The checked request.
    pub upsert: RouteUpsert,
    /// Who writes. Goes into the tags.
    pub fence: Fence,
    /// The cluster's name, for people.
    pub cluster_name: String,
}
