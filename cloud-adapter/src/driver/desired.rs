//! The desired state: the input of the pure plans of a driver.

use std::sync::Arc;

use cloud_api_proto::v1alpha1::{Backend, Fence, LoadBalancerKey, LoadBalancerSpec, Owner, RouteUpsert};

/// The desired state of a load balancer: validated, complete, its backends resolved.
#[derive(Clone, Debug, PartialEq)]
pub struct DesiredLoadBalancer {
    /// The key of the load balancer. Goes into the tags.
    pub key: LoadBalancerKey,
    /// The owner. Goes into the tags and into the display name.
    pub owner: Owner,
    /// The cluster's display name.
    pub cluster_name: String,
    /// What the owner may take over by name.
    pub inheritance: Inheritance,
    /// The specification.
    pub spec: LoadBalancerSpec,
    /// The backends, ordered by provider ID. Shared, because thousands of load balancers have the same ones.
    pub backends: Arc<[Backend]>,
    /// The versioned hash of the specification without the backends. The last step records it in the cloud.
    pub hash: String,
}

impl DesiredLoadBalancer {
    /// The heir of this load balancer.
    #[must_use]
    pub fn heir(&self) -> Heir {
        let Self { key, owner, cluster_name, inheritance, .. } = self;
        let (key, owner, cluster_name) = (key.clone(), owner.clone(), cluster_name.clone());
        Heir { key, owner, cluster_name, inheritance: *inheritance }
    }

    /// The vendor's ID of the load balancer to share with others. `None`: the key has its own.
    #[must_use]
    pub fn shares(&self) -> Option<&str> {
        Some(self.spec.load_balancer_id.as_str()).filter(|id| !id.is_empty())
    }
}

/// The owner of a load balancer, with all parts of the names that other controllers give.
#[derive(Clone, Debug, PartialEq)]
pub struct Heir {
    /// The key.
    pub key: LoadBalancerKey,
    /// The owner.
    pub owner: Owner,
    /// The cluster's name.
    pub cluster_name: String,
    /// What the owner may take over by name.
    pub inheritance: Inheritance,
}

/// The proof that another controller created an object for an owner.
///
/// Names alone are no proof: two clusters of one project may have the same name, and `kubernetes` is the usual default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Inheritance {
    /// Only the owner's UID.
    #[default]
    ByUid,
    /// The names of cluster, namespace and Service, too: the operator confirms that no other cluster of the project has this name.
    ByName,
}

/// What a load balancer is to an heir, if the vendor's usual cloud controller manager created it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heritage {
    /// It was created otherwise.
    Unrelated,
    /// It belongs to the heir alone.
    Sole,
    /// It belongs to the heir and to others: why it stays unchanged, and how to fix that.
    Shared(String),
    /// It has the names of the heir, which are no proof without the operator's grant: why it stays unchanged, and how to fix that.
    Unproven(String),
    /// It belongs to another owner: which one, and how to fix that.
    Others(String),
}

/// The route changes to execute.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RouteChanges {
    /// Vendor IDs of the routes to delete. These are deleted first.
    pub remove: Vec<String>,
    /// The routes to create.
    pub add: Vec<WantedRoute>,
}

/// A route to create.
#[derive(Clone, Debug, PartialEq)]
pub struct WantedRoute {
    /// The validated request.
    pub upsert: RouteUpsert,
    /// The writer's fence. Goes into the tags.
    pub fence: Fence,
    /// The cluster's display name.
    pub cluster_name: String,
}
