//! What a plan consists of: one step, one vendor write.

use std::{fmt, net::IpAddr};

use cloud_adapter::{
    driver::{Fault, RouteChanges, Step as DriverStep, VendorError},
    vendor::Operation,
};
use cloud_api_proto::v1alpha1::{LoadBalancerKey, Priority};

use crate::{
    client::{floating_ips, octavia, routers, security_groups},
    load_balancers::{
        node_access::{Closing, Opening},
        requests::{
            CreateLoadBalancer, Former, ListenerSettings, MonitorSettings, NewFloatingIp, NewListener,
            NewMember, NewMonitor, NewPool, Target, UpdatePool,
        },
    },
    ownership::{Claim, Sharing},
};

/// One vendor write.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Many routes at once, with what the machines' ports have to know of them.
    ChangeRoutes(RouteChanges),
    /// The load balancer, with all its parts or without any.
    CreateLoadBalancer(Box<CreateLoadBalancer>),
    /// Tags that make one ours which was nobody's.
    AdoptLoadBalancer {
        id: String,
        tags: Vec<String>,
    },
    /// The name that people see.
    RenameLoadBalancer {
        id: String,
        name: String,
    },
    /// Tags that say that it is complete.
    CompleteLoadBalancer {
        id: Part,
        tags: Vec<String>,
    },
    /// With all its parts, unless somebody else uses it by then. `seen`: its listeners as far as they are known.
    DeleteLoadBalancer {
        id: String,
        whose: Option<LoadBalancerKey>,
        seen: Vec<String>,
    },
    /// Tags of one that shares it, among the others' that are there by then. `complete`: they say that it is complete.
    ShareLoadBalancer {
        id: String,
        sharing: Box<Sharing>,
        complete: bool,
    },
    /// The tags of one that has done with it go, while others use it.
    LeaveLoadBalancer {
        id: String,
        whose: Option<LoadBalancerKey>,
    },
    /// The tags of an owner go that found it there.
    ReleaseLoadBalancer {
        id: String,
    },
    /// A port, with a pool that is there.
    CreateListener {
        balancer: Part,
        port: Port,
        listener: Box<NewListener>,
        pool: Part,
    },
    /// `pool`: another pool for it, if any.
    UpdateListener {
        id: String,
        port: Port,
        change: Box<ListenerSettings>,
        pool: Option<Part>,
    },
    /// A port. Its pool stays.
    DeleteListener {
        id: String,
        port: Port,
    },
    /// A pool without members.
    CreatePool {
        balancer: Part,
        pool: Box<NewPool>,
    },
    /// How a pool works, not what is in it.
    UpdatePool {
        id: String,
        name: String,
        change: UpdatePool,
    },
    /// A pool that no port has, with monitor and members.
    DeletePool {
        id: String,
        name: String,
    },
    /// All members of a pool.
    SetMembers {
        pool: Part,
        name: String,
        members: Vec<NewMember>,
    },
    /// Members that join a pool, or have another weight; the others stay.
    AddMembers {
        pool: Part,
        name: String,
        members: Vec<NewMember>,
    },
    /// How members are probed.
    CreateMonitor {
        pool: Part,
        name: String,
        monitor: NewMonitor,
    },
    UpdateMonitor {
        id: String,
        name: String,
        change: MonitorSettings,
    },
    DeleteMonitor {
        id: String,
        name: String,
    },
    /// A floating IP that leads to the load balancer. `None`: it has no port yet.
    CreateFloatingIp {
        new: NewFloatingIp,
        target: Option<Target>,
    },
    /// A floating IP that leads nowhere yet: it takes the place of another. If that is from the same pool, which was only called otherwise,
    /// that is said of it, and none is made.
    ReserveFloatingIp {
        new: NewFloatingIp,
        former: Option<Former>,
    },
    /// One that is ours already leads to the load balancer. `address`: `None` of one that an earlier step makes.
    AttachFloatingIp {
        id: Part,
        address: Option<IpAddr>,
        target: Option<Target>,
    },
    /// The same with one that the project has, whoever made it.
    AttachReserved {
        address: IpAddr,
        target: Option<Target>,
        claim: Box<Claim>,
    },
    /// What says whose it is, and whether it stays.
    DescribeFloatingIp {
        id: Part,
        /// `None` of one that an earlier step makes.
        address: Option<IpAddr>,
        description: String,
    },
    /// It leads nowhere, and stays in the project. `for_reserved`: it makes room for this one of the project's, which must be there and free.
    DetachFloatingIp {
        id: String,
        address: IpAddr,
        for_reserved: Option<(IpAddr, Box<Claim>)>,
    },
    DeleteFloatingIp {
        id: String,
        address: IpAddr,
    },
    /// The nodes' security groups let the load balancer through. `None`: it is not there yet.
    OpenNodes(Option<Box<Opening>>),
    /// They do no more, where it needs it no more.
    CloseNodes(Closing),
}

/// Part of a load balancer that a step needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// It is there.
    Known(String),
    /// An earlier step makes it.
    Coming,
}

impl Part {
    /// Its ID.
    ///
    /// # Errors
    /// [`Fault::Nonsense`] if it is not there yet: only the first step of a plan is carried out.
    pub(crate) fn id(&self) -> Result<&str, VendorError> {
        match self {
            Self::Known(id) => Ok(id),
            Self::Coming => Err(not_there()),
        }
    }
}

/// What a step needs to know of what it is for, such as where a floating IP shall lead.
///
/// # Errors
/// [`Fault::Nonsense`] if it is not there yet.
pub(crate) fn there<T>(known: Option<&T>) -> Result<&T, VendorError> {
    known.ok_or_else(not_there)
}

fn not_there() -> VendorError {
    VendorError::new(Fault::Nonsense, "the step needs what an earlier one makes")
}

/// What a port carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Transport {
    /// And all that is made of it, such as HTTP.
    Tcp,
    /// Packets.
    Udp,
    /// Both, in a way.
    Sctp,
}

impl Transport {
    /// That of one of Octavia's protocols, of a listener or a pool. `None`: nobody knows it.
    pub(crate) fn of(protocol: &str) -> Option<Self> {
        match protocol {
            "TCP" | "HTTP" | "HTTPS" | "TERMINATED_HTTPS" | "PROMETHEUS" | "PROXY" | "PROXYV2" => {
                Some(Self::Tcp)
            }
            "UDP" => Some(Self::Udp),
            "SCTP" => Some(Self::Sctp),
            _ => None,
        }
    }
}

/// Names a listener: a load balancer has at most one for a transport and port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Port {
    pub(crate) transport: Transport,
    pub(crate) number: u16,
}

impl Transport {
    /// That of a word of [`Port::word`].
    pub(crate) fn named(word: &str) -> Option<Self> {
        let all = [Self::Tcp, Self::Udp, Self::Sctp];
        all.into_iter().find(|one| Port { transport: *one, number: 0 }.word() == word)
    }
}

impl Port {
    pub(crate) fn word(self) -> &'static str {
        match self.transport {
            Transport::Tcp => "tcp",
            Transport::Udp => "udp",
            Transport::Sctp => "sctp",
        }
    }

    /// The name of its listener, pool and monitor at the cloud.
    pub(crate) fn name(self) -> String {
        format!("{}-{}", self.word(), self.number)
    }
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.word(), self.number)
    }
}

impl DriverStep for Step {
    fn operation(&self) -> Operation {
        match self {
            Self::ChangeRoutes(changes) if changes.add.is_empty() => routers::REMOVE_ROUTES,
            Self::ChangeRoutes(_) => routers::ADD_ROUTES,
            Self::CreateLoadBalancer(_) => octavia::CREATE_LOAD_BALANCER,
            Self::AdoptLoadBalancer { .. }
            | Self::RenameLoadBalancer { .. }
            | Self::CompleteLoadBalancer { .. }
            | Self::ShareLoadBalancer { .. }
            | Self::LeaveLoadBalancer { .. }
            | Self::ReleaseLoadBalancer { .. } => octavia::UPDATE_LOAD_BALANCER,
            Self::DeleteLoadBalancer { .. } => octavia::DELETE_LOAD_BALANCER,
            Self::CreateListener { .. } => octavia::CREATE_LISTENER,
            Self::UpdateListener { .. } => octavia::UPDATE_LISTENER,
            Self::DeleteListener { .. } => octavia::DELETE_LISTENER,
            Self::CreatePool { .. } => octavia::CREATE_POOL,
            Self::UpdatePool { .. } => octavia::UPDATE_POOL,
            Self::DeletePool { .. } => octavia::DELETE_POOL,
            Self::SetMembers { .. } | Self::AddMembers { .. } => octavia::UPDATE_MEMBERS,
            Self::CreateMonitor { .. } => octavia::CREATE_MONITOR,
            Self::UpdateMonitor { .. } => octavia::UPDATE_MONITOR,
            Self::DeleteMonitor { .. } => octavia::DELETE_MONITOR,
            Self::CreateFloatingIp { .. } | Self::ReserveFloatingIp { .. } => {
                floating_ips::CREATE_FLOATING_IP
            }
            Self::AttachFloatingIp { .. }
            | Self::AttachReserved { .. }
            | Self::DescribeFloatingIp { .. }
            | Self::DetachFloatingIp { .. } => floating_ips::UPDATE_FLOATING_IP,
            Self::DeleteFloatingIp { .. } => floating_ips::DELETE_FLOATING_IP,
            Self::OpenNodes(_) => security_groups::CREATE_RULES,
            Self::CloseNodes(_) => security_groups::DELETE_RULE,
        }
    }

    fn class(&self) -> Priority {
        match self {
            Self::ChangeRoutes(_)
            | Self::SetMembers { .. }
            | Self::AddMembers { .. }
            | Self::DeleteLoadBalancer { .. }
            | Self::DetachFloatingIp { .. }
            | Self::DeleteFloatingIp { .. }
            | Self::OpenNodes(_)
            | Self::CloseNodes(_) => Priority::Traffic,
            Self::CreateLoadBalancer(_)
            | Self::AdoptLoadBalancer { .. }
            | Self::RenameLoadBalancer { .. }
            | Self::CompleteLoadBalancer { .. }
            | Self::ShareLoadBalancer { .. }
            | Self::LeaveLoadBalancer { .. }
            | Self::ReleaseLoadBalancer { .. }
            | Self::CreateListener { .. }
            | Self::UpdateListener { .. }
            | Self::DeleteListener { .. }
            | Self::CreatePool { .. }
            | Self::UpdatePool { .. }
            | Self::DeletePool { .. }
            | Self::CreateMonitor { .. }
            | Self::UpdateMonitor { .. }
            | Self::DeleteMonitor { .. }
            | Self::CreateFloatingIp { .. }
            | Self::ReserveFloatingIp { .. }
            | Self::AttachFloatingIp { .. }
            | Self::AttachReserved { .. }
            | Self::DescribeFloatingIp { .. } => Priority::Interactive,
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ChangeRoutes(changes) => {
                write!(f, "remove {} and add {} routes", changes.remove.len(), changes.add.len())
            }
            Self::CreateLoadBalancer(new) if new.listeners.is_empty() => {
                write!(f, "create load balancer {}", new.name)
            }
            Self::CreateLoadBalancer(new) => {
                write!(f, "create load balancer {} with {} listeners", new.name, new.listeners.len())
            }
            Self::AdoptLoadBalancer { id, .. } => write!(f, "tag load balancer {id} as ours"),
            Self::RenameLoadBalancer { id, name } => write!(f, "call load balancer {id} {name}"),
            Self::CompleteLoadBalancer { .. } => write!(f, "tag load balancer as complete"),
            Self::ShareLoadBalancer { complete: true, .. } => write!(f, "tag the share as complete"),
            Self::ShareLoadBalancer { id, .. } => write!(f, "tag load balancer {id} as shared"),
            Self::LeaveLoadBalancer { id, .. } => {
                write!(f, "take the tags off load balancer {id}, which others use")
            }
            Self::ReleaseLoadBalancer { id } => write!(f, "take the tags off load balancer {id}"),
            Self::DeleteLoadBalancer { id, .. } => write!(f, "delete load balancer {id} with all its parts"),
            Self::CreateListener { port, .. } => write!(f, "create listener {port}"),
            Self::UpdateListener { port, pool: None, .. } => write!(f, "update listener {port}"),
            Self::UpdateListener { port, pool: Some(_), .. } => {
                write!(f, "give listener {port} its new pool")
            }
            Self::DeleteListener { port, .. } => write!(f, "delete listener {port}"),
            Self::CreatePool { pool, .. } => write!(f, "create pool {}", pool.name),
            Self::UpdatePool { name, .. } => write!(f, "update pool {name}"),
            Self::DeletePool { id, name } => write!(f, "delete pool {name} ({id})"),
            Self::SetMembers { name, members, .. } => {
                write!(f, "set the {} members of pool {name}", members.len())
            }
            Self::AddMembers { name, members, .. } => {
                write!(f, "add or change {} members of pool {name}", members.len())
            }
            Self::CreateMonitor { name, .. } => write!(f, "create the health monitor of pool {name}"),
            Self::UpdateMonitor { name, .. } => write!(f, "update the health monitor of pool {name}"),
            Self::DeleteMonitor { name, .. } => write!(f, "delete the health monitor of pool {name}"),
            Self::CreateFloatingIp { .. } => write!(f, "create a floating IP"),
            Self::ReserveFloatingIp { .. } => write!(f, "create a floating IP that is not used yet"),
            Self::AttachFloatingIp { address: None, .. } => write!(f, "attach the new floating IP"),
            Self::AttachFloatingIp { address: Some(address), .. } | Self::AttachReserved { address, .. } => {
                write!(f, "attach floating IP {address}")
            }
            Self::DescribeFloatingIp { address: None, .. } => {
                write!(f, "describe the new floating IP as ours")
            }
            Self::DescribeFloatingIp { address: Some(address), .. } => {
                write!(f, "describe floating IP {address} as ours")
            }
            Self::DetachFloatingIp { address, .. } => write!(f, "detach floating IP {address}"),
            Self::DeleteFloatingIp { address, .. } => write!(f, "delete floating IP {address}"),
            Self::OpenNodes(_) => write!(f, "let the load balancer through to the nodes"),
            Self::CloseNodes(_) => write!(f, "close what the load balancer needs of the nodes no more"),
        }
    }
}
