//! What a process shows to operators.
//!
//! - [`pages`] serves metrics, probes and status pages.
//! - [`report`] defines the contents of the status pages.
//! - [`traces`] sends OpenTelemetry traces.

pub mod pages;
pub mod report;
pub mod traces;
