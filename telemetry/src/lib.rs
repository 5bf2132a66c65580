//! What a process shows to operators: pages, logs, traces, and error messages about invalid input.
//!
//! - [`http`] serves metrics, probes and status pages.
//! - [`report`] defines the contents of the status pages.
//! - [`traces`] sends OpenTelemetry traces.
//! - [`logging`] installs the log, and starts traces.
//! - [`nearest()`] finds the word that a user probably meant, and [`hint()`] puts it into an error message.

pub mod http;
pub mod logging;
mod nearest;
pub mod report;
pub mod traces;

pub use self::nearest::{hint, nearest, similar};
