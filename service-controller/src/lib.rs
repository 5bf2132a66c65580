//! Gives Services of type LoadBalancer their load balancer, through a cloud adapter.
//!
//! Level-triggered: what a Service asks for is a pure function of the Service, the nodes and what the adapter can do. It is
//! compared with what the adapter confirmed and what its mirror shows, and the adapter is asked when they differ; nothing
//! depends on having seen a change. A restart asks the adapter once per Service, which answers from memory.
//!
//! In reading order:
//! - `config`: flags to a checked configuration.
//! - `mirror`: Services, nodes and load balancers, trimmed; the set of nodes that all Services share.
//! - `plan`: what is to be done for one Service, and what is refused. Pure.
//! - `execute`: the adapter's verbs, the patches of `services/status`, the Events.
//! - `requeue`: what is tried again and when, and what people hear of it.
//! - `reconcile`: one Service through the four rooms.
//! - `events`, `metrics`, `explain`: what a person or a machine can see from outside.
//! - `self_test`: a command beside the controller, for `helm test`.

mod config;
mod events;
mod execute;
mod explain;
mod metrics;
mod mirror;
mod plan;
mod reconcile;
mod requeue;
mod self_test;

use std::{ffi::OsString, process::ExitCode, sync::Arc, time::Duration};

use anyhow::ensure;
use controller_core::{
    explain::{Kind, Ledger, Look, Rehearse, Sources},
    queue::{Backoff, Queue},
    start::{self, Names, Process},
};
use tokio_util::sync::CancellationToken;
use tracing::info;

use self::{
    config::{Config, Work},
    execute::Executor,
    metrics::Metrics,
    mirror::Mirrors,
    plan::service::ServiceId,
    reconcile::Reconciler,
};

const CONTROLLER: &str = "service-controller";
const NAMES: Names = Names { controller: CONTROLLER, component: CONTROLLER, managed: &["service"] };
const BACKOFF: Backoff = Backoff { first: Duration::from_secs(5), longest: Duration::from_mins(5) };

/// Runs the controller until it is told to stop. Exit code 2: the flags cannot be used, and what is wrong is printed.
pub fn run(arguments: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.into_iter().map(Into::into).collect();
    if arguments.get(1).is_some_and(|first| first == self_test::COMMAND) {
        return self_test::run(arguments.into_iter().skip(2));
    }
    match Config::from_arguments(arguments) {
        Ok(config) => {
            let Config { common, work } = config;
            start::run(NAMES, &common, |process| controller(process, work))
        }
        Err(error) => error.exit(),
    }
}

/// Mirrors, queue and workers, until the process is told to stop.
async fn controller(mut process: Process, work: Work) -> anyhow::Result<()> {
    let rooms = Rooms::build(&mut process, work);
    rooms.work(process).await
}

/// What the controller is made of.
struct Rooms {
    queue: Queue<ServiceId>,
    mirrors: Mirrors,
    reconciler: Arc<Reconciler>,
    workers: usize,
}

impl Rooms {
    /// All of it, and nothing runs yet.
    fn build(process: &mut Process, work: Work) -> Self {
        let Work { workers, reading, orphans } = work;
        let queue = Queue::by_namespace("service", BACKOFF, |id: &ServiceId| &id.namespace);
        let mirrors = Mirrors::new(process.clock, queue.clone(), reading);
        queue.register(&mut process.registry);
        let metrics = Metrics::register(&mut process.registry, &mirrors);
        process.health.needs(&mirrors.services);
        process.health.needs(&mirrors.nodes);
        let cloud = mirrors.clone();
        process.health.ready_if("cloud", move || cloud.cloud_readiness());
        process.health.watches(&queue);
        let ledger = Ledger::new(process.clock);
        let executor = Executor::new(
            process.adapter.clone(),
            process.kube.clone(),
            process.recorder.clone(),
            metrics,
            (process.shards.clone(), ledger.clone()),
        );
        let reconciler = Arc::new(Reconciler::new(mirrors.clone(), executor, orphans, process));
        let look = Arc::clone(&reconciler) as Arc<dyn Look>;
        let sources = Sources::of_each(Kind::Service, look, vec![ledger], &queue);
        let rehearse = Arc::clone(&reconciler) as Arc<dyn Rehearse>;
        process.explain.by(sources.linked(&mirrors.cloud).rehearsed(rehearse));
        Self { queue, mirrors, reconciler, workers }
    }

    async fn work(self, mut process: Process) -> anyhow::Result<()> {
        let Self { queue, mirrors, reconciler, workers } = self;
        let (client, adapter, stop) = (process.kube.clone(), process.adapter.clone(), process.stop.clone());
        let (following, listing) = (mirrors.clone(), process.listing);
        process.background("mirrors", async move {
            Box::pin(following.follow((&client, listing), &adapter)).await;
        });
        let (all, shards, sweeper) = (mirrors.clone(), process.shards.clone(), Arc::clone(&reconciler));
        process.background("reminders", reconciler.reminders.clone().run());
        process.background("shards that come", async move {
            let mut gains = shards.gains();
            loop {
                sweeper.shards_come();
                gains.next().await;
                all.look_at_all();
            }
        });
        let (removes_all, removed) = (mirrors.reading.none_wanted, CancellationToken::new());
        if removes_all {
            let (held, end, removed) = (mirrors.clone(), process.stop.clone(), removed.clone());
            process.task("removal of all", async move {
                if end.run_until_cancelled(held.nothing_held()).await.is_some() {
                    info!("No Service has a load balancer any more");
                    removed.cancel();
                    end.cancel();
                }
            });
        }
        process.task("workers", async move {
            if stop.run_until_cancelled(mirrors.listed()).await.is_none() {
                return;
            }
            let work = |id, _attempt| {
                let reconciler = Arc::clone(&reconciler);
                async move { Box::pin(reconciler.reconcile(&id)).await }
            };
            queue.run(workers, stop, work).await;
        });
        process.finish().await?;
        // Whoever waits for that, such as a Job, must not take a stop for it.
        ensure!(!removes_all || removed.is_cancelled(), "stopped before all load balancers were removed");
        Ok(())
    }
}

#[cfg(test)]
mod tests;
