//! The content of a project, as reported by the services.

use std::collections::BTreeMap;
use std::net::IpAddr;

use anyhow::Context;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::account::{Account, Service};

/// The objects that a test may leave behind.
#[derive(Clone, Debug)]
pub struct State {
    /// Instances.
    pub servers: Vec<Server>,
    /// Load balancers with their parts.
    pub balancers: Vec<Balancer>,
    /// Addresses of the external network.
    pub floating_ips: Vec<FloatingIp>,
    /// The router's extra routes.
    pub routes: Vec<Route>,
    /// The number of all ports.
    pub ports: usize,
}

/// An instance.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Server {
    /// The ID.
    pub id: String,
    /// The name.
    pub name: String,
    /// `ACTIVE`, `SHUTOFF`, ...
    pub status: String,
}

/// A load balancer.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Balancer {
    /// The ID.
    pub id: String,
    /// The name.
    pub name: String,
    /// `ACTIVE`, `PENDING_CREATE`, `ERROR`, ...
    pub provisioning_status: String,
    /// The address inside the project.
    pub vip_address: Option<IpAddr>,
    /// The port that has the address.
    pub vip_port_id: Option<String>,
    /// The owner tags and all other tags of the load balancer.
    pub tags: Vec<String>,
    /// The floating IP.
    #[serde(skip)]
    pub floating_ip: Option<IpAddr>,
    /// The listeners.
    #[serde(skip)]
    pub listeners: Vec<Listener>,
}

/// A listener of a load balancer.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Listener {
    /// The ID.
    pub id: String,
    /// The name.
    pub name: String,
    /// `TCP`, ...
    pub protocol: String,
    /// The port number.
    pub protocol_port: u16,
    /// The pool of the listener.
    pub default_pool_id: Option<String>,
    /// The members of the listener's pool.
    #[serde(skip)]
    pub members: Vec<Member>,
    loadbalancers: Vec<Reference>,
}

/// A backend of a load balancer.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Member {
    /// The address.
    pub address: IpAddr,
    /// The port number.
    pub protocol_port: u16,
}

/// An address of the external network.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct FloatingIp {
    /// The ID.
    pub id: String,
    /// The address.
    pub floating_ip_address: IpAddr,
    /// The port that the address is assigned to.
    pub port_id: Option<String>,
}

/// An extra route of the router.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Route {
    /// The destination, such as `10.240.1.0/24`.
    pub destination: String,
    /// The next hop: an address of an instance.
    pub nexthop: IpAddr,
}

/// The numbers of objects that a test may leave behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Instances.
    pub servers: usize,
    /// Load balancers.
    pub balancers: usize,
    /// Floating IPs.
    pub floating_ips: usize,
    /// Extra routes.
    pub routes: usize,
    /// Ports.
    pub ports: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
struct Reference {
    id: String,
}

impl State {
    /// The number of objects of each kind.
    pub fn count(&self) -> Count {
        Count {
            servers: self.servers.len(),
            balancers: self.balancers.len(),
            floating_ips: self.floating_ips.len(),
            routes: self.routes.len(),
            ports: self.ports,
        }
    }

    /// Reads the content of a project, with the routes of a router.
    pub(super) async fn of(account: &Account, router: &str) -> anyhow::Result<Self> {
        let project = &account.project;
        let ports: Vec<Reference> =
            neutron(account, "ports", &format!("project_id={project}&fields=id")).await?;
        let floating_ips: Vec<FloatingIp> =
            neutron(account, "floatingips", &format!("project_id={project}")).await?;
        let routes = routes(account, router).await?;
        let servers = part(&account.get(Service::Compute, "/servers/detail").await?, "/servers")?;
        let balancers = balancers(account, &floating_ips).await?;
        Ok(Self { servers, balancers, floating_ips, routes, ports: ports.len() })
    }
}

impl Balancer {
    /// The address that users connect to.
    pub fn address(&self) -> Option<IpAddr> {
        self.floating_ip.or(self.vip_address)
    }

    /// Whether the load balancer is active and no change is in progress.
    pub fn is_active(&self) -> bool {
        self.provisioning_status == "ACTIVE"
    }
}

pub(super) async fn routes(account: &Account, router: &str) -> anyhow::Result<Vec<Route>> {
    let shown = account.get(Service::Network, &format!("/v2.0/routers/{router}")).await?;
    part(&shown, "/router/routes")
}

async fn balancers(account: &Account, floating_ips: &[FloatingIp]) -> anyhow::Result<Vec<Balancer>> {
    let mut balancers: Vec<Balancer> = octavia(account, "loadbalancers").await?;
    let mut listeners: Vec<Listener> =
        if balancers.is_empty() { Vec::new() } else { octavia(account, "listeners").await? };
    let mut members = BTreeMap::new();
    for pool in listeners.iter().filter_map(|listener| listener.default_pool_id.clone()) {
        let path = format!("/v2/lbaas/pools/{pool}/members");
        let found = account.get(Service::LoadBalancer, &path).await?;
        let found: Vec<Member> = part(&found, "/members")?;
        members.insert(pool, found);
    }
    for listener in &mut listeners {
        let of_pool = listener.default_pool_id.as_ref().and_then(|pool| members.get(pool));
        listener.members = of_pool.cloned().unwrap_or_default();
    }
    for balancer in &mut balancers {
        let leads_here = |ip: &&FloatingIp| ip.port_id.is_some() && ip.port_id == balancer.vip_port_id;
        balancer.floating_ip = floating_ips.iter().find(leads_here).map(|ip| ip.floating_ip_address);
        let of_it = |it: &&Listener| it.loadbalancers.iter().any(|one| one.id == balancer.id);
        balancer.listeners = listeners.iter().filter(of_it).cloned().collect();
        balancer.listeners.sort_by_key(|it| (it.protocol_port, it.protocol.clone()));
    }
    Ok(balancers)
}

async fn octavia<T: DeserializeOwned>(account: &Account, what: &str) -> anyhow::Result<Vec<T>> {
    let path = format!("/v2/lbaas/{what}?project_id={}", account.project);
    part(&account.get(Service::LoadBalancer, &path).await?, &format!("/{what}"))
}

async fn neutron<T: DeserializeOwned>(account: &Account, what: &str, query: &str) -> anyhow::Result<Vec<T>> {
    let answer = account.get(Service::Network, &format!("/v2.0/{what}?{query}")).await?;
    part(&answer, &format!("/{what}"))
}

pub(super) fn part<T: DeserializeOwned>(answer: &Value, pointer: &str) -> anyhow::Result<T> {
    let found = answer.pointer(pointer).with_context(|| format!("no {pointer} in {answer}"))?;
    T::deserialize(found).with_context(|| format!("{pointer} is {found}"))
}
