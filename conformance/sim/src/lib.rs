//! The simulated cloud and its adapter as a setting for `adapter-conformance`.
//!
//! - [`Setting`] starts lanes, each a `simcloud` with an `adapter-sim` behind the suite's proxy, and writes the parameter file;
//! - [`command`] is what the commands (hooks) of that file do: `conformance-sim command createInstances`;
//! - [`lease_server`] is what two replicas elect their leader by.
//!
//! Everything lives below one folder, and ends with the [`Setting`].

pub mod command;
pub mod lease_server;
mod process;
mod setting;

pub use self::setting::{Bucket, Plan, Setting};
