//! Creates and maintains load balancers for Services of type LoadBalancer, through a cloud adapter.
//!
//! The controller is level-triggered. The desired load balancer depends only on the Service, the nodes and the adapter's capabilities. The
//! controller compares it with the adapter's last confirmation and with the cache, and calls the adapter if they differ. After a restart it
//! calls the adapter once per Service, and the adapter answers without vendor calls.
//!
//! The modules, in reading order:
//! - `config`: turns flags into a validated configuration.
//! - `mirror`: caches of Services, nodes and load balancers, reduced to the fields in use; the node sets that Services share.
//! - `plan`: pure functions that decide the actions and refusals for one Service.
//! - `execute`: calls of the adapter, patches of `services/status`, Events.
//! - `error`: which errors are retried and when, and the Events about them.
//! - `reconcile`: reconciles one Service with the modules above.
//! - `events`, `metrics`, `explain`: what users, operators and monitoring see.
//! - `self_test`: a separate command, for `helm test`.

mod config;
mod error;
mod events;
mod execute;
mod explain;
mod metrics;
mod mirror;
mod plan;
mod reconcile;
mod self_test;

use std::{ffi::OsString, process::ExitCode, sync::Arc, time::Duration};

use anyhow::ensure;
use controller_core::{
    explain::{Describe, Kind, Ledger, Rehearse, Sources},
    kube_api,
    queue::{Backoff, Queue},
    start::{self, Names, Process},
};
use k8s_openapi::api::core::v1::Service;
use kube::Api;
use tokio_util::sync::CancellationToken;
use tracing::info;

use self::{
    config::{Config, Work},
    execute::Executor,
    metrics::Metrics,
    mirror::{Mirrors, kubernetes},
    plan::service::ServiceId,
    reconcile::Reconciler,
};

const CONTROLLER: &str = "service-controller";
const NAMES: Names = Names { controller: CONTROLLER, component: CONTROLLER, managed: &["service"] };
const BACKOFF: Backoff = Backoff { first: Duration::from_secs(5), longest: Duration::from_mins(5) };

/// Runs the controller until the process is asked to stop. If flags are invalid, prints the errors and returns exit code 2.
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

/// Runs the caches, the queue and the workers until the process receives a signal to stop.
async fn controller(mut process: Process, work: Work) -> anyhow::Result<()> {
    let components = Components::build(&mut process, work);
    components.work(process).await
}

struct Components {
    queue: Queue<ServiceId>,
    mirrors: Mirrors,
    reconciler: Arc<Reconciler>,
    workers: usize,
}

impl Components {
    /// Builds all parts and starts none of them.
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
        let executor = Executor::new(process, metrics, ledger.clone());
        let reconciler = Arc::new(Reconciler::new(mirrors.clone(), executor, orphans, process));
        let look = Arc::clone(&reconciler) as Arc<dyn Describe>;
        let sources = Sources::of_each(Kind::Service, look, vec![ledger], &queue);
        let rehearse = Arc::clone(&reconciler) as Arc<dyn Rehearse>;
        let sources = sources.linked(&mirrors.cloud).watching(&mirrors.services).watching(&mirrors.nodes);
        process.explain.by(sources.rehearsed(rehearse));
        Self { queue, mirrors, reconciler, workers }
    }

    async fn work(self, mut process: Process) -> anyhow::Result<()> {
        let Self { queue, mirrors, reconciler, workers } = self;
        let (client, adapter, stop) = (process.kube.clone(), process.adapter.clone(), process.stop.clone());
        let (following, listing) = (mirrors.clone(), process.listing);
        process.background("mirrors", async move {
            Box::pin(following.follow(&client, listing, &adapter)).await;
        });
        let (all, mut acceptances) = (mirrors.clone(), process.adapter.scope().acceptances());
        process.background("scope acceptances", async move {
            loop {
                acceptances.next().await;
                all.requeue_all();
            }
        });
        let services: Api<Service> = Api::all(process.kube.clone());
        process.evidence(move || {
            let services = services.clone();
            async move { kube_api::any(&services, kubernetes::may_have_load_balancer).await }
        });
        let (all, shards, sweeper) = (mirrors.clone(), process.shards.clone(), Arc::clone(&reconciler));
        process.background("reminders", reconciler.reminders.clone().run());
        process.background("gained shards", async move {
            let mut acquisitions = shards.acquisitions();
            loop {
                sweeper.on_shards_acquired();
                acquisitions.next().await;
                all.requeue_all();
            }
        });
        let (removes_all, removed) = (mirrors.reading.none_wanted, CancellationToken::new());
        if removes_all {
            let (held, end, removed) = (mirrors.clone(), process.stop.clone(), removed.clone());
            process.task("removal of all load balancers", async move {
                if end.run_until_cancelled(held.nothing_held()).await.is_some() {
                    info!("All load balancers of this controller's Services are removed; stopping");
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
        // A client that waits for the removal, such as a Job, must not mistake an early stop for success.
        ensure!(!removes_all || removed.is_cancelled(), "stopped before all load balancers were removed");
        Ok(())
    }
}

#[cfg(test)]
mod tests;
