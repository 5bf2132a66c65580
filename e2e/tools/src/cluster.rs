//! A whole cluster on this host. etcd, kube-apiserver, kube-controller-manager and kube-scheduler run in one network namespace, the
//! *fabric*. Each of one to three nodes has its own namespace with containerd, kubelet and kube-proxy, connected to the fabric's bridge by
//! veth. The kubelets run with `--cloud-provider=external`, so nodes have the `uninitialized` taint until a controller removes it.
//!
//! Read the modules in this order:
//! - [`layout`]: all names, addresses and files; `servers`, `files`: argument lists and configuration. All of these are pure functions.
//! - `needs`: the prerequisites; `lock`: exclusive access to the cluster; `pki`, `network`, `images`, `sysctls`, `process`, `wait`:
//!   helpers;
//! - [`up`](mod@up), [`down`](mod@down), [`status`](mod@status), [`client`]: the operations on the cluster;
//! - [`cloud`]: a simulated cloud in the fabric, whose instances are the nodes; [`data_plane`]: applies the routes of this cloud to the
//!   namespaces. There are no other routes: pods of different nodes reach each other only by the routes that a controller creates.
//!
//! No packet leaves the host, because the fabric has no uplink. Deliberately not supported: more than one cluster at a time, IPv6, cluster
//! DNS.

pub mod client;
pub mod cloud;
pub mod data_plane;
pub mod down;
mod files;
mod images;
pub mod layout;
mod lock;
mod needs;
mod network;
mod pki;
mod process;
mod programs;
mod run;
mod servers;
pub mod status;
mod sysctls;
pub mod up;
mod wait;

pub use client::{check, kubectl, load};
pub use down::down;
pub use layout::Layout;
pub use lock::lock;
pub use needs::root;
pub use process::stop;
pub use programs::Programs;
pub use status::status;
pub use up::{Order, up};
