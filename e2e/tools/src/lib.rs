//! Finds the four programs of a control plane for tests: etcd, kube-apiserver, kubectl and helm. On request also finds those of a cluster
//! with nodes that run pods: [`Tool::CLUSTER`].
//!
//! Each program is searched in this order:
//!
//! 1. the directory named by `KUBEBUILDER_ASSETS`;
//! 2. `PATH`;
//! 3. the cache, `$XDG_CACHE_HOME/cloud-controllers/tools` (else `~/.cache/...`);
//! 4. a build with Go from the module that pins the program's version, next to this crate, which is put into the cache.
//!
//! A program from the first two places is used only if it reports the required major and minor version. Otherwise a note gives the reason
//! for skipping it. Programs in the cache are complete, because a rename puts them there. They have the pinned versions, because a digest
//! of the pins is part of the name. No ready-made binary is downloaded, except [`Prometheus`], which comes from Debian.
//!
//! [`cluster`] runs a whole cluster on this host with these programs.
//!
//! [`pages`] parses the pages of the documentation.
//!
//! The command lines of the [`demo`] and of the [`mod@bench`] are in this crate, so that they can be checked before those programs are
//! built.
//!
//! Cost: milliseconds if all programs exist, about 6 minutes on two cores to build all four, and 3 more minutes for the programs of a
//! cluster.

pub mod bench;
mod build;
pub mod cluster;
mod compiler;
pub mod demo;
mod environment;
mod error;
mod estimate;
mod locate;
pub mod pages;
mod progress;
mod prometheus;
mod recipe;
mod tail;
mod tool;
mod version;

pub use environment::Environment;
pub use error::Error;
pub use estimate::Estimate;
pub use locate::{Found, Origin, Tools, find, missing};
pub use progress::{Progress, Quiet, Terminal};
pub use prometheus::Prometheus;
pub use tail::tail;
pub use tool::Tool;
pub use version::Version;
