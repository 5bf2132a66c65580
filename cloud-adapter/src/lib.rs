//! The adapter *runtime*: everything of a cloud adapter that is the same for every cloud.
//!
//! A vendor writes a [`driver::Driver`]; this crate is the gRPC server around it: the one way to the vendor with its budget
//! ([`vendor`]), shared listings and their watches (`snapshot`), convergence tasks that outlive the call (`load_balancers`),
//! routes, existence, health, metrics, the status page (`page`). Of Kubernetes it knows the Lease that
//! one of several replicas holds (`replica`), and nothing else.

mod clock;
mod config;
mod context;
mod credentials;
pub mod driver;
mod fence;
mod grants;
mod http;
mod instances;
mod load_balancers;
pub mod metrics;
mod page;
mod process;
mod replica;
mod routes;
mod rpc;
mod security;
mod self_check;
mod server;
mod snapshot;
mod status;
mod strings;
mod urgency;
pub mod vendor;

pub use self::{
    config::{BatchWindow, CacheSettings, CollectionSettings, Config, ConfigError, LogFormat, Options},
    grants::{Grant, Grants},
    load_balancers::rehearsal::{Foretold, Request, foretell},
    process::{WrongUsage, run, run_through},
    replica::{ReplicaMode, ReplicaOptions},
    security::{AuthenticationKind, SecurityOptions},
    server::Adapter,
};
