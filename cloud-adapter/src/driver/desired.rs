//! The desired state, which is the input of the driver's plans.

use std::sync::Arc;

use cloud_api_proto::v1alpha1::{Backend, Fence, LoadBalancerKey, LoadBalancerSpec, Owner, RouteUpsert};

/// The desired state of a load balancer: validated, complete, and with resolved backends.
#[derive(Clone, Debug, PartialEq)]
pub struct DesiredLoadBalancer {
    /// The key of the load balancer, which drivers write to tags.
    pub key: LoadBalancerKey,
    /// The owner. Drivers write the owner to tags and use it in the display name.
    pub owner: Owner,
    /// The cluster's display name.
    pub cluster_name: String,
    /// The proof that the owner needs to take over a load balancer by name.
    pub inheritance: Inheritance,
    /// The validated specification.
    pub spec: LoadBalancerSpec,
    /// The backends, ordered by provider ID. The slice is shared, because thousands of load balancers have the same backends.
    pub backends: Arc<[Backend]>,
    /// The versioned hash of the specification without the backends. The last step records the hash in the cloud.
    pub hash: String,
}

impl DesiredLoadBalancer {
    /// The owner of this load balancer as an [`Adopter`], which contains the key, the owner, the cluster name and the proof.
    #[must_use]
    pub fn adopter(&self) -> Adopter {
        let Self { key, owner, cluster_name, inheritance, .. } = self;
        let (key, owner, cluster_name) = (key.clone(), owner.clone(), cluster_name.clone());
        Adopter { key, owner, cluster_name, inheritance: *inheritance }
    }

    /// Returns the vendor's ID of the load balancer that the Service shares with other users. `None`: the Service has its own load
    /// balancer.
    #[must_use]
    pub fn shares(&self) -> Option<&str> {
        Some(self.spec.load_balancer_id.as_str()).filter(|id| !id.is_empty())
    }
}

/// A Service that may take over a load balancer of another controller. An adopter contains all parts of the names that such controllers
/// generate.
#[derive(Clone, Debug, PartialEq)]
pub struct Adopter {
    /// The key under which the load balancer is taken over.
    pub key: LoadBalancerKey,
    /// The Service, as the owner of the load balancer.
    pub owner: Owner,
    /// The cluster's name.
    pub cluster_name: String,
    /// The proof that the owner needs to take over a load balancer by name.
    pub inheritance: Inheritance,
}

/// The proof that another controller created an object for an owner.
///
/// Names alone are no proof, because two clusters of one project may have the same name, and `kubernetes` is the usual default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Inheritance {
    /// Only the owner's UID is a proof.
    #[default]
    ByUid,
    /// The names of cluster, namespace and Service are also a proof, because the operator confirms that no other cluster of the project has
    /// this name.
    ByName,
}

/// How a load balancer relates to an adopter, according to the names that the vendor's usual cloud controller manager gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heritage {
    /// The vendor's usual cloud controller manager did not create the load balancer.
    Unrelated,
    /// The load balancer belongs to the adopter alone.
    Sole,
    /// The load balancer belongs to the adopter and to others. The text says why it stays unchanged, and the fix.
    Shared(String),
    /// The load balancer has the names of the adopter, which are no proof without the operator's grant. The text says why it stays unchanged,
    /// and the fix.
    Unproven(String),
    /// The load balancer belongs to another owner. The text names that owner and the fix.
    Others(String),
}

/// The route changes to execute.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RouteChanges {
    /// Vendor IDs of the routes to delete. The driver deletes them first.
    pub remove: Vec<String>,
    /// The routes to create.
    pub add: Vec<WantedRoute>,
}

/// A route to create.
#[derive(Clone, Debug, PartialEq)]
pub struct WantedRoute {
    /// The validated request for the route.
    pub upsert: RouteUpsert,
    /// The writer's fence, which drivers write to tags.
    pub fence: Fence,
    /// The cluster's display name.
    pub cluster_name: String,
}
