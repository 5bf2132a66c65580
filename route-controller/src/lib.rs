//! The route-controller: creates a route to the pods of each node in the cloud, and sets the node's condition `NetworkUnavailable`.
//!
//! The controller combines the Nodes of the API server with the routes of the cloud adapter. Whenever a node or a route changes, and at
//! regular intervals, a pass compares all nodes with all routes:
//!
//! - each CIDR of `spec.podCIDRs` gets a route to the node's instance;
//! - routes of this cluster, inside `--cluster-cidr`, that no node needs are removed, unless the list of nodes is implausible; other routes
//!   are reported and never changed;
//! - the node's condition `NetworkUnavailable` shows the result, and is written only if it changes.
//!
//! If nothing differs, a pass costs no vendor call and no write, also after a restart.
//!
//! Modules in reading order: `config`, the steps `mirror`, `plan`, `execute` and `error`, `reconcile`, which runs the steps, and what is
//! visible from outside: `events`, `metrics` and `explain`.

mod config;
mod error;
mod events;
mod evidence;
mod execute;
mod explain;
mod metrics;
mod mirror;
mod plan;
mod reconcile;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;

use controller_core::start::{self, Names, Process};

use crate::config::Config;
use crate::execute::record::Store;
use crate::mirror::{Mirrors, Trigger};
use crate::reconcile::Reconciler;

const NAMES: Names =
    Names { controller: "route-controller", component: "route_controller", managed: &["route"] };

/// Runs the controller as a process until it receives a signal to stop.
///
/// Exit codes: 0 after a requested stop, 1 after an error, which is logged, and 2 after an invalid flag.
pub fn run(arguments: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> ExitCode {
    match Config::from_arguments(arguments) {
        Ok(config) => start::run(NAMES, &config.common, |process| control(process, config.clone())),
        Err(error) => error.exit(),
    }
}

/// Starts the tasks, and waits until the process should stop and the tasks have finished.
async fn control(mut process: Process, config: Config) -> anyhow::Result<()> {
    let (mirrors, trigger) = (Mirrors::new(process.clock).in_scope(process.adapter.scope()), Trigger::new());
    let reconciler = Arc::new(Reconciler::new(&mut process, &config, &mirrors, &trigger));
    reconciler.show(&mut process);

    let adapter = process.adapter.clone();
    let (follower, waker) = (mirrors.clone(), trigger.clone());
    process.background("ability", async move { follower.follow_ability(&adapter, &waker).await });
    let adapter = process.adapter.clone();
    let (nodes, listing) = (kube::Api::all(process.kube.clone()), process.listing);
    let (follower, waker) = (mirrors.clone(), trigger.clone());
    process.background("nodes", async move { follower.follow_nodes(nodes, listing, &waker).await });
    let (follower, waker) = (mirrors.clone(), trigger.clone());
    process.background("routes", async move { follower.follow_routes(&adapter, &waker).await });
    let (shards, waker, known) = (process.shards.clone(), trigger.clone(), reconciler.ledger.clone());
    process.background("new shards", async move {
        let mut acquisitions = shards.acquisitions();
        loop {
            let gained = acquisitions.next().await;
            // Another replica may have reconciled these nodes before.
            known.forget_where(|uid| gained.contains(&shards.of(uid)));
            waker.wake();
        }
    });
    let (waker, mut acceptances) = (trigger.clone(), process.adapter.scope().acceptances());
    process.background("scope acceptances", async move {
        loop {
            acceptances.next().await;
            waker.wake();
        }
    });
    let (kube, record) = (process.kube.clone(), Store::new(process.kube.clone()));
    process.evidence(move || evidence::exists(kube.clone(), record.clone()));
    process.background("links", async move { mirrors.follow_links(&trigger).await });
    process.task("passes", reconciler.run());
    process.finish().await
}
