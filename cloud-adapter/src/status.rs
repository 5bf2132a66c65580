//! `AdapterService`: what this adapter is and how it does. From memory only: costs no vendor call.

use std::{pin::Pin, sync::Arc, time::Duration};

use cloud_api_proto::{
    AdapterError,
    v1alpha1::{
        Cost, GetInfoRequest, GetInfoResponse, Instance, Priority, Route, SnapshotStatus, WatchStatusRequest,
        WatchStatusResponse, adapter_service_server::AdapterService, cost::Source,
    },
};
use futures::StreamExt as _;
use tokio::sync::watch;
use tonic::{Request, Response, Status};

use crate::{
    config::{CacheSettings, Config},
    driver::{Driver, Item, LoadBalancerRecord, VendorError},
    metrics::Metrics,
    replica::Duty,
    rpc::Rpc,
    snapshot::Snapshot,
};

/// A status report is sent at least this often. Source: contract, section 1.
const REPORT_EVERY: Duration = Duration::from_secs(15);
/// The packages that are served, newest first.
const CONTRACT_VERSIONS: [&str; 1] = ["cloudadapter.v1alpha1"];

/// The three shared listings.
#[derive(Debug)]
pub(crate) struct Snapshots<D: Driver> {
    pub(crate) instances: Arc<Snapshot<Instance>>,
    pub(crate) load_balancers: Arc<Snapshot<LoadBalancerRecord<D::Detail>>>,
    pub(crate) routes: Arc<Snapshot<Route>>,
}

impl<D: Driver> Snapshots<D> {
    /// Nothing is listed yet. `horizon`: for how long the vendor's reads may lag behind writes.
    pub(crate) fn new(settings: &CacheSettings, horizon: Duration, metrics: &Metrics) -> Self {
        Self {
            instances: Snapshot::told(settings.instances, horizon, metrics),
            load_balancers: Snapshot::told(settings.load_balancers, horizon, metrics),
            routes: Snapshot::told(settings.routes, horizon, metrics),
        }
    }

    /// Goes by other settings from now on.
    pub(crate) fn configure(&self, settings: &CacheSettings) {
        self.instances.configure(settings.instances);
        self.load_balancers.configure(settings.load_balancers);
        self.routes.configure(settings.routes);
    }

    /// Forgets everything: it was another part of the cloud. Watchers begin anew.
    pub(crate) fn forget(&self) {
        self.instances.forget();
        self.load_balancers.forget();
        self.routes.forget();
    }
}

impl<D: Driver> Clone for Snapshots<D> {
    fn clone(&self) -> Self {
        Self {
            instances: Arc::clone(&self.instances),
            load_balancers: Arc::clone(&self.load_balancers),
            routes: Arc::clone(&self.routes),
        }
    }
}

/// The gRPC service.
#[derive(Debug)]
pub(crate) struct Service<D: Driver> {
    pub(crate) driver: Arc<D>,
    pub(crate) snapshots: Snapshots<D>,
    pub(crate) rpc: Rpc,
    pub(crate) config: watch::Receiver<Arc<Config>>,
    /// Why the last self-check failed; `None`: it passed.
    pub(crate) health: watch::Receiver<Option<VendorError>>,
}

#[tonic::async_trait]
impl<D: Driver> AdapterService for Service<D> {
    async fn get_info(&self, request: Request<GetInfoRequest>) -> Result<Response<GetInfoResponse>, Status> {
        let (metadata, extensions, request) = request.into_parts();
        self.rpc.context(request.context, (&metadata, &extensions), Priority::Background)?;
        let about = self.driver.describe();
        let latency = about.expected_latency.iter().filter_map(|(rpc, latency)| {
            Some(((*rpc).to_owned(), prost_types::Duration::try_from(*latency).ok()?))
        });
        Ok(Response::new(GetInfoResponse {
            adapter_name: about.adapter_name.to_owned(),
            adapter_version: about.adapter_version.to_owned(),
            instance_id: self.rpc.instance_id.to_string(),
            contract_versions: CONTRACT_VERSIONS.map(str::to_owned).to_vec(),
            provider: about.provider.to_owned(),
            scope: self.rpc.scope(),
            expected_latency: latency.collect(),
            capabilities: about.capabilities,
            limits: Some(about.limits),
            parameters: about.parameters,
            consistency_horizon: prost_types::Duration::try_from(about.consistency_horizon).ok(),
            cost: Some(Cost { source: Source::Memory.into(), ..Cost::default() }),
        }))
    }

    type WatchStatusStream = Pin<Box<dyn futures::Stream<Item = Result<WatchStatusResponse, Status>> + Send>>;

    async fn watch_status(
        &self,
        request: Request<WatchStatusRequest>,
    ) -> Result<Response<Self::WatchStatusStream>, Status> {
        let (metadata, extensions, request) = request.into_parts();
        self.rpc.context(request.context, (&metadata, &extensions), Priority::Background)?;
        let reporter = Reporter {
            snapshots: self.snapshots.clone(),
            rpc: self.rpc.clone(),
            config: self.config.clone(),
            health: self.health.clone(),
            duty: self.rpc.replica.subscribe(),
        };
        let stream = futures::stream::unfold((reporter, true), |(mut reporter, first)| async move {
            if !first {
                reporter.wait().await;
            }
            Some((Ok(reporter.report()), (reporter, false)))
        });
        let stop = self.rpc.draining.clone().cancelled_owned();
        Ok(Response::new(Box::pin(stream.take_until(Box::pin(stop)))))
    }
}

struct Reporter<D: Driver> {
    snapshots: Snapshots<D>,
    rpc: Rpc,
    config: watch::Receiver<Arc<Config>>,
    health: watch::Receiver<Option<VendorError>>,
    duty: watch::Receiver<Duty>,
}

impl<D: Driver> Reporter<D> {
    /// Until the self-check changes its mind, the replica its duty, or the period is over.
    async fn wait(&mut self) {
        let changed = async {
            tokio::select! {
                Ok(()) = self.health.changed() => (),
                Ok(()) = self.duty.changed() => (),
                else => std::future::pending::<()>().await,
            }
        };
        // Either way the next report is due.
        let _due = tokio::time::timeout(REPORT_EVERY, changed).await.is_err();
    }

    fn report(&self) -> WatchStatusResponse {
        let health = self.health.borrow().clone();
        let (budgets, breakers) = self.rpc.vendor.status(&self.rpc.clock);
        WatchStatusResponse {
            leader: self.rpc.replica.leads(),
            instance_id: self.rpc.instance_id.to_string(),
            budgets,
            breakers,
            snapshots: vec![
                self.snapshot(&self.snapshots.instances),
                self.snapshot(&self.snapshots.load_balancers),
                self.snapshot(&self.snapshots.routes),
            ],
            self_check_error: health.map(|error| AdapterError::from(error).to_item()),
            config_revision: self.config.borrow().revision.clone(),
        }
    }

    fn snapshot<T: Item>(&self, snapshot: &Snapshot<T>) -> SnapshotStatus {
        let (observed, items, revision, error) = snapshot.report();
        SnapshotStatus {
            collection: T::COLLECTION.to_owned(),
            observed_at: observed.map(|at| self.rpc.wall(at)),
            target_age: prost_types::Duration::try_from(snapshot.target_age()).ok(),
            items: u64::try_from(items).unwrap_or(u64::MAX),
            revision,
            last_error: error.map(|error| AdapterError::from(error).to_item()),
        }
    }
}
