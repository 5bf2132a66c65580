//! Assembles the adapter, and serves until shutdown.

use std::{
    fmt,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, SystemTime},
};

use anyhow::Context as _;
use cloud_api_proto::{
    DESCRIPTOR_SET,
    v1alpha1::{
        adapter_service_server::AdapterServiceServer, instance_service_server::InstanceServiceServer,
        load_balancer_service_server::LoadBalancerServiceServer, route_service_server::RouteServiceServer,
    },
};
use telemetry::http::{Listener, Readers};
use tokio::sync::watch;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic::service::{Routes, RoutesBuilder};
use tonic_health::pb::health_server::{Health, HealthServer};
use tower::{Layer as _, util::MapResponse};

use crate::{
    access_control::AccessControl,
    auth::{Address, Guard, Port},
    clock::{Clock, wall},
    config::{Config, LiveConfig, Options, ReplicaMode},
    credentials::{self, Untried},
    driver::{Driver, Fault, VendorError},
    grants::Grants,
    http, instances,
    leadership::Replica,
    load_balancers,
    metrics::{Metrics, RpcLayer},
    page::{self, Page},
    routes,
    rpc::{Rpc, too_large},
    standby::{Election, Work, end_health_watches},
    status::{self, Snapshots},
    vendor::Vendor,
};

/// Maximum time for running requests and vendor calls after the stop signal.
const GRACE: Duration = Duration::from_secs(10);

/// An adapter that has opened its ports but does not serve yet.
#[derive(Debug)]
pub struct Adapter<D: Driver> {
    grpc: Port,
    access_control: AccessControl,
    http: Listener,
    readers: Readers,
    driver: Arc<D>,
    snapshots: Snapshots<D>,
    finder: Arc<instances::Finder<D>>,
    rpc: Rpc,
    config: LiveConfig,
    writes: TaskTracker,
    health: watch::Sender<Option<VendorError>>,
    /// The election. `None`: there is only this replica.
    election: Option<Election>,
}

impl<D: Driver> Adapter<D> {
    /// Opens the ports of the adapter.
    ///
    /// # Errors
    /// Returns an error if a port is in use or the configuration file cannot be read.
    pub async fn bind(driver: D, options: &Options) -> anyhow::Result<Self> {
        let config = LiveConfig::start(options.config.clone(), driver.describe().call_limits)?;
        let metrics = Metrics::new();
        let mut access_control =
            AccessControl::start(&options.security, &options.grpc_address, &metrics).await?;
        access_control.terms.times.age = options.max_connection_age;
        let grpc = taken("--grpc-address", &options.grpc_address, Port::bind(&options.grpc_address).await)?;
        let http = Listener::bind(options.http_address);
        let http = taken("--http-address", &options.http_address, http)?;
        let wall = wall();
        let driver = Arc::new(driver);
        let classify: Arc<D> = Arc::clone(&driver);
        let limits = config.current().borrow().limits.clone();
        let vendor = Vendor::trusting(driver.ca_certificates().as_deref(), &limits, classify, &metrics)
            .context("cannot set up the HTTP client")?;
        let unknown = VendorError::new(Fault::Unavailable, "the adapter has not called the cloud yet");
        let health = watch::Sender::new(Some(unknown));
        let rpc = Rpc {
            vendor: Arc::new(vendor),
            clock: Clock::starting_at(wall),
            metrics: metrics.clone(),
            access: access_control.access.clone(),
            instance_id: instance_id(wall).into(),
            scope: Arc::new(watch::Sender::new(None)),
            replica: Replica::standing_by(),
            draining: CancellationToken::new(),
            health: health.subscribe(),
            cluster: Arc::default(),
            grants: Arc::new(Grants::from(options.grant.clone())),
        };
        let horizon = driver.describe().consistency_horizon;
        let snapshots = Snapshots::new(&config.current().borrow().cache, horizon, &metrics);
        let finder = instances::Finder::new(Arc::clone(&driver), Arc::clone(&snapshots.instances), &rpc);
        let (finder, writes) = (Arc::new(finder), TaskTracker::new());
        let election = match options.replicas.replicas {
            ReplicaMode::Single => None,
            ReplicaMode::ActiveStandby => Some(Election::prepare(options, &rpc.instance_id, wall).await?),
        };
        let readers = options.security.status_pages;
        Ok(Self {
            grpc,
            access_control,
            http,
            readers,
            driver,
            snapshots,
            finder,
            rpc,
            config,
            writes,
            health,
            election,
        })
    }

    /// Returns the address of the gRPC port.
    ///
    /// # Errors
    /// Returns an error of the operating system.
    pub fn grpc_address(&self) -> std::io::Result<Address> {
        self.grpc.address()
    }

    /// Returns the address of metrics and probes.
    ///
    /// # Errors
    /// Returns an error of the operating system.
    pub fn http_address(&self) -> std::io::Result<SocketAddr> {
        self.http.local_addr()
    }

    /// Serves until shutdown, and then waits at most ten seconds for running work.
    ///
    /// # Errors
    /// Returns an error if the background work ends.
    pub async fn serve(self, stop: CancellationToken) -> anyhow::Result<()> {
        self.serve_through(stop, std::convert::identity).await
    }

    /// Serves with an additional layer or service of the adapter program in front of the services. Calls are authenticated and authorised
    /// before they reach this layer or service.
    ///
    /// # Errors
    /// Returns an error if the background work ends.
    pub async fn serve_through(
        self,
        stop: CancellationToken,
        front: impl FnOnce(Routes) -> Routes + Send,
    ) -> anyhow::Result<()> {
        tracing::info!(grpc = %self.grpc.address()?, http = %self.http.local_addr()?, "Adapter is listening");
        let (reporter, health_service) = tonic_health::server::health_reporter();
        let converger = Arc::new(self.converger());
        let services = front(self.services(health_service, Arc::clone(&converger))?);
        let (page, history) = self.page(converger);
        let Self { grpc, access_control, http, readers, driver, snapshots, .. } = self;
        let Self { finder, rpc, config, writes, health, election, .. } = self;
        let (tracker, draining) = (TaskTracker::new(), rpc.draining.clone());
        let settings = follow_settings(snapshots.clone(), Arc::clone(&finder), config.current());
        tracker.spawn(draining.clone().run_until_cancelled_owned(settings));
        tracker.spawn(draining.clone().run_until_cancelled_owned(history));
        let limits = {
            let (vendor, metrics) = (Arc::clone(&rpc.vendor), rpc.metrics.clone());
            async move { config.run(&metrics, |config| vendor.configure(&config.limits)).await }
        };
        tracker.spawn(draining.clone().run_until_cancelled_owned(limits));
        let untried = Untried::default();
        let credentials = credentials::follow(Arc::clone(&driver), rpc.clone(), untried.clone());
        tracker.spawn(draining.clone().run_until_cancelled_owned(credentials));
        let peer = election.as_ref().map(|election| election.peer.clone());
        let telling = reporter.clone();
        let work = Work { driver, snapshots, finder, rpc: rpc.clone(), health, untried, reporter, peer };
        let mut work = tracker.spawn(work.run());
        let (release, released) = elect(election, &rpc, &tracker);
        tracker.spawn(http::serve(http, http::endpoints(rpc.clone(), page, readers), draining.clone()));
        let AccessControl { gate, terms, fresh, .. } = access_control;
        let services = MapResponse::new(services.prepare(), too_large);
        let guard = Guard::new(RpcLayer::new(rpc.metrics.clone()).layer(services), gate);
        tracker.spawn(grpc.serve(terms, guard, draining.clone()));
        tracker.spawn(draining.clone().run_until_cancelled_owned(fresh.keep(rpc.metrics.clone())));
        tokio::select! {
            () = stop.cancelled() => (),
            ended = &mut work => return ended.context("background tasks ended unexpectedly: this is a bug; please report it"),
        }
        tracing::info!("Adapter is stopping; waiting for running work to finish");
        let finish = async {
            rpc.replica.drain();
            // No write of this replica may still be running when another replica acquires the Lease.
            rpc.vendor.halt();
            writes.close();
            writes.wait().await;
            release.cancel();
            released.await;
            draining.cancel();
            end_health_watches::<D>(telling).await;
            tracker.close();
            tracker.wait().await;
            rpc.vendor.landed().await;
        };
        if tokio::time::timeout(GRACE, finish).await.is_err() {
            tracing::warn!("Adapter stopped before all work was done; callers must repeat their requests");
        }
        Ok(())
    }

    fn converger(&self) -> load_balancers::Converger<D> {
        let snapshot = Arc::clone(&self.snapshots.load_balancers);
        load_balancers::Converger::new(Arc::clone(&self.driver), snapshot, &self.rpc, self.writes.clone())
    }

    fn page(
        &self,
        converger: Arc<load_balancers::Converger<D>>,
    ) -> (Page, impl Future<Output = ()> + Send + use<D>) {
        Page::of(page::Sources {
            driver: Arc::clone(&self.driver),
            snapshots: self.snapshots.clone(),
            converger,
            rpc: self.rpc.clone(),
            config: self.config.current(),
            config_refused: self.config.refused(),
        })
    }

    fn services(
        &self,
        health: HealthServer<impl Health>,
        converger: Arc<load_balancers::Converger<D>>,
    ) -> anyhow::Result<Routes> {
        let rpc = &self.rpc;
        let status = status::Service {
            driver: Arc::clone(&self.driver),
            snapshots: self.snapshots.clone(),
            rpc: rpc.clone(),
            config: self.config.current(),
            health: rpc.health.clone(),
        };
        let applier = routes::Applier {
            driver: Arc::clone(&self.driver),
            snapshot: Arc::clone(&self.snapshots.routes),
            fences: crate::fence::Fences::default(),
            tracker: self.writes.clone(),
            replica: rpc.replica.clone(),
            table_lock: routes::TableLock::default(),
            slots: routes::Slots::default(),
            doubts: routes::Doubts::default(),
        };
        let balancers = load_balancers::Service { converger, sets: Arc::default(), rpc: rpc.clone() };
        let reflection = tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
            .build_v1()
            .context("cannot read the descriptor of the contract")?;
        let instances = Arc::new(instances::Service { finder: Arc::clone(&self.finder), rpc: rpc.clone() });
        let mut routes = RoutesBuilder::default();
        routes
            .add_service(health)
            .add_service(reflection)
            .add_service(AdapterServiceServer::new(status))
            .add_service(InstanceServiceServer::from_arc(Arc::clone(&instances)))
            .add_service(LoadBalancerServiceServer::new(balancers))
            .add_service(RouteServiceServer::new(routes::Service {
                applier: Arc::new(applier),
                rpc: rpc.clone(),
            }));
        Ok(instances::shared(routes.routes(), instances))
    }
}

/// Adds the name of the flag to the error if its port cannot be opened.
fn taken<T>(flag: &str, address: &impl fmt::Display, port: std::io::Result<T>) -> anyhow::Result<T> {
    port.with_context(|| format!("{flag} {address}: cannot open the port"))
}

/// Returns the start time in nanoseconds, which differs between processes.
fn instance_id(wall: SystemTime) -> String {
    let since = wall.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    format!("{:x}", since.as_nanos())
}

async fn follow_settings<D: Driver>(
    snapshots: Snapshots<D>,
    finder: Arc<instances::Finder<D>>,
    mut config: watch::Receiver<Arc<Config>>,
) {
    loop {
        let settings = config.borrow_and_update().cache.clone();
        snapshots.configure(&settings);
        finder.configure(settings.batch);
        if config.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Takes part in the election, or leads permanently if there is only this replica. Returns a token that releases the Lease, and a future
/// that completes when the Lease is released.
fn elect(
    election: Option<Election>,
    rpc: &Rpc,
    tracker: &TaskTracker,
) -> (CancellationToken, impl Future<Output = ()> + use<>) {
    let release = CancellationToken::new();
    let task = match election {
        Some(election) => Some(tracker.spawn(election.run(rpc.clone(), release.clone()))),
        None => {
            // The previous process may have used up the budget. A process in a crash loop must not use a full burst at each start.
            rpc.vendor.start_empty();
            rpc.replica.lead(0);
            rpc.metrics.leader(true);
            None
        }
    };
    let released = async move {
        if let Some(task) = task
            && let Err(error) = task.await
        {
            tracing::error!(%error, "The election task failed; the Lease is not released and will expire");
        }
    };
    (release, released)
}
