//! What a replica does in each duty: who leads checks its credentials and keeps the listings fresh, who stands by follows.

use std::sync::Arc;

use cloud_api_proto::v1alpha1::{
    Scope, adapter_service_server::AdapterServiceServer, instance_service_server::InstanceServiceServer,
    load_balancer_service_server::LoadBalancerServiceServer, route_service_server::RouteServiceServer,
};
use tokio::sync::watch;
use tonic::server::NamedService as _;
use tonic_health::{ServingStatus, server::HealthReporter};

use super::{Duty, feed::Peer};
use crate::{
    credentials::Untried,
    driver::{Collection, Driver, Fault, Item, VendorError},
    instances, load_balancers, routes,
    rpc::Rpc,
    self_check,
    snapshot::Snapshot,
    status::{self, Snapshots},
};

/// Everything that goes on beside the requests.
#[derive(Debug)]
pub(crate) struct Work<D: Driver> {
    pub(crate) driver: Arc<D>,
    pub(crate) snapshots: Snapshots<D>,
    pub(crate) finder: Arc<instances::Finder<D>>,
    pub(crate) rpc: Rpc,
    /// Why the cloud is not reachable; `None`: it is.
    pub(crate) health: watch::Sender<Option<VendorError>>,
    pub(crate) untried: Untried,
    pub(crate) reporter: HealthReporter,
    /// How to reach whoever leads. `None`: this is the only replica.
    pub(crate) peer: Option<Peer>,
}

impl<D: Driver> Work<D> {
    /// Does what the duty of the hour is, until this replica is about to stop.
    pub(crate) async fn run(self) {
        let mut duty = self.rpc.replica.subscribe();
        loop {
            let now = duty.borrow_and_update().clone();
            match now {
                Duty::Leading { .. } => {
                    tokio::select! {
                        () = self.lead() => (),
                        _ = duty.changed() => (),
                    }
                    self.tell_health(ServingStatus::NotServing).await;
                }
                Duty::Standby { leader } => {
                    self.tell_health(ServingStatus::NotServing).await;
                    tokio::select! {
                        () = self.follow(leader.as_deref()) => (),
                        _ = duty.changed() => (),
                    }
                }
                Duty::Draining => return,
            }
        }
    }

    /// One term. Never ends by itself.
    async fn lead(&self) {
        self.health.send_replace(Some(VendorError::new(Fault::Unavailable, "it was not asked yet")));
        // Nobody fed these, and whoever led in between may have changed what they show.
        self.snapshots.load_balancers.forget();
        self.untried.none().await;
        tokio::join!(self.tell_serving(), self.keep_in_step());
    }

    /// Checks the credentials, then keeps what is known of the cloud in step with it. Never ends by itself.
    async fn keep_in_step(&self) {
        let Rpc { vendor, .. } = &self.rpc;
        let scope = self_check::pass(&*self.driver, vendor, &self.health, None).await;
        tracing::info!(project = scope.project, region = scope.region, "The credentials are good");
        self.belong_to(Some(scope.clone()));
        self_check::tell(&self.health, None);
        tokio::join!(
            self_check::keep(&*self.driver, vendor, &self.health, &scope),
            self.keep_fresh(&self.snapshots.instances),
            self.keep_fresh(&self.snapshots.load_balancers),
            self.keep_fresh(&self.snapshots.routes),
        );
    }

    /// Keeps snapshots by the leader's watches. Never ends by itself.
    async fn follow(&self, leader: Option<&str>) {
        if let (Some(peer), Some(leader)) = (&self.peer, leader) {
            peer.follow(leader, self).await;
        }
        std::future::pending::<()>().await;
    }

    /// Notes which part of the cloud everything is from now on. What was seen of another one is forgotten: what is missing there may
    /// well exist here.
    pub(super) fn belong_to(&self, scope: Option<Scope>) {
        let fingerprint = |scope: &Option<Scope>| scope.as_ref().map(|scope| scope.fingerprint.clone());
        let now = fingerprint(&scope);
        let before = fingerprint(&self.rpc.scope.send_replace(scope));
        if before.is_some() && before != now {
            tracing::warn!("The credentials open another part of the cloud: everything is listed anew");
            self.snapshots.forget();
            self.finder.forget();
        }
    }

    async fn keep_fresh<T: Item>(&self, snapshot: &Snapshot<T>)
    where
        D: Collection<T>,
    {
        let Rpc { vendor, replica, access, instance_id, .. } = &self.rpc;
        // The cluster's ticks stay where they are over restarts.
        let who = access.cluster_id.as_deref().unwrap_or(instance_id);
        snapshot.keep_fresh(&*self.driver, vendor, replica, who).await;
    }

    /// Tells clients whether calls are answered here, now and from now on. Never ends.
    async fn tell_serving(&self) {
        let mut health = self.health.subscribe();
        loop {
            let serves = self_check::answers(health.borrow_and_update().as_ref());
            self.tell_health(if serves { ServingStatus::Serving } else { ServingStatus::NotServing }).await;
            if health.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Tells clients that look at `grpc.health.v1` how all services of the contract are.
    async fn tell_health(&self, status: ServingStatus) {
        for service in services::<D>() {
            self.reporter.set_service_status(service, status).await;
        }
    }
}

/// Ends the health watches of clients. They have no end of their own, and their connections would be waited for.
pub(crate) async fn end_health_watches<D: Driver>(mut reporter: HealthReporter) {
    for service in services::<D>().into_iter().chain([""]) {
        reporter.clear_service_status(service).await;
    }
}

/// The names by which `grpc.health.v1` knows the services of the contract.
fn services<D: Driver>() -> [&'static str; 4] {
    [
        AdapterServiceServer::<status::Service<D>>::NAME,
        InstanceServiceServer::<instances::Service<D>>::NAME,
        LoadBalancerServiceServer::<load_balancers::Service<D>>::NAME,
        RouteServiceServer::<routes::Service<D>>::NAME,
    ]
}
