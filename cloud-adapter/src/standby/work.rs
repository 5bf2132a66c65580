//! The background work of the leader, which checks the credentials and refreshes the listings. A standby follows the leader instead: see
//! `feed`.

use std::sync::Arc;

use cloud_api_proto::v1alpha1::{
    Scope, adapter_service_server::AdapterServiceServer, instance_service_server::InstanceServiceServer,
    load_balancer_service_server::LoadBalancerServiceServer, route_service_server::RouteServiceServer,
};
use tokio::sync::watch;
use tonic::server::NamedService as _;
use tonic_health::{ServingStatus, server::HealthReporter};

use super::peer::Peer;
use crate::{
    credentials::Untried,
    driver::{Collection, Driver, Fault, Item, VendorError},
    instances, load_balancers, routes,
    rpc::Rpc,
    self_check,
    snapshot::Snapshot,
    status::{self, Snapshots},
};

#[derive(Debug)]
pub(crate) struct Work<D: Driver> {
    pub(crate) driver: Arc<D>,
    pub(crate) snapshots: Snapshots<D>,
    pub(crate) finder: Arc<instances::Finder<D>>,
    pub(crate) rpc: Rpc,
    /// Why the cloud is unreachable; `None`: it is reachable.
    pub(crate) health: watch::Sender<Option<VendorError>>,
    pub(crate) untried: Untried,
    pub(crate) reporter: HealthReporter,
    /// The connection to the leader. `None`: this is a single replica.
    pub(crate) peer: Option<Peer>,
}

impl<D: Driver> Work<D> {
    /// The work of a leader until its term ends. Never returns by itself.
    pub(super) async fn lead(&self) {
        self.health.send_replace(Some(VendorError::new(
            Fault::Unavailable,
            "the adapter has not called the cloud yet",
        )));
        // A standby does not follow load balancers, and the previous leader may have changed them.
        self.snapshots.load_balancers.forget();
        self.untried.none().await;
        tokio::join!(self.publish_serving(), self.check_and_refresh());
    }

    /// Checks the credentials, then keeps the listings fresh. Never ends by itself.
    async fn check_and_refresh(&self) {
        let Rpc { vendor, .. } = &self.rpc;
        let scope = self_check::pass(&*self.driver, vendor, &self.health, None).await;
        tracing::info!(project = scope.project, region = scope.region, "The credentials are valid");
        self.belong_to(Some(scope.clone()));
        self_check::tell(&self.health, None);
        tokio::join!(
            self_check::keep(&*self.driver, vendor, &self.health, &scope),
            self.keep_fresh(&self.snapshots.instances),
            self.keep_fresh(&self.snapshots.load_balancers),
            self.keep_fresh(&self.snapshots.routes),
        );
    }

    /// Records the scope of the credentials. Drops the observations of another scope, because an object that is missing in one scope may
    /// exist in another.
    pub(super) fn belong_to(&self, scope: Option<Scope>) {
        let fingerprint = |scope: &Option<Scope>| scope.as_ref().map(|scope| scope.fingerprint.clone());
        let now = fingerprint(&scope);
        let before = fingerprint(&self.rpc.scope.send_replace(scope));
        if before.is_some() && before != now {
            tracing::warn!("The scope of the credentials changed; listing all collections again");
            self.snapshots.forget();
            self.finder.forget();
        }
    }

    async fn keep_fresh<T: Item>(&self, snapshot: &Snapshot<T>)
    where
        D: Collection<T>,
    {
        let Rpc { vendor, replica, access, instance_id, .. } = &self.rpc;
        // The ID spreads the refreshes of different clusters over the period. A cluster ID gives the same shift after each restart;
        // `instance_id` is random.
        let who = access.cluster_id.as_deref().unwrap_or(instance_id);
        snapshot.keep_fresh(&*self.driver, vendor, replica, who).await;
    }

    /// Publishes in the health service whether this replica answers calls, and updates it after each change. Never returns.
    async fn publish_serving(&self) {
        let mut health = self.health.subscribe();
        loop {
            let serves = self_check::answers(health.borrow_and_update().as_ref());
            self.publish_health(if serves { ServingStatus::Serving } else { ServingStatus::NotServing })
                .await;
            if health.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Sets the `grpc.health.v1` status of all services of the contract.
    pub(super) async fn publish_health(&self, status: ServingStatus) {
        for service in services::<D>() {
            self.reporter.set_service_status(service, status).await;
        }
    }
}

/// Ends the health watches of clients, which never end by themselves and would delay the shutdown.
pub(crate) async fn end_health_watches<D: Driver>(mut reporter: HealthReporter) {
    for service in services::<D>().into_iter().chain([""]) {
        reporter.clear_service_status(service).await;
    }
}

/// The names of the contract's services in `grpc.health.v1`.
fn services<D: Driver>() -> [&'static str; 4] {
    [
        AdapterServiceServer::<status::Service<D>>::NAME,
        InstanceServiceServer::<instances::Service<D>>::NAME,
        LoadBalancerServiceServer::<load_balancers::Service<D>>::NAME,
        RouteServiceServer::<routes::Service<D>>::NAME,
    ]
}
