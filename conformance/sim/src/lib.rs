//! The simulated cloud and its adapter as a setting for `adapter-conformance`.
//!
//! - [`Setting`] starts lanes, each a `simcloud` with an `adapter-sim` behind the suite's proxy, and writes the parameter file;
//! - [`command`] is what the commands (hooks) of that file do: `conformance-sim command createInstances`.
//!
//! Everything lives below one folder, and ends with the [`Setting`].

pub mod command;
mod process;
mod setting;

pub use self::setting::{Plan, Setting};
