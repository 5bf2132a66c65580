//! Tests the chart on a cluster with real kubelets and this project's images, as a user installs it. Each scenario creates its own cluster
//! and removes it. `cargo xtask test cluster` runs the scenarios.

#![expect(clippy::unwrap_used, reason = "clippy recognises tests, but not their helpers")]

mod bed;
mod bootstrap;
mod chart;
mod clock;
mod cloudctl;
mod docs;
mod faults;
mod inside;
mod migration;
mod picture;
mod policies;
mod processes;
mod release;
mod rights;
mod routes;
mod scaling;
mod swap;
mod uninstall;
mod upkeep;
mod users;
