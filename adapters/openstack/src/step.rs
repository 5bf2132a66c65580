//! The steps of a plan. Most steps are one vendor write.

use std::{fmt, net::IpAddr};

use cloud_adapter::{
    driver::{RouteChanges, Step as DriverStep},
    kit::Part,
    vendor::Operation,
};
use cloud_api_proto::v1alpha1::{LoadBalancerKey, Priority};

use crate::{
    api::requests::{
        CreateLoadBalancer, Former, ListenerSettings, MonitorSettings, NewFloatingIp, NewListener, NewMember,
        NewMonitor, NewPool, Target, UpdatePool,
    },
    client::{floating_ips, octavia, routers, security_groups},
    load_balancers::node_access::{Closing, Opening},
    ownership::{Claim, Description, Sharing},
    port::Port,
};

/// One step of a plan. Most steps are one vendor write, but changes of routes and security groups may need several.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Changes many routes at once, and the address pairs that the routes need on the servers' ports.
    ChangeRoutes(RouteChanges),
    /// Creates the load balancer, either together with its listeners and pools or without them.
    CreateLoadBalancer(Box<CreateLoadBalancer>),
    /// Writes the owner's tags without marking the load balancer as complete, for example when the owner adopts it.
    AdoptLoadBalancer {
        id: String,
        tags: Vec<String>,
    },
    /// Changes the display name.
    RenameLoadBalancer {
        id: String,
        name: String,
    },
    /// Tags the load balancer as complete.
    CompleteLoadBalancer {
        id: Part,
        tags: Vec<String>,
    },
    /// Deletes the load balancer with all its parts, unless another owner has started to use the load balancer. `seen`: IDs of the known
    /// listeners.
    DeleteLoadBalancer {
        id: String,
        whose: Option<LoadBalancerKey>,
        seen: Vec<String>,
    },
    /// Adds the tags of an owner that shares the load balancer to those of the other owners. `complete`: whether the tags mark this owner's
    /// listeners and pools as complete.
    ShareLoadBalancer {
        id: String,
        sharing: Box<Sharing>,
        complete: bool,
    },
    /// Removes the tags of an owner that no longer needs the load balancer, while other owners use it.
    LeaveLoadBalancer {
        id: String,
        whose: Option<LoadBalancerKey>,
    },
    /// Removes the tags of the owner that adopted the load balancer.
    ReleaseLoadBalancer {
        id: String,
    },
    /// Creates a listener for a port. The listener uses an existing pool.
    CreateListener {
        balancer: Part,
        port: Port,
        listener: Box<NewListener>,
        pool: Part,
    },
    /// Updates a listener. `pool`: the pool to switch to, if any.
    UpdateListener {
        id: String,
        port: Port,
        change: Box<ListenerSettings>,
        pool: Option<Part>,
    },
    /// Deletes the listener of a port. Its pool stays.
    DeleteListener {
        id: String,
        port: Port,
    },
    /// Creates a pool without members.
    CreatePool {
        balancer: Part,
        pool: Box<NewPool>,
    },
    /// Changes the settings of a pool, but not its members.
    UpdatePool {
        id: String,
        name: String,
        change: UpdatePool,
    },
    /// Deletes a pool that no listener uses, with its monitor and members.
    DeletePool {
        id: String,
        name: String,
    },
    /// Replaces all members of a pool.
    SetMembers {
        pool: Part,
        name: String,
        members: Vec<NewMember>,
    },
    /// Adds members to a pool, or changes their weights. Other members do not change.
    AddMembers {
        pool: Part,
        name: String,
        members: Vec<NewMember>,
    },
    /// Creates the health monitor of a pool.
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
    /// Creates a floating IP for the load balancer. `target`: `None` if the load balancer has no port yet.
    CreateFloatingIp {
        new: NewFloatingIp,
        target: Option<Target>,
    },
    /// Creates an unattached floating IP that replaces the floating IP `former`. If `former` is from the same pool under another name,
    /// creates no floating IP, but records the name in the description of `former`.
    ReserveFloatingIp {
        new: NewFloatingIp,
        former: Option<Former>,
    },
    /// Attaches a floating IP that this cluster owns. `address` is `None` if an earlier step creates the floating IP.
    AttachFloatingIp {
        id: Part,
        address: Option<IpAddr>,
        target: Option<Target>,
    },
    /// Attaches a floating IP of the project, no matter which client created it.
    AttachReserved {
        address: IpAddr,
        target: Option<Target>,
        claim: Box<Claim>,
    },
    /// Records the owner of the floating IP in its description, and whether the floating IP is kept.
    DescribeFloatingIp {
        id: Part,
        /// The address; `None` if an earlier step creates the floating IP.
        address: Option<IpAddr>,
        description: String,
    },
    /// Detaches the floating IP and keeps it in the project. `for_reserved`: another floating IP of the project, which replaces the
    /// detached one. The replacement must exist and be free.
    DetachFloatingIp {
        id: String,
        address: IpAddr,
        for_reserved: Option<(IpAddr, Box<Claim>)>,
    },
    DeleteFloatingIp {
        id: String,
        address: IpAddr,
    },
    /// Lets packets of the load balancer through the nodes' security groups. `None`: the load balancer does not exist yet.
    OpenNodes(Option<Box<Opening>>),
    /// Removes the access to the nodes that the load balancer no longer needs.
    CloseNodes(Closing),
}

impl Step {
    /// Returns the record of the address if the step marks the address as kept.
    pub(crate) fn keeps(&self) -> Option<Description> {
        let (Self::CreateFloatingIp { new: NewFloatingIp { description, .. }, .. }
        | Self::DescribeFloatingIp { description, .. }) = self
        else {
            return None;
        };
        Description::read(description).filter(|record| record.keep)
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
            Self::AdoptLoadBalancer { id, .. } => {
                write!(f, "tag load balancer {id} as owned by this cluster")
            }
            Self::RenameLoadBalancer { id, name } => write!(f, "rename load balancer {id} to {name}"),
            Self::CompleteLoadBalancer { .. } => write!(f, "tag load balancer as complete"),
            Self::ShareLoadBalancer { complete: true, .. } => {
                write!(f, "tag the share of the load balancer as complete")
            }
            Self::ShareLoadBalancer { id, .. } => write!(f, "tag load balancer {id} as shared"),
            Self::LeaveLoadBalancer { id, .. } => {
                write!(f, "remove the owner's tags from load balancer {id}, which others use")
            }
            Self::ReleaseLoadBalancer { id } => write!(f, "remove the owner tags from load balancer {id}"),
            Self::DeleteLoadBalancer { id, .. } => write!(f, "delete load balancer {id} with all its parts"),
            Self::CreateListener { port, .. } => write!(f, "create listener {port}"),
            Self::UpdateListener { port, pool: None, .. } => write!(f, "update listener {port}"),
            Self::UpdateListener { port, pool: Some(_), .. } => {
                write!(f, "switch listener {port} to its new pool")
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
            Self::ReserveFloatingIp { .. } => write!(f, "create an unattached floating IP"),
            Self::AttachFloatingIp { address: None, .. } => write!(f, "attach the new floating IP"),
            Self::AttachFloatingIp { address: Some(address), .. } | Self::AttachReserved { address, .. } => {
                write!(f, "attach floating IP {address}")
            }
            Self::DescribeFloatingIp { address: None, .. } => {
                write!(f, "describe the new floating IP as owned by this cluster")
            }
            Self::DescribeFloatingIp { address: Some(address), .. } => {
                write!(f, "describe floating IP {address} as owned by this cluster")
            }
            Self::DetachFloatingIp { address, .. } => write!(f, "detach floating IP {address}"),
            Self::DeleteFloatingIp { address, .. } => write!(f, "delete floating IP {address}"),
            Self::OpenNodes(_) => write!(f, "let the load balancer through the nodes' security groups"),
            Self::CloseNodes(_) => write!(f, "remove access to the nodes that is no longer needed"),
        }
    }
}
