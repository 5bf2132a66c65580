//! The route-controller: lays a route to the pods of each node in the cloud, and says on the node whether it is there.
//!
//! It joins the Nodes of the API server with the routes of the cloud adapter. Whenever one of both changes, and now and then
//! without that, all nodes are compared with all routes in one pass:
//!
//! - each CIDR of `spec.podCIDRs` gets a route to the node's machine;
//! - routes of this cluster, inside `--cluster-cidr`, that no node asks for are removed, unless the list of nodes cannot be believed;
//!   everybody else's are told of and never touched;
//! - the node's condition `NetworkUnavailable` says what became of it, and is written only if it says something else.
//!
//! Equal mirrors cost nothing: no vendor call, no write to either side, also after a restart.
//!
//! Modules in reading order: `config`, then the four rooms `mirror`, `plan`, `execute`, `requeue`, the corridor
//! `reconcile` through them, and what can be seen from outside, `events`, `metrics` and `explain`.

mod config;
mod events;
mod execute;
mod explain;
mod metrics;
mod mirror;
mod plan;
mod reconcile;
mod requeue;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;

use controller_core::start::{self, Names, Process};

use crate::config::Config;
use crate::mirror::{Mirrors, Trigger};
use crate::reconcile::Reconciler;

/// Under which names this controller is known.
const NAMES: Names =
    Names { controller: "route-controller", component: "route_controller", managed: &["route"] };

/// Runs the controller as a process, until it is told to stop.
///
/// The exit code is 0 after a stop that was asked for, 1 after an error, which is logged, and 2 after a bad flag.
pub fn run(arguments: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> ExitCode {
    match Config::from_arguments(arguments) {
        Ok(config) => start::run(NAMES, &config.common, |process| control(process, config.clone())),
        Err(error) => error.exit(),
    }
}

/// Starts the tasks, and waits until the process shall stop and they have finished what they were at.
async fn control(mut process: Process, config: Config) -> anyhow::Result<()> {
    let (mirrors, trigger) = (Mirrors::new(process.clock).in_scope(process.adapter.scope()), Trigger::new());
    let reconciler = Arc::new(Reconciler::new(&mut process, &config, &mirrors, &trigger));
    reconciler.show(&mut process);

    let adapter = process.adapter.clone();
    let (follower, waker) = (mirrors.clone(), trigger.clone());
    process.background("ability", async move { follower.follow_ability(&adapter, &waker).await });
    let adapter = process.adapter.clone();
    let nodes = (kube::Api::all(process.kube.clone()), process.listing);
    let (follower, waker) = (mirrors.clone(), trigger.clone());
    process.background("nodes", async move { follower.follow_nodes(nodes, &waker).await });
    let (follower, waker) = (mirrors.clone(), trigger.clone());
    process.background("routes", async move { follower.follow_routes(&adapter, &waker).await });
    let (shards, waker, known) = (process.shards.clone(), trigger.clone(), reconciler.ledger.clone());
    process.background("shards that come", async move {
        let mut gains = shards.gains();
        loop {
            let gained = gains.next().await;
            // Another replica may have been at work there.
            known.forget(|uid| gained.contains(&shards.of(uid)));
            waker.wake();
        }
    });
    process.background("links", async move { mirrors.follow_links(&trigger).await });
    process.task("passes", reconciler.run());
    process.finish().await
}
