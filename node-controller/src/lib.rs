//! Initialises nodes and keeps their addresses and labels in sync with their instances.
//!
//! A kubelet with `--cloud-provider=external` registers its Node with a taint. This controller finds the node's instance in its cache of
//! the cloud, writes addresses, provider ID and labels, and removes the taint. Later the controller updates addresses and labels when they
//! change in the cloud. If the instances of new nodes have not been listed since the nodes were created, the controller sends one look-up
//! for all these nodes.
//!
//! Nodes whose instances are switched off get a taint, and nodes whose instances are proven to be gone are deleted.
//!
//! Out of scope: node conditions, and the eviction of pods.

mod absence;
mod config;
mod echo;
mod error;
mod events;
mod execute;
mod explain;
mod lifecycle;
mod lookup;
mod metrics;
mod mirror;
mod ownership;
mod plan;
mod reconcile;
mod scheme;

use std::{ffi::OsString, process::ExitCode, sync::Arc, time::Duration};

use controller_core::{
    events::Reminders,
    explain::{Kind, Ledger, Sources},
    mirror::ObjectName,
    queue::{Backoff, Queue},
    start::{self, Names, Process},
};

use self::{
    absence::Signs,
    config::{Config, Settings},
    lifecycle::Ledgers,
    ownership::LabelRules,
    reconcile::rehearse::Rehearsals,
};

const NAMES: Names = Names {
    controller: "node-controller",
    component: "cloud-node-controller",
    managed: &["cloud-node", "cloud-node-lifecycle"],
};

/// Backoff of a failed node. A change that fixes the cause usually triggers an earlier reconcile.
const BACKOFF: Backoff = Backoff { first: Duration::from_secs(1), longest: Duration::from_mins(5) };

/// Runs the controller until the process receives a signal to stop. If flags are invalid, prints them and returns exit code 2.
pub fn run(arguments: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> ExitCode {
    match Config::from_arguments(arguments) {
        Ok(Config { common, settings, rules }) => {
            start::run(NAMES, &common, |process| controller(process, settings, rules))
        }
        Err(error) => error.exit(),
    }
}

/// Runs caches, queue and workers until the process receives a signal to stop.
async fn controller(mut process: Process, settings: Settings, rules: LabelRules) -> anyhow::Result<()> {
    let queue: Queue<ObjectName> = Queue::new("Nodes", BACKOFF);
    let signs = Signs::new(settings.lifecycle.confirm_after);
    let mirrors = mirror::start(&mut process, &queue, &signs, rules);
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
        clock: process.clock,
        dry_run: process.dry_run,
    });
    let ledgers = vec![ledger.clone(), ends.clone(), taints.clone()];
    let sources = Sources::of_each(Kind::Node, Arc::new(mirrors.clone()), ledgers, &queue);
    let ledgers = Ledgers { ends: ends.clone(), taints: taints.clone() };
    let rehearsals = Rehearsals { reconciler: Arc::clone(&reconciler), ends, taints };
    let sources = sources.linked(&mirrors.instances).watching(&mirrors.nodes);
    process.explain.by(sources.rehearsed(Arc::new(rehearsals)));
    lifecycle::start(&mut process, &mirrors, &signs, settings.lifecycle, ledgers);
    let (all, wakes) = (mirrors.clone(), queue.clone());
    process.background("comparison of all nodes", async move {
        loop {
            tokio::time::sleep(settings.compare_every).await;
            all.compare_all(&wakes);
        }
    });
    let (all, wakes, shards) = (mirrors.clone(), queue.clone(), process.shards.clone());
    let known = ledger;
    process.background("new shards", async move {
        let mut acquisitions = shards.acquisitions();
        loop {
            let gained = acquisitions.next().await;
            // Another replica may have reconciled these nodes before.
            known.forget_where(|uid| gained.contains(&shards.of(uid)));
            all.queue_all(&wakes);
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
