//! Initialises nodes and keeps what they say of their machine right.
//!
//! A kubelet that is told to wait for a cloud registers its Node with a taint. This controller finds the node's instance in its
//! mirror of the cloud, writes addresses, provider ID and labels, and takes the taint off. Later it writes addresses and labels again
//! whenever the cloud changes them. It makes no vendor call of its own, except one question for all new nodes together whose
//! instances the mirror does not show as they are since the nodes were made.
//!
//! Deliberately not done: deleting nodes, and anything about conditions.

mod config;
mod echo;
mod events;
mod execute;
mod lookup;
mod metrics;
mod mirror;
mod plan;
mod reconcile;
mod requeue;

use std::{sync::Arc, time::Duration};

use controller_core::{
    mirror::ObjectName,
    queue::{Backoff, Queue},
    start::{Names, Process},
};

pub use config::Config;

/// Under which names this controller is known.
pub const NAMES: Names = Names { controller: "node-controller", component: "cloud-node-controller" };

/// A node that fails is tried again after a second, later less often; what repairs it usually wakes it sooner.
const BACKOFF: Backoff = Backoff { first: Duration::from_secs(1), longest: Duration::from_mins(5) };

/// Runs the controller until the process shall stop.
///
/// # Errors
/// A part of it ended though nobody asked it to.
pub async fn run(config: Config, mut process: Process) -> anyhow::Result<()> {
    let queue: Queue<ObjectName> = Queue::new("Nodes", BACKOFF);
    let mirrors = mirror::start(&mut process, &queue);
    let lookup = lookup::start(&mut process, &mirrors, &queue);
    let metrics = metrics::Metrics::register(&mut process);
    queue.register(&mut process.registry);
    process.health.watches(&queue);
    let executor = execute::Executor::new(&process, lookup.clone(), metrics.clone());
    let reconciler = Arc::new(reconcile::Reconciler {
        mirrors,
        lookup,
        executor,
        recorder: process.recorder.clone(),
        metrics,
    });
    let stop = process.stop.clone();
    process.task("node queue", async move {
        let work = |key, _attempt| {
            let reconciler = Arc::clone(&reconciler);
            async move { reconciler.reconcile(&key).await }
        };
        queue.run(config.concurrent_node_syncs, stop, work).await;
    });
    process.finish().await
}
