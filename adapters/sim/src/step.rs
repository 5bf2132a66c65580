//! What a plan consists of: one step, one vendor write.

use std::fmt;

use cloud_adapter::{
    driver::{Fault, Step as DriverStep, VendorError},
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

/// One vendor write.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// The load balancer itself, without ports.
    CreateLoadBalancer(Box<CreateLoadBalancer>),
    /// Tags that make one ours which was nobody's.
    AdoptLoadBalancer { id: String, change: UpdateLoadBalancer },
    /// The name that people see.
    RenameLoadBalancer { id: String, name: String },
    /// Tags; at the end of a plan they say that it is complete.
    UpdateLoadBalancer { balancer: Part, change: UpdateLoadBalancer },
    /// With all its parts.
    DeleteLoadBalancer { id: String },
    /// A port with its pool.
    CreateListener { balancer: Part, request: Box<CreateListener> },
    /// `pool`: another pool for it, if any.
    UpdateListener { id: String, port: Port, change: UpdateListener, pool: Option<Part> },
    /// A port. Its pool stays.
    DeleteListener { id: String, port: Port },
    /// A pool for a port that has another.
    CreatePool { balancer: String, request: Box<CreatePool> },
    /// How a pool works, not what is in it.
    UpdatePool { id: String, name: String, change: UpdatePool },
    /// A pool that no port has.
    DeletePool { id: String, name: String },
    /// All members of a pool.
    SetMembers { pool: String, name: String, members: Vec<Member> },
    /// What differs in a pool's members.
    UpdateMembers { pool: String, name: String, change: UpdateMembers },
    /// Many routes at once.
    BatchRoutes(RouteBatch),
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
            Self::Coming => {
                Err(VendorError::new(Fault::Nonsense, "the step needs what an earlier one makes"))
            }
        }
    }
}

/// Names a listener: a load balancer has at most one for a protocol and port.
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

    /// The name of its listener and pool at the vendor.
    pub(crate) fn name(self) -> String {
        format!("{}-{}", self.word(), self.number)
    }
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.word(), self.number)
    }
}

/// Routes for one call.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RouteBatch {
    /// IDs.
    pub(crate) remove: Vec<String>,
    /// A route that cannot be asked for keeps its place, so that results stay in order.
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
            Self::AdoptLoadBalancer { id, .. } => write!(f, "tag load balancer {id} as ours"),
            Self::RenameLoadBalancer { id, name } => write!(f, "call load balancer {id} {name}"),
            Self::UpdateLoadBalancer { .. } => write!(f, "tag load balancer as complete"),
            Self::DeleteLoadBalancer { id } => write!(f, "delete load balancer {id} with all its parts"),
            Self::CreateListener { request, .. } => {
                let port = Port { protocol: request.protocol, number: request.port };
                let members = request.pool.as_ref().map(|pool| pool.members.len()).unwrap_or_default();
                write!(f, "create listener {port} with {members} members")
            }
            Self::UpdateListener { port, pool: None, .. } => write!(f, "update listener {port}"),
            Self::UpdateListener { port, pool: Some(_), .. } => {
                write!(f, "give listener {port} its new pool")
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
