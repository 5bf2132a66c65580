//! The steps of a plan: each step is one vendor write.

use std::fmt;

use cloud_adapter::{
    driver::{RouteChanges, Step as DriverStep},
    vendor::Operation,
};
use cloud_api_proto::v1alpha1::Priority;
use serde::Serialize;

use crate::{
    client::{load_balancers as calls, routes::BATCH_ROUTES},
    load_balancers::Member,
    tags::Tags,
};

/// One vendor write.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Creates the load balancer, without ports.
    CreateLoadBalancer(NewLoadBalancer),
    /// Replaces all tags of a load balancer.
    Tag { id: String, tags: Tags },
    /// Deletes a load balancer with all its parts.
    DeleteLoadBalancer { id: String },
    /// Creates a port with its pool.
    CreateListener { balancer: String, listener: NewListener },
    /// Deletes a port. Its pool remains.
    DeleteListener { id: String, port: u32 },
    /// Deletes a pool that no port uses.
    DeletePool { id: String },
    /// Replaces all members of a pool.
    SetMembers { pool: String, members: Vec<Member> },
    /// Deletes and creates routes.
    ChangeRoutes(RouteChanges),
}

/// The request for a load balancer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NewLoadBalancer {
    pub(crate) name: String,
    pub(crate) scheme: &'static str,
    pub(crate) families: Vec<String>,
    pub(crate) tags: Tags,
    pub(crate) client_token: String,
}

/// The request for a listener.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NewListener {
    pub(crate) protocol: &'static str,
    pub(crate) port: u32,
    pub(crate) pool: NewPool,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct NewPool {
    pub(crate) protocol: &'static str,
    pub(crate) members: Vec<Member>,
}

impl DriverStep for Step {
    fn operation(&self) -> Operation {
        match self {
            Self::CreateLoadBalancer(_) => calls::CREATE_LOAD_BALANCER,
            Self::Tag { .. } => calls::UPDATE_LOAD_BALANCER,
            Self::DeleteLoadBalancer { .. } => calls::DELETE_LOAD_BALANCER,
            Self::CreateListener { .. } => calls::CREATE_LISTENER,
            Self::DeleteListener { .. } => calls::DELETE_LISTENER,
            Self::DeletePool { .. } => calls::DELETE_POOL,
            Self::SetMembers { .. } => calls::SET_MEMBERS,
            Self::ChangeRoutes(_) => BATCH_ROUTES,
        }
    }

    fn class(&self) -> Priority {
        match self {
            Self::DeleteLoadBalancer { .. } | Self::SetMembers { .. } | Self::ChangeRoutes(_) => {
                Priority::Traffic
            }
            Self::CreateLoadBalancer(_)
            | Self::Tag { .. }
            | Self::CreateListener { .. }
            | Self::DeleteListener { .. }
            | Self::DeletePool { .. } => Priority::Interactive,
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CreateLoadBalancer(new) => write!(f, "create load balancer {}", new.name),
            Self::Tag { .. } => write!(f, "tag load balancer"),
            Self::DeleteLoadBalancer { id } => write!(f, "delete load balancer {id} with all its parts"),
            Self::CreateListener { listener, .. } => write!(f, "create listener tcp/{}", listener.port),
            Self::DeleteListener { port, .. } => write!(f, "delete listener tcp/{port}"),
            Self::DeletePool { id } => write!(f, "delete pool {id}"),
            Self::SetMembers { pool, members } => {
                write!(f, "set the {} members of pool {pool}", members.len())
            }
            Self::ChangeRoutes(changes) => {
                write!(f, "remove {} and add {} routes", changes.remove.len(), changes.add.len())
            }
        }
    }
}
