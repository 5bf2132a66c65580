//! `AdapterService`: the description and status of this adapter, from memory only. Makes no vendor calls.

use std::{pin::Pin, sync::Arc, time::Duration};

use cloud_api_proto::{
    AdapterError,
    v1alpha1::{
        Budget, Cost, GetInfoRequest, GetInfoResponse, Instance, Priority, Route, SnapshotStatus,
        WatchStatusRequest, WatchStatusResponse, adapter_service_server::AdapterService, cost::Source,
    },
};
use futures::StreamExt as _;
use tokio::{sync::watch, time::Instant};
use tonic::{Request, Response, Status};

use crate::{
    config::{CacheSettings, Config},
    driver::{Driver, Item, LoadBalancerRecord, VendorError},
    leadership::Duty,
    metrics::Metrics,
    rpc::Rpc,
    snapshot::Snapshot,
};

/// Maximum interval between status reports.
const REPORT_EVERY: Duration = Duration::from_secs(15);
/// Minimum interval between reports of values that change continuously, such as a recovering rate.
const CHECK_EVERY: Duration = Duration::from_secs(1);
/// The supported versions of the contract as package names, newest first.
const CONTRACT_VERSIONS: [&str; 1] = ["cloudadapter.v1alpha1"];

#[derive(Debug)]
pub(crate) struct Snapshots<D: Driver> {
    pub(crate) instances: Arc<Snapshot<Instance>>,
    pub(crate) load_balancers: Arc<Snapshot<LoadBalancerRecord<D::Detail>>>,
    pub(crate) routes: Arc<Snapshot<Route>>,
}

impl<D: Driver> Snapshots<D> {
    /// `horizon` is the maximum time by which the vendor's reads lag behind writes.
    pub(crate) fn new(settings: &CacheSettings, horizon: Duration, metrics: &Metrics) -> Self {
        Self {
            instances: Snapshot::measured(settings.instances, horizon, metrics),
            load_balancers: Snapshot::measured(settings.load_balancers, horizon, metrics),
            routes: Snapshot::measured(settings.routes, horizon, metrics),
        }
    }

    pub(crate) fn configure(&self, settings: &CacheSettings) {
        self.instances.configure(settings.instances);
        self.load_balancers.configure(settings.load_balancers);
        self.routes.configure(settings.routes);
    }

    /// Drops all content. The caller does this when the scope of the credentials has changed. Watches are reset.
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

#[derive(Debug)]
pub(crate) struct Service<D: Driver> {
    pub(crate) driver: Arc<D>,
    pub(crate) snapshots: Snapshots<D>,
    pub(crate) rpc: Rpc,
    pub(crate) config: watch::Receiver<Arc<Config>>,
    /// The error of the last self-check; `None`: the self-check succeeded.
    pub(crate) health: watch::Receiver<Option<VendorError>>,
}

#[tonic::async_trait]
impl<D: Driver> AdapterService for Service<D> {
    async fn get_info(&self, request: Request<GetInfoRequest>) -> Result<Response<GetInfoResponse>, Status> {
        let (metadata, extensions, request) = request.into_parts();
        self.rpc.context(request.context, &metadata, &extensions, Priority::Background)?;
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
            scope: self.rpc.served_scope(),
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
        self.rpc.context(request.context, &metadata, &extensions, Priority::Background)?;
        let reporter = Reporter {
            snapshots: self.snapshots.clone(),
            rpc: self.rpc.clone(),
            config: self.config.clone(),
            health: self.health.clone(),
            duty: self.rpc.replica.subscribe(),
        };
        let stream = futures::stream::unfold((reporter, None), |(mut reporter, last)| async move {
            let report = match last {
                None => reporter.report(),
                Some(last) => reporter.next(&last).await,
            };
            Some((Ok(report.clone()), (reporter, Some(report))))
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
    /// Waits for the next report. A report is due when it differs from the last one, or after `REPORT_EVERY`.
    async fn next(&mut self, last: &WatchStatusResponse) -> WatchStatusResponse {
        let due = Instant::now() + REPORT_EVERY;
        loop {
            tokio::select! {
                () = tokio::time::sleep(CHECK_EVERY) => (),
                Ok(()) = self.health.changed() => (),
                Ok(()) = self.duty.changed() => (),
            }
            let report = self.report();
            if Instant::now() >= due || essence(&report) != essence(last) {
                return report;
            }
        }
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

/// Returns the report without the values that change all the time, so that their changes alone trigger no report.
fn essence(report: &WatchStatusResponse) -> WatchStatusResponse {
    let mut report = report.clone();
    for budget in &mut report.budgets {
        *budget = Budget { tokens: 0.0, queued: 0, calls_total: 0, throttled_total: 0, ..budget.clone() };
    }
    for snapshot in &mut report.snapshots {
        snapshot.observed_at = None;
    }
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pause_causes_a_report_and_a_call_does_not() {
        let budget = Budget { bucket: "compute".into(), rate: 5.0, tokens: 3.0, ..Budget::default() };
        let report = |budget| WatchStatusResponse { budgets: vec![budget], ..WatchStatusResponse::default() };
        let before = essence(&report(budget.clone()));
        let called = Budget { tokens: 2.0, calls_total: 1, queued: 4, ..budget.clone() };
        assert_eq!(essence(&report(called)), before);
        let slower = Budget { rate: 3.5, ..budget.clone() };
        assert_ne!(essence(&report(slower)), before);
        let paused = Budget { paused_until: Some(prost_types::Timestamp::default()), ..budget };
        assert_ne!(essence(&report(paused)), before);
    }
}
