//! The adapter *runtime*: the parts of a cloud adapter that are the same for all clouds.
//!
//! A vendor implements [`driver::Driver`]. This crate is the gRPC server around that driver. It provides budgeted access to the vendor
//! ([`vendor`]), access control (`auth`), and shared listings with their watches (`snapshot`). It also provides convergence tasks that
//! outlive the call (`load_balancers`), routes, the existence of instances, health, metrics and the status page (`page`). The crate uses
//! Kubernetes only for access control and for the Lease by which replicas elect a leader (`standby`, `leadership`).

mod access_control;
// This module is public only for its tests over real connections.
#[doc(hidden)]
pub mod auth;
mod clock;
mod config;
mod context;
mod credentials;
pub mod driver;
mod fence;
mod grants;
mod http;
mod instances;
pub mod kit;
mod leadership;
mod load_balancers;
pub mod metrics;
mod operation;
mod page;
mod process;
mod reload;
mod routes;
mod rpc;
mod self_check;
mod server;
mod snapshot;
mod standby;
mod status;
mod strings;
#[cfg(any(test, feature = "testing"))]
#[expect(clippy::expect_used, clippy::missing_panics_doc, reason = "a failure here fails the test")]
pub mod testing;
pub mod vendor;
mod wrong_usage;

pub use telemetry::logging::LogFormat;

pub use self::{
    access_control::{AuthenticationKind, SecurityOptions},
    config::{
        BatchWindow, CacheSettings, CollectionSettings, Config, ConfigError, Options, ReplicaMode,
        ReplicaOptions,
    },
    grants::{Grant, Grants},
    load_balancers::rehearsal::{Cluster, NextAction, Request, next_action},
    process::{run, run_through},
    server::Adapter,
    wrong_usage::WrongUsage,
};
