//! The cloud of the demo: the simulated one, or a real OpenStack. This module has all operations and observations of steps; the steps do
//! not depend on the kind of cloud.

use std::borrow::Cow;
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
use super::report::CloudAccess;

/// The time that the simulated cloud takes to create a load balancer in the step that kills the adapter, so that the kill happens during
/// the creation. OpenStack is slow enough by itself.
const CREATION_MILLIS: u64 = 2000;

/// One of the two clouds.
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
    pub(super) listeners: Vec<Listener>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Listener {
    /// The protocol, such as `TCP`.
    pub(super) protocol: String,
    pub(super) port: u16,
    pub(super) members: usize,
}

/// A route to the pods of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Route {
    pub(super) destination: String,
    pub(super) via: Option<String>,
    pub(super) active: bool,
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

    /// The kind and the address of the cloud.
    pub(super) fn introduction(&self) -> String {
        match self {
            Self::Sim(cloud) => format!("simcloud answers at {}", cloud.url()),
            Self::OpenStack(cloud) => format!(
                "project {} of Keystone, Nova, Neutron and Octavia; a proxy at {} counts the adapter's calls",
                cloud.project.name(),
                cloud.proxy.address()
            ),
        }
    }

    /// The chart values for the cloud.
    pub(super) fn values(&self) -> Value {
        match self {
            Self::Sim(cloud) => json!({ "adapter": { "sim": { "endpoint": cloud.url() } } }),
            Self::OpenStack(cloud) => cloud.values(),
        }
    }

    /// The same values as command-line arguments of helm.
    pub(super) fn flags(&self) -> String {
        match self {
            Self::Sim(cloud) => format!("--set adapter.sim.endpoint={}", cloud.url()),
            Self::OpenStack(_) => {
                "--set adapter.kind=openstack --set adapter.credentialsSecret=openstack".to_owned()
            }
        }
    }

    /// How users can access the cloud.
    pub(super) fn look(&self) -> CloudAccess {
        match self {
            Self::Sim(cloud) => CloudAccess::Simcloud { url: cloud.url().to_owned() },
            Self::OpenStack(cloud) => CloudAccess::OpenStack {
                clouds: cloud.clouds().display().to_string(),
                cloud: openstack::USERS_CLOUD,
            },
        }
    }

    /// The deadline for an operation of the cloud to complete.
    pub(super) fn patience(&self) -> Duration {
        match self {
            Self::Sim(_) => seconds(60),
            Self::OpenStack(_) => openstack::DONE_WITHIN,
        }
    }

    /// The maximum number of calls to initialise nodes at once, if they fit on a few pages: the calls of the listings during this time. A
    /// listing takes one call to the simulated cloud, and two to OpenStack.
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

    /// The operation that deletes a load balancer.
    pub(super) fn deletion(&self) -> &'static str {
        match self {
            Self::Sim(_) => "DeleteLoadBalancer",
            Self::OpenStack(_) => "DELETE loadbalancers/*",
        }
    }

    /// Creates the instances `node-1`, `node-2` ...
    pub(super) async fn make_machines(&self, count: usize) -> anyhow::Result<()> {
        match self {
            Self::Sim(cloud) => cloud.create_numbered("node-{n}", count).await.map(drop),
            // Nova adds a number to the name only if it creates several servers.
            Self::OpenStack(_) if count == 1 => self.make_machine("node-1").await,
            Self::OpenStack(cloud) => cloud.project.create_servers("node", count).await.map(drop),
        }
    }

    pub(super) async fn make_machine(&self, name: &str) -> anyhow::Result<()> {
        match self {
            Self::Sim(cloud) => cloud.create_instance(name).await.map(drop),
            Self::OpenStack(cloud) => cloud.project.create_servers(name, 1).await.map(drop),
        }
    }

    pub(super) async fn delete_machine(&self, name: &str) -> anyhow::Result<()> {
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

    /// Slows down the creation of load balancers from now on.
    pub(super) async fn build_slowly(&self) -> anyhow::Result<()> {
        self.configure(&json!({ "provisioning": { "create_ms": CREATION_MILLIS } })).await
    }

    /// Restores the usual speed of the creation of load balancers.
    pub(super) async fn build_as_usual(&self) -> anyhow::Result<()> {
        self.configure(&json!({ "provisioning": null })).await
    }

    async fn configure(&self, settings: &Value) -> anyhow::Result<()> {
        match self {
            Self::Sim(cloud) => cloud.configure(settings).await,
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

    pub(super) async fn routes(&self) -> anyhow::Result<Vec<Route>> {
        Ok(match self {
            Self::Sim(cloud) => cloud.state().await?.routes.iter().map(Route::of_sim).collect(),
            Self::OpenStack(cloud) => {
                let route = |it: openstack::Route| {
                    let (destination, via) = (it.destination, Some(it.nexthop.to_string()));
                    Route { destination, via, active: true }
                };
                cloud.project.routes().await?.into_iter().map(route).collect()
            }
        })
    }

    /// The load balancers that are left, and their addresses if these are separate objects.
    pub(super) async fn left(&self) -> anyhow::Result<usize> {
        Ok(match self {
            Self::Sim(cloud) => cloud.state().await?.load_balancers.len(),
            Self::OpenStack(cloud) => {
                let count = cloud.project.count().await?;
                count.balancers + count.floating_ips
            }
        })
    }

    /// The number of calls of each operation.
    pub(super) async fn counts(&self) -> anyhow::Result<Counts> {
        Ok(match self {
            Self::Sim(cloud) => {
                let by_operation = cloud.counts().await?.by_operation;
                let operation = |it: adapter_sim::simcloud::Operation| Operation {
                    family: it.family(),
                    access: it.access(),
                    name: Cow::Owned(it.to_string()),
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
    /// Assigns calls to families by purpose, not by service: ports of instances and addresses of load balancers are in Neutron, too.
    fn of_openstack(call: &Call) -> Self {
        let name = openstack::operation(call);
        let is_of = |word: &str| call.path.starts_with(word);
        // Only the creation of routes changes the allowed addresses of ports.
        let ports = match name.as_str() {
            "GET ports" if call.path.contains("allowed_address_pairs") => Some(Family::Network),
            "GET ports" => Some(Family::Compute),
            _ => None,
        };
        let family = ports.unwrap_or(if is_of("/identity") {
            Family::Identity
        } else if is_of("/load-balancer") || is_of("/network/v2.0/floatingips") {
            Family::Loadbalancer
        } else if is_of("/compute") {
            Family::Compute
        } else {
            Family::Network
        });
        let name = if ports == Some(Family::Network) { format!("{name} with pairs") } else { name };
        let access = if call.write { Access::Write } else { Access::Read };
        Self { family, access, name: Cow::Owned(name) }
    }
}

impl Balancer {
    fn of_sim(balancer: &model::LoadBalancer) -> Self {
        let members = |listener: &model::Listener| {
            let pool = balancer.pools.iter().find(|pool| listener.pool_id.as_ref() == Some(&pool.id));
            pool.map_or(0, |pool| pool.members.len())
        };
        let listeners = balancer.listeners.iter().map(|it| Listener {
            protocol: format!("{:?}", it.protocol).to_uppercase(),
            port: it.port,
            members: members(it),
        });
        Self {
            id: balancer.id.clone(),
            status: format!("{:?}", balancer.status),
            active: balancer.status == ProvisioningStatus::Active,
            addresses: balancer.vips.clone(),
            listeners: listeners.collect(),
        }
    }

    fn of_openstack(balancer: &openstack::Balancer) -> Self {
        let listeners = balancer.listeners.iter().map(|it| Listener {
            protocol: it.protocol.clone(),
            port: it.protocol_port,
            members: it.members.len(),
        });
        Self {
            id: balancer.id.clone(),
            status: balancer.provisioning_status.clone(),
            active: balancer.is_active(),
            addresses: balancer.address().into_iter().collect(),
            listeners: listeners.collect(),
        }
    }
}

impl Route {
    fn of_sim(route: &model::Route) -> Self {
        let via = route.next_hop_instance.clone();
        Self {
            destination: route.destination.to_string(),
            via: via.or_else(|| route.next_hop_address.map(|it| it.to_string())),
            active: route.status == RouteStatus::Active,
        }
    }
}
