//! Real control planes for tests, for the demo and for the benchmark.
//!
//! A [`ControlPlane`] is etcd and kube-apiserver on loopback. A [`Release`] is the chart, installed on it with Helm. [`Pods`] does the work
//! of the kubelet: it runs each container's program as its Deployment specifies. [`Simcloud`] is the cloud that the programs use. A
//! [`Cluster`] combines all of them.
//!
//! There are deliberately no fakes of Kubernetes, so a real API server validates all requests.

mod api_proxy;
mod audit;
mod bed;
pub mod bench;
mod browser;
mod cluster;
mod control_plane;
mod dashboard;
pub mod demo;
pub mod docs;
mod eventually;
mod grpc;
mod helm;
mod http;
mod kubeconfig;
mod load;
mod metrics;
mod objects;
pub mod openstack;
mod peer;
mod pki;
mod pod_ip;
mod pods;
mod process;
mod prometheus;
mod quiet;
mod rights;
mod signals;
mod simcloud;

use std::time::Duration;

pub use api_proxy::{ApiProxy, Held};
pub use audit::{AuditLog, AuditWrite, Mark};
pub use bed::{ADAPTER, Bed, CONTROLLERS, address, is_uninitialised, network_unavailable};
pub use browser::{Browser, Screenshot, Seen};
pub use cluster::Cluster;
pub use control_plane::{ControlPlane, pool};
pub use dashboard::dashboard_queries;
pub use e2e_tools::Tools;
pub use eventually::{WITHIN, eventually};
pub use grpc::GrpcPort;
pub use helm::{Release, Values, merge};
pub use kubeconfig::kubeconfig_with_token;
pub use load::{Load, Outcome};
pub use objects::{
    NodeBuilder, Ready, ServiceBuilder, UNINITIALIZED, delete_node, events_on, node, publish_endpoint,
    service, set_ready,
};
pub use peer::{Peer, PeerController, PeerFlags, PeerSite};
pub use pki::new_authority;
pub use pods::{Pod, Pods, binaries, run_pod};
pub use process::{Launch, Process};
pub use prometheus::{Alert, Pace, Prometheus, PrometheusApi, Rule, Sample};
pub use rights::{rights, rights_listed};
pub use simcloud::{Simcloud, State};

/// Finds the tools or builds them, with progress on standard error.
pub fn tools() -> anyhow::Result<Tools> {
    let environment = e2e_tools::Environment::of_this_process()?;
    Ok(Tools::get(&environment, &mut e2e_tools::Terminal::new())?)
}

/// Converts a number of seconds to a duration, for deadlines.
pub const fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}
