//! The simulated cloud and its adapter as a test bed for `adapter-conformance`.
//!
//! - [`Setting`] starts lanes, each a `simcloud` with an `adapter-sim` behind the suite's proxy, and writes the parameter file;
//! - [`command`] runs the commands (hooks) of that file: `conformance-sim command createInstances`;
//! - [`lease_server`] is an API server for the leader election of two replicas.
//!
//! All files are below one folder, which is removed with the [`Setting`].

pub mod command;
pub mod lease_server;
mod process;
mod setting;

pub use self::setting::{Bucket, Plan, Setting};
