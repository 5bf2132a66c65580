//! A whole cluster on this machine: etcd, kube-apiserver, kube-controller-manager and kube-scheduler in one network namespace,
//! the *fabric*, and one to three nodes with containerd, kubelet and kube-proxy in a namespace each, joined to the fabric's bridge
//! by veth. The kubelets have an external cloud provider, so nodes carry the `uninitialized` taint until a controller removes it.
//!
//! In reading order:
//! - [`layout`]: the names, addresses and files of everything; `servers`, `files`: argument lists and configuration. All pure.
//! - `needs`: what must be there first; `lock`: one at a time; `pki`, `network`, `images`, `sysctls`, `process`, `wait`: the means;
//! - [`up`](mod@up), [`down`](mod@down), [`status`](mod@status), [`client`]: what one does with it;
//! - [`cloud`]: a simulated cloud in the fabric that knows the nodes as its instances; [`data_plane`]: puts that cloud's routes into
//!   the namespaces. Nothing else does: pods of different nodes reach each other only by the routes that a controller makes.
//!
//! Nothing that it sends can leave the machine: the fabric has no way out. Deliberately absent: more than one cluster at a time,
//! IPv6, cluster DNS.

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
pub use status::status;
pub use up::{Order, up};
