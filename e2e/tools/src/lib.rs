//! Finds the four programs that a control plane for tests is made of: etcd, kube-apiserver, kubectl and helm; and, on demand,
//! those of a cluster with nodes that run pods: [`Tool::CLUSTER`].
//!
//! They are looked for in this order, each on its own:
//!
//! 1. the directory named by `KUBEBUILDER_ASSETS`;
//! 2. `PATH`;
//! 3. the cache, `$XDG_CACHE_HOME/cloud-controllers/tools` (else `~/.cache/...`);
//! 4. built with Go from the module that pins it, beside this crate, and put into the cache.
//!
//! A program of the first two is taken only when it reports the wanted major and minor version; otherwise a note says why
//! it was passed over. What is in the cache is complete, because it gets there by a rename, and belongs to the pins,
//! because their digest is part of its name. Nothing here downloads a ready-made binary, but for [`Prometheus`], which is Debian's.
//!
//! Besides, the command lines of the [`demo`] and of the [`mod@bench`] are here, for who judges them before those are built.
//!
//! Cost: milliseconds when everything is there, about 6 minutes on two cores when all four are built, and 3 more for those of a cluster.

pub mod bench;
mod build;
mod compiler;
pub mod demo;
mod environment;
mod locate;
mod progress;
mod prometheus;
mod recipe;
mod tool;
mod version;

pub use environment::Environment;
pub use locate::{Error, Found, Origin, Tools, find};
pub use progress::{Progress, Quiet, Terminal};
pub use prometheus::Prometheus;
pub use tool::Tool;
pub use version::Version;
