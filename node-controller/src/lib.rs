//! Initialises nodes and keeps what they say of their machine right.
//!
//! A kubelet that is told to wait for a cloud registers its Node with a taint. This controller finds the node's instance in its
//! mirror of the cloud, writes addresses, provider ID and labels, and takes the taint off. Later it writes addresses and labels again
//! whenever the cloud changes them. It makes no vendor call of its own, except one question for all new nodes together whose
//! instances the mirror does not show as they are since the nodes were made.
//!
//! Nodes whose machines are switched off get a taint, and nodes whose machines are proven to be gone are deleted.
//!
//! Deliberately not done: anything about conditions, and the eviction of pods.

mod config;
mod echo;
mod events;
mod execute;
mod explain;
mod lifecycle;
mod lookup;
mod metrics;
mod mirror;
mod plan;
mod reconcile;
mod requeue;

use std::{ffi::OsString, process::ExitCode, sync::Arc, time::Duration};

use controller_core::{
    events::Reminders,
    explain::{Kind, Ledger, Sources},
    mirror::ObjectName,
    queue::{Backoff, Queue},
    start::{self, Names, Process},
};

use self::{
    config::{Config, Settings},
    execute::rehearse::Rehearsals,
    lifecycle::{Signs, Told},
};

const NAMES: Names = Names {
    controller: "node-controller",
    component: "cloud-node-controller",
    managed: &["cloud-node", "cloud-node-lifecycle"],
};

/// A node that fails is tried again after a second, later less often; what repairs it usually wakes it sooner.
const BACKOFF: Backoff = Backoff { first: Duration::from_secs(1), longest: Duration::from_mins(5) };

/// Runs the controller until it is told to stop. Exit code 2: the flags cannot be used, and what is wrong is printed.
pub fn run(arguments: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> ExitCode {
    match Config::from_arguments(arguments) {
        Ok(config) => start::run(NAMES, &config.common, |process| controller(process, config.settings)),
        Err(error) => error.exit(),
    }
}

/// Mirrors, queue and workers, until the process is told to stop.
async fn controller(mut process: Process, settings: Settings) -> anyhow::Result<()> {
    let queue: Queue<ObjectName> = Queue::new("Nodes", BACKOFF);
    let signs = Signs::new(settings.lifecycle.confirm_after);
    let mirrors = mirror::start(&mut process, &queue, &signs);
    let lookup = lookup::start(&mut process, &mirrors, &queue);
    let metrics = metrics::Metrics::register(&mut process, &mirrors.nodes);
    queue.register(&mut process.registry);
    process.health.watches(&queue);
    let executor =
        execute::Executor::new(&process, lookup.clone(), metrics.clone(), settings.address_writers);
    let [ledger, ends, taints] = [(); 3].map(|()| Ledger::new(process.clock));
    let reminders = Reminders::new(process.recorder.clone(), process.shards.clone());
    process.background("reminders", reminders.clone().run());
    let reconciler = Arc::new(reconcile::Reconciler {
        mirrors: mirrors.clone(),
        lookup,
        executor,
        recorder: process.recorder.clone(),
        metrics,
        shards: process.shards.clone(),
        ledger: ledger.clone(),
        reminders,
        dry_run: process.dry_run,
    });
    let ledgers = vec![ledger.clone(), ends.clone(), taints.clone()];
    let sources = Sources::of_each(Kind::Node, Arc::new(mirrors.clone()), ledgers, &queue);
    let told = Told { ends: ends.clone(), taints: taints.clone() };
    let rehearsals = Rehearsals { reconciler: Arc::clone(&reconciler), ends, taints };
    process.explain.by(sources.linked(&mirrors.instances).rehearsed(Arc::new(rehearsals)));
    lifecycle::start(&mut process, &mirrors, &signs, (settings.lifecycle, told));
    let (all, wakes) = (mirrors.clone(), queue.clone());
    process.background("comparison of all nodes", async move {
        loop {
            tokio::time::sleep(settings.compare_every).await;
            all.compare_all(&wakes);
        }
    });
    let (all, wakes, shards) = (mirrors.clone(), queue.clone(), process.shards.clone());
    let known = ledger;
    process.background("shards that come", async move {
        let mut gains = shards.gains();
        loop {
            let gained = gains.next().await;
            // Another replica may have been at work there.
            known.forget(|uid| gained.contains(&shards.of(uid)));
            all.look_at_all(&wakes);
        }
    });
    let stop = process.stop.clone();
    process.task("node queue", async move {
        let work = |key, _attempt| {
            let reconciler = Arc::clone(&reconciler);
            async move { reconciler.reconcile(&key).await }
        };
        queue.run(settings.workers, stop, work).await;
    });
    process.finish().await
}

#[cfg(test)]
mod tests;
