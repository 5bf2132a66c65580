//! The cloud of the demo: the simulated one, or a real OpenStack. The steps do not depend on the kind of cloud.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use adapter_conformance::proxy::Call;
use adapter_sim::simcloud::model::{self, ProvisioningStatus, RouteStatus};
use adapter_sim::simcloud::{Access, Family};
use anyhow::Context;
use serde_json::{Value, json};

use crate::control_plane::ControlPlane;
use crate::openstack::{self, OpenStack, Project};
use crate::{Simcloud, seconds};

use super::cost::{Counts, Operation};

#[derive(Debug)]
pub(super) enum Cloud {
    Sim(Simcloud),
    OpenStack(OpenStack),
}

/// The fields of a load balancer that the steps use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Balancer {
    pub(super) id: String,
    /// The status, in the cloud's own terms.
    pub(super) status: String,
    pub(super) active: bool,
    pub(super) addresses: Vec<IpAddr>,
    /// The number of members of each listener.
    pub(super) members: Vec<usize>,
}

impl Cloud {
    /// Starts the simulated cloud, or uses the project of OpenStack if there is one.
    pub(super) async fn start(
        control_plane: &ControlPlane,
        project: Option<Arc<Project>>,
    ) -> anyhow::Result<Self> {
        Ok(match project {
            None => Self::Sim(Simcloud::start(control_plane).await?),
            Some(project) => Self::OpenStack(OpenStack::start(control_plane, project).await?),
        })
    }

    pub(super) fn values(&self) -> Value {
        match self {
            Self::Sim(cloud) => json!({ "adapter": { "sim": { "endpoint": cloud.url() } } }),
            Self::OpenStack(cloud) => cloud.values(),
        }
    }

    /// Explains to users how to access the cloud.
    pub(super) fn access(&self) -> String {
        match self {
            Self::Sim(cloud) => {
                let url = cloud.url();
                format!(
                    "The simulated cloud is at {url}. To see its state and to inject a fault:\n\n\
                     \x20 curl {url}/admin/state\n\
                     \x20 curl {url}/admin/counts\n\
                     \x20 curl -X POST {url}/admin/faults -d '{{\"match\": {{\"operation\": \"CreateLoadBalancer\"}}, \
                     \"when\": {{\"next\": 1}}, \"action\": {{\"respond\": {{\"status\": 503}}}}}}'\n"
                )
            }
            Self::OpenStack(cloud) => format!(
                "To access the OpenStack project {} (the client is in venv/bin of the home of `cargo xtask openstack`):\n\n\
                 \x20 export OS_CLIENT_CONFIG_FILE={} OS_CLOUD={}\n\
                 \x20 openstack server list\n\
                 \x20 openstack loadbalancer list\n",
                cloud.project.name(),
                cloud.clouds().display(),
                openstack::USERS_CLOUD
            ),
        }
    }

    /// The deadline for an operation of the cloud to complete.
    pub(super) fn time_limit(&self) -> Duration {
        match self {
            Self::Sim(_) => seconds(60),
            Self::OpenStack(_) => openstack::DONE_WITHIN,
        }
    }

    /// The maximum number of calls during the initialisation of nodes that join at once and fit on a few pages. They are the calls of the
    /// listings in this time. A listing takes one call to the simulated cloud, and two calls to OpenStack.
    pub(super) fn initialisation_max(&self) -> u64 {
        match self {
            Self::Sim(_) => 5,
            Self::OpenStack(_) => 10,
        }
    }

    /// The operation that creates a load balancer.
    pub(super) fn creation(&self) -> &'static str {
        match self {
            Self::Sim(_) => "CreateLoadBalancer",
            Self::OpenStack(_) => "POST loadbalancers",
        }
    }

    /// Creates the instances `node-1`, `node-2` ...
    pub(super) async fn create_instances(&self, count: usize) -> anyhow::Result<()> {
        match self {
            Self::Sim(cloud) => cloud.create_numbered("node-{n}", count).await.map(drop),
            // Nova adds a number to the name only if it creates several servers.
            Self::OpenStack(_) if count == 1 => self.create_instance("node-1").await,
            Self::OpenStack(cloud) => cloud.project.create_servers("node", count).await.map(drop),
        }
    }

    pub(super) async fn create_instance(&self, name: &str) -> anyhow::Result<()> {
        match self {
            Self::Sim(cloud) => cloud.create_instance(name).await.map(drop),
            Self::OpenStack(cloud) => cloud.project.create_servers(name, 1).await.map(drop),
        }
    }

    pub(super) async fn delete_instance(&self, name: &str) -> anyhow::Result<()> {
        match self {
            Self::Sim(cloud) => {
                let instances = cloud.state().await?.instances;
                let instance = instances.iter().find(|it| it.name == name);
                let instance = instance.with_context(|| format!("instance {name} does not exist"))?;
                cloud.delete_instance(&instance.id).await
            }
            Self::OpenStack(cloud) => cloud.project.delete_server(name).await,
        }
    }

    /// Sets the time that the creation of a load balancer takes, so that the adapter can be killed during the creation. OpenStack is slow
    /// enough without this setting.
    pub(super) async fn build_slowly(&self, slowly: bool) -> anyhow::Result<()> {
        let provisioning = slowly.then(|| json!({ "create_ms": 2000 }));
        match self {
            Self::Sim(cloud) => cloud.configure(&json!({ "provisioning": provisioning })).await,
            Self::OpenStack(_) => Ok(()),
        }
    }

    pub(super) async fn balancers(&self) -> anyhow::Result<Vec<Balancer>> {
        Ok(match self {
            Self::Sim(cloud) => cloud.state().await?.load_balancers.iter().map(Balancer::of_sim).collect(),
            Self::OpenStack(cloud) => {
                cloud.project.state().await?.balancers.iter().map(Balancer::of_openstack).collect()
            }
        })
    }

    /// The active routes, each as `10.240.1.0/24 via i-0001`.
    pub(super) async fn routes(&self) -> anyhow::Result<Vec<String>> {
        Ok(match self {
            Self::Sim(cloud) => {
                let routes = cloud.state().await?.routes;
                let active = routes.iter().filter(|it| it.status == RouteStatus::Active);
                let via = |it: &model::Route| it.next_hop_instance.clone().unwrap_or_default();
                active.map(|it| format!("{:<16} via {}", it.destination.to_string(), via(it))).collect()
            }
            Self::OpenStack(cloud) => {
                let routes = cloud.project.routes().await?;
                routes.iter().map(|it| format!("{:<16} via {}", it.destination, it.nexthop)).collect()
            }
        })
    }

    /// The number of remaining load balancers, and of their addresses if these are separate objects.
    pub(super) async fn left(&self) -> anyhow::Result<usize> {
        Ok(match self {
            Self::Sim(cloud) => cloud.state().await?.load_balancers.len(),
            Self::OpenStack(cloud) => {
                let count = cloud.project.count().await?;
                count.balancers + count.floating_ips
            }
        })
    }

    pub(super) async fn counts(&self) -> anyhow::Result<Counts> {
        Ok(match self {
            Self::Sim(cloud) => {
                let by_operation = cloud.counts().await?.by_operation;
                let operation = |it: adapter_sim::simcloud::Operation| Operation {
                    family: it.family(),
                    access: it.access(),
                    name: it.to_string(),
                };
                by_operation.into_iter().map(|(it, n)| (operation(it), n)).collect()
            }
            Self::OpenStack(cloud) => {
                let mut counts = Counts::new();
                for call in &cloud.proxy.since(0).0 {
                    *counts.entry(Operation::of_openstack(call)).or_default() += 1;
                }
                counts
            }
        })
    }
}

impl Operation {
    /// Assigns calls to families by purpose, not by service, because Neutron also manages ports of instances and addresses of load
    /// balancers.
    fn of_openstack(call: &Call) -> Self {
        let name = openstack::operation(call);
        let is_of = |word: &str| call.path.starts_with(word);
        // Only the creation of routes changes the allowed addresses of ports.
        let pairs = name == "GET ports" && call.path.contains("allowed_address_pairs");
        let family = if is_of("/identity") {
            Family::Identity
        } else if is_of("/load-balancer") || is_of("/network/v2.0/floatingips") {
            Family::Loadbalancer
        } else if is_of("/compute") || name == "GET ports" && !pairs {
            Family::Compute
        } else {
            Family::Network
        };
        let name = if pairs { format!("{name} with pairs") } else { name };
        Self { family, access: if call.write { Access::Write } else { Access::Read }, name }
    }
}

impl Balancer {
    fn of_sim(balancer: &model::LoadBalancer) -> Self {
        let members = |listener: &model::Listener| {
            let pool = balancer.pools.iter().find(|pool| listener.pool_id.as_ref() == Some(&pool.id));
            pool.map_or(0, |pool| pool.members.len())
        };
        Self {
            id: balancer.id.clone(),
            status: format!("{:?}", balancer.status),
            active: balancer.status == ProvisioningStatus::Active,
            addresses: balancer.vips.clone(),
            members: balancer.listeners.iter().map(members).collect(),
        }
    }

    fn of_openstack(balancer: &openstack::Balancer) -> Self {
        Self {
            id: balancer.id.clone(),
            status: balancer.provisioning_status.clone(),
            active: balancer.is_active(),
            addresses: balancer.address().into_iter().collect(),
            members: balancer.listeners.iter().map(|it| it.members.len()).collect(),
        }
    }
}
