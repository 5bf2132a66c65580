//! Real control planes for tests and for the demo.
//!
//! A [`ControlPlane`] is etcd and kube-apiserver on loopback. The chart is installed on it with Helm, and the harness then
//! does what the parts that are missing would do: it runs each container's program as the Deployment says.
//!
//! It deliberately has no fake of anything of Kubernetes: what the API server refuses, refuses here.

mod audit;
mod control_plane;
mod eventually;
mod kubeconfig;
mod pki;
mod ports;
mod process;

use std::time::Duration;

pub use audit::{AuditLog, AuditWrite, Mark};
pub use control_plane::ControlPlane;
pub use e2e_tools::Tools;
pub use eventually::eventually;
pub use ports::Ports;
pub use process::{Launch, Process};

/// Finds the tools, or builds them, with progress on standard error.
///
/// # Errors
/// When one is nowhere and cannot be built.
pub fn tools() -> anyhow::Result<Tools> {
    let environment = e2e_tools::Environment::of_this_process()?;
    Ok(Tools::get(&environment, &mut e2e_tools::Terminal::new())?)
}

/// A number of seconds, for deadlines.
pub const fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}
