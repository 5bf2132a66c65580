//! Puts the parts together, and runs them until told to stop.

use std::{
    fmt,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, SystemTime},
};

use anyhow::Context as _;
use cloud_adapter_security::{Address, Guard, Port};
use cloud_api_proto::{
    DESCRIPTOR_SET,
    v1alpha1::{
        Priority, Scope, adapter_service_server::AdapterServiceServer,
        instance_service_server::InstanceServiceServer,
        load_balancer_service_server::LoadBalancerServiceServer, route_service_server::RouteServiceServer,
    },
};
use tokio::{net::TcpListener, sync::watch};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic::{
    server::NamedService as _,
    service::{Routes, RoutesBuilder},
};
use tonic_health::{
    ServingStatus,
    pb::health_server::{Health, HealthServer},
    server::HealthReporter,
};
use tower::Layer as _;

use crate::{
    clock::{Clock, wall},
    config::{Config, LiveConfig, Options},
    driver::{Collection, Driver, Fault, Item, VendorError},
    http, instances, load_balancers,
    metrics::{Metrics, RpcLayer},
    replica::Replica,
    routes,
    rpc::Rpc,
    security::Security,
    snapshot::Snapshot,
    status::{self, Snapshots},
    vendor::{Purpose, Vendor},
};

/// Requests and vendor calls under way may take this long after the signal to stop.
const GRACE: Duration = Duration::from_secs(10);
/// A failed self-check is repeated after a second at first, and every half minute at last: vendors lock accounts.
const CHECK_FIRST: Duration = Duration::from_secs(1);
const CHECK_LAST: Duration = Duration::from_secs(30);

/// An adapter whose ports are open and which does not serve yet.
#[derive(Debug)]
pub struct Adapter<D: Driver> {
    grpc: Port,
    security: Security,
    http: TcpListener,
    driver: Arc<D>,
    snapshots: Snapshots<D>,
    finder: Arc<instances::Finder<D>>,
    rpc: Rpc,
    config: LiveConfig,
    tracker: TaskTracker,
    health: watch::Sender<Option<VendorError>>,
}

impl<D: Driver> Adapter<D> {
    /// Opens the ports.
    ///
    /// # Errors
    /// If a port is taken, or the configuration file cannot be read.
    pub async fn bind(driver: D, options: &Options) -> anyhow::Result<Self> {
        let config = LiveConfig::start(options.config.clone(), driver.describe().call_limits)?;
        let metrics = Metrics::new();
        let security = Security::start(&options.security, &options.grpc_address, &metrics).await?;
        let grpc = taken("--grpc-address", &options.grpc_address, Port::bind(&options.grpc_address).await)?;
        let http = TcpListener::bind(options.http_address).await;
        let http = taken("--http-address", &options.http_address, http)?;
        let wall = wall();
        let driver = Arc::new(driver);
        let classify: Arc<D> = Arc::clone(&driver);
        let vendor = Vendor::new(&config.current().borrow().limits, classify, metrics.clone())
            .context("the HTTP client cannot be set up")?;
        let unknown = VendorError::new(Fault::Unavailable, "it was not asked yet");
        let health = watch::Sender::new(Some(unknown));
        let rpc = Rpc {
            vendor: Arc::new(vendor),
            clock: Clock::starting_at(wall),
            metrics: metrics.clone(),
            access: security.access.clone(),
            instance_id: instance_id(wall).into(),
            scope: Arc::new(watch::Sender::new(None)),
            replica: Replica::standing_by(),
            draining: CancellationToken::new(),
            health: health.subscribe(),
        };
        let horizon = driver.describe().consistency_horizon;
        let snapshots = Snapshots::new(&config.current().borrow().cache, horizon, &metrics);
        let finder = instances::Finder::new(Arc::clone(&driver), Arc::clone(&snapshots.instances), &rpc);
        let (finder, tracker) = (Arc::new(finder), TaskTracker::new());
        Ok(Self { grpc, security, http, driver, snapshots, finder, rpc, config, tracker, health })
    }

    /// The address of the contract.
    ///
    /// # Errors
    /// Those of the operating system.
    pub fn grpc_address(&self) -> std::io::Result<Address> {
        self.grpc.address()
    }

    /// The address of metrics and probes.
    ///
    /// # Errors
    /// Those of the operating system.
    pub fn http_address(&self) -> std::io::Result<SocketAddr> {
        self.http.local_addr()
    }

    /// Serves until told to stop; then finishes what is under way, for at most ten seconds.
    ///
    /// # Errors
    /// If the background work ends.
    pub async fn serve(self, stop: CancellationToken) -> anyhow::Result<()> {
        tracing::info!(grpc = %self.grpc.address()?, http = %self.http.local_addr()?, "Adapter listens");
        let (reporter, health_service) = tonic_health::server::health_reporter();
        let services = self.services(health_service)?;
        let Self { grpc, security, http, driver, snapshots, finder, rpc, config, tracker, health } = self;
        let draining = rpc.draining.clone();
        let place = follow_place(snapshots.clone(), Arc::clone(&finder), rpc.scope.subscribe());
        tracker.spawn(draining.clone().run_until_cancelled_owned(place));
        let settings = follow_settings(snapshots.clone(), finder, config.current());
        tracker.spawn(draining.clone().run_until_cancelled_owned(settings));
        // The only replica: the one term lasts as long as the process.
        rpc.replica.lead(0);
        let mut background = tracker.spawn(background(driver, snapshots, rpc.clone(), health, reporter));
        tracker.spawn(http::serve(http, rpc.metrics.clone(), rpc.health.clone(), draining.clone()));
        let Security { gate, terms, fresh, .. } = security;
        let guard = Guard::new(RpcLayer::new(rpc.metrics.clone()).layer(services.prepare()), gate);
        tracker.spawn(grpc.serve(terms, guard, draining.clone()));
        tracker.spawn(draining.clone().run_until_cancelled_owned(fresh.keep(rpc.metrics.clone())));
        tokio::select! {
            () = stop.cancelled() => (),
            ended = &mut background => return ended.context("the refreshers ended: this is a defect"),
        }
        tracing::info!("Adapter stops: finishing what is under way");
        rpc.replica.drain();
        draining.cancel();
        tracker.close();
        if tokio::time::timeout(GRACE, tracker.wait()).await.is_err() {
            tracing::warn!("Adapter stopped with work under way: whoever asked for it repeats it");
        }
        Ok(())
    }

    fn services(&self, health: HealthServer<impl Health>) -> anyhow::Result<Routes> {
        let rpc = &self.rpc;
        let status = status::Service {
            driver: Arc::clone(&self.driver),
            snapshots: self.snapshots.clone(),
            rpc: rpc.clone(),
            config: self.config.current(),
            health: rpc.health.clone(),
        };
        let converger = load_balancers::Converger::new(
            Arc::clone(&self.driver),
            Arc::clone(&self.snapshots.load_balancers),
            rpc,
            self.tracker.clone(),
        );
        let applier = routes::Applier {
            driver: Arc::clone(&self.driver),
            snapshot: Arc::clone(&self.snapshots.routes),
            fences: crate::fence::Fences::default(),
            tracker: self.tracker.clone(),
            replica: rpc.replica.clone(),
            metrics: rpc.metrics.clone(),
            writing: tokio::sync::Mutex::default(),
            doubts: routes::Doubts::default(),
        };
        let balancers = load_balancers::Service {
            converger: Arc::new(converger),
            sets: Arc::default(),
            rpc: rpc.clone(),
        };
        let reflection = tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
            .build_v1()
            .context("the contract's descriptor cannot be read")?;
        let mut routes = RoutesBuilder::default();
        routes
            .add_service(health)
            .add_service(reflection)
            .add_service(AdapterServiceServer::new(status))
            .add_service(InstanceServiceServer::new(instances::Service {
                finder: Arc::clone(&self.finder),
                rpc: rpc.clone(),
            }))
            .add_service(LoadBalancerServiceServer::new(balancers))
            .add_service(RouteServiceServer::new(routes::Service {
                applier: Arc::new(applier),
                rpc: rpc.clone(),
            }));
        Ok(routes.routes())
    }
}

/// Names the flag whose port is taken.
fn taken<T>(flag: &str, address: &impl fmt::Display, port: std::io::Result<T>) -> anyhow::Result<T> {
    port.with_context(|| format!("{flag} {address}: the port cannot be opened"))
}

/// Differs between processes: the time of the start, in nanoseconds.
fn instance_id(wall: SystemTime) -> String {
    let since = wall.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    format!("{:x}", since.as_nanos())
}

/// What runs beside the servers: the self-check until it passes, then the refreshers.
async fn background<D: Driver>(
    driver: Arc<D>,
    snapshots: Snapshots<D>,
    rpc: Rpc,
    health: watch::Sender<Option<VendorError>>,
    reporter: HealthReporter,
) {
    let work = async {
        tell_health::<D>(&reporter, ServingStatus::NotServing).await;
        check(&*driver, &rpc, &health).await;
        tell_health::<D>(&reporter, ServingStatus::Serving).await;
        tokio::join!(
            keep_fresh(&snapshots.instances, &*driver, &rpc),
            keep_fresh(&snapshots.load_balancers, &*driver, &rpc),
            keep_fresh(&snapshots.routes, &*driver, &rpc),
        );
    };
    tokio::select! {
        () = work => (),
        () = rpc.draining.cancelled() => tell_health::<D>(&reporter, ServingStatus::NotServing).await,
    }
}

/// Tells clients that look at `grpc.health.v1` how all services of the contract are.
async fn tell_health<D: Driver>(reporter: &HealthReporter, status: ServingStatus) {
    for service in [
        AdapterServiceServer::<status::Service<D>>::NAME,
        InstanceServiceServer::<instances::Service<D>>::NAME,
        LoadBalancerServiceServer::<load_balancers::Service<D>>::NAME,
        RouteServiceServer::<routes::Service<D>>::NAME,
    ] {
        reporter.set_service_status(service, status).await;
    }
}

/// Goes by the newest settings of the caches. Never ends.
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

/// Forgets everything when the credentials open another part of the cloud: what is missing there may well exist here. Never ends.
async fn follow_place<D: Driver>(
    snapshots: Snapshots<D>,
    finder: Arc<instances::Finder<D>>,
    mut scope: watch::Receiver<Option<Scope>>,
) {
    let mut known: Option<String> = None;
    loop {
        let now = scope.borrow_and_update().as_ref().map(|scope| scope.fingerprint.clone());
        if known.is_some() && now.is_some() && now != known {
            tracing::warn!("The credentials open another part of the cloud: everything is listed anew");
            snapshots.forget();
            finder.forget();
        }
        known = now.or(known);
        if scope.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

async fn keep_fresh<T: Item>(snapshot: &Snapshot<T>, source: &impl Collection<T>, rpc: &Rpc) {
    snapshot.keep_fresh(source, &rpc.vendor, &rpc.replica, &rpc.instance_id).await;
}

/// Finds out whose credentials these are, however long it takes. Says so once per change of mind.
async fn check<D: Driver>(driver: &D, rpc: &Rpc, health: &watch::Sender<Option<VendorError>>) {
    let mut delay = CHECK_FIRST;
    let mut told = None;
    loop {
        let session = rpc.vendor.session(Purpose::own(Priority::Lifecycle, "self-check"));
        match driver.self_check(&session).await {
            Ok(scope) => {
                tracing::info!(project = scope.project, region = scope.region, "The cloud is reachable");
                rpc.scope.send_replace(Some(scope));
                health.send_replace(None);
                return;
            }
            Err(error) => {
                if told.replace(error.fault) != Some(error.fault) {
                    tracing::warn!(%error, "The cloud is not reachable: waiting for it");
                }
                health.send_replace(Some(error));
            }
        }
        tokio::time::sleep(delay).await;
        delay = (delay * 2).min(CHECK_LAST);
    }
}
