//! The steps of a plan. Each step is one vendor write.

use std::fmt;

use cloud_adapter::{
    driver::{Step as DriverStep, VendorError},
    kit::Part,
    vendor::Operation,
};
use cloud_api_proto::v1alpha1::Priority;

use crate::{
    client,
    simcloud::{
        model::{ListenerProtocol, Member},
        requests::{
            AddRoute, CreateListener, CreateLoadBalancer, CreatePool, UpdateListener, UpdateLoadBalancer,
            UpdateMembers, UpdatePool,
        },
    },
};

#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    CreateLoadBalancer(Box<CreateLoadBalancer>),
    /// Sets owner tags on a load balancer without owner.
    AdoptLoadBalancer {
        id: String,
        change: UpdateLoadBalancer,
    },
    RenameLoadBalancer {
        id: String,
        name: String,
    },
    /// Sets tags. In the last step of a plan, the tags mark the load balancer as complete.
    UpdateLoadBalancer {
        balancer: Part,
        change: UpdateLoadBalancer,
    },
    DeleteLoadBalancer {
        id: String,
    },
    CreateListener {
        balancer: Part,
        request: Box<CreateListener>,
    },
    /// Changes a listener. `pool`: the new pool, if it changes.
    UpdateListener {
        id: String,
        port: Port,
        change: UpdateListener,
        pool: Option<Part>,
    },
    /// Deletes a listener. Its pool stays.
    DeleteListener {
        id: String,
        port: Port,
    },
    CreatePool {
        balancer: String,
        request: Box<CreatePool>,
    },
    /// Changes the settings of a pool, but not its members.
    UpdatePool {
        id: String,
        name: String,
        change: UpdatePool,
    },
    /// Deletes a pool that no listener uses.
    DeletePool {
        id: String,
        name: String,
    },
    SetMembers {
        pool: String,
        name: String,
        members: Vec<Member>,
    },
    UpdateMembers {
        pool: String,
        name: String,
        change: UpdateMembers,
    },
    BatchRoutes(RouteBatch),
}

/// The key of a listener. A load balancer has at most one listener for each protocol and port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Port {
    pub(crate) protocol: ListenerProtocol,
    pub(crate) number: u16,
}

impl Port {
    fn word(self) -> &'static str {
        match self.protocol {
            ListenerProtocol::Tcp => "tcp",
            ListenerProtocol::Udp => "udp",
            ListenerProtocol::Sctp => "sctp",
        }
    }

    pub(crate) fn name(self) -> String {
        format!("{}-{}", self.word(), self.number)
    }
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.word(), self.number)
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct RouteBatch {
    pub(crate) remove: Vec<String>,
    /// Routes to add. An invalid route keeps its position, so that results stay in order.
    pub(crate) add: Vec<Result<AddRoute, VendorError>>,
}

impl DriverStep for Step {
    fn operation(&self) -> Operation {
        match self {
            Self::CreateLoadBalancer(_) => client::CREATE_LOAD_BALANCER,
            Self::AdoptLoadBalancer { .. }
            | Self::RenameLoadBalancer { .. }
            | Self::UpdateLoadBalancer { .. } => client::UPDATE_LOAD_BALANCER,
            Self::DeleteLoadBalancer { .. } => client::DELETE_LOAD_BALANCER,
            Self::CreateListener { .. } => client::CREATE_LISTENER,
            Self::UpdateListener { .. } => client::UPDATE_LISTENER,
            Self::DeleteListener { .. } => client::DELETE_LISTENER,
            Self::CreatePool { .. } => client::CREATE_POOL,
            Self::UpdatePool { .. } => client::UPDATE_POOL,
            Self::DeletePool { .. } => client::DELETE_POOL,
            Self::SetMembers { .. } => client::SET_MEMBERS,
            Self::UpdateMembers { .. } => client::UPDATE_MEMBERS,
            Self::BatchRoutes(_) => client::BATCH_ROUTES_CALL,
        }
    }

    fn class(&self) -> Priority {
        match self {
            Self::DeleteLoadBalancer { .. }
            | Self::SetMembers { .. }
            | Self::UpdateMembers { .. }
            | Self::BatchRoutes(_) => Priority::Traffic,
            Self::CreateLoadBalancer(_)
            | Self::AdoptLoadBalancer { .. }
            | Self::RenameLoadBalancer { .. }
            | Self::UpdateLoadBalancer { .. }
            | Self::CreateListener { .. }
            | Self::UpdateListener { .. }
            | Self::DeleteListener { .. }
            | Self::CreatePool { .. }
            | Self::UpdatePool { .. }
            | Self::DeletePool { .. } => Priority::Interactive,
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CreateLoadBalancer(request) => write!(f, "create load balancer {}", request.name),
            Self::AdoptLoadBalancer { id, .. } => write!(f, "tag load balancer {id} with its owner"),
            Self::RenameLoadBalancer { id, name } => write!(f, "rename load balancer {id} to {name}"),
            Self::UpdateLoadBalancer { .. } => write!(f, "tag load balancer as complete"),
            Self::DeleteLoadBalancer { id } => write!(f, "delete load balancer {id} with all its parts"),
            Self::CreateListener { request, .. } => {
                let port = Port { protocol: request.protocol, number: request.port };
                let members = request.pool.as_ref().map(|pool| pool.members.len()).unwrap_or_default();
                write!(f, "create listener {port} with {members} members")
            }
            Self::UpdateListener { port, pool: None, .. } => write!(f, "update listener {port}"),
            Self::UpdateListener { port, pool: Some(_), .. } => {
                write!(f, "assign the new pool to listener {port}")
            }
            Self::DeleteListener { port, .. } => write!(f, "delete listener {port}"),
            Self::CreatePool { request, .. } => write!(f, "create pool {}", request.name),
            Self::UpdatePool { name, .. } => write!(f, "update pool {name}"),
            Self::DeletePool { id, name } if name.is_empty() => write!(f, "delete pool {id}"),
            Self::DeletePool { id, name } => write!(f, "delete pool {name} ({id})"),
            Self::SetMembers { name, members, .. } => {
                write!(f, "set the {} members of pool {name}", members.len())
            }
            Self::UpdateMembers { name, change, .. } => {
                let (add, remove) = (change.add.len(), change.remove.len());
                write!(f, "add {add} and remove {remove} members of pool {name}")
            }
            Self::BatchRoutes(batch) => {
                write!(f, "remove {} and add {} routes", batch.remove.len(), batch.add.len())
            }
        }
    }
}
