//! Tests of health watches that end, with paused time. The replica is in memory, and its connections end like the connections of an
//! adapter.

use std::{
    io,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard},
};

use hyper::server::conn::http2;
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    io::{DuplexStream, duplex},
    sync::mpsc,
    time::timeout,
};
use tonic_health::{
    pb::health_server::HealthServer,
    server::{HealthReporter, HealthService},
};

use super::*;
use crate::{connector::settings, target::HostPort};

/// The age at which a connection is shut down, and the time from the shutdown until the connection is cut.
const AGE: Duration = Duration::from_mins(30);
const GRACE: Duration = Duration::from_mins(2);

/// The address of a replica, at which one process or no process runs. The process accepts any number of connections.
#[derive(Debug)]
struct Replica {
    /// Reports the health of the running process. `None` if no process runs; connections are then refused.
    health: Option<HealthReporter>,
    /// Whether reads and writes hang.
    vanished: watch::Sender<bool>,
    connections: watch::Sender<u32>,
    servers: JoinSet<()>,
}

#[derive(Clone, Debug)]
struct Shared(Arc<Mutex<Replica>>);

impl Shared {
    async fn serving() -> Self {
        let replica = Replica {
            health: Some(reporting(tonic_health::ServingStatus::Serving).await),
            vanished: watch::Sender::new(false),
            connections: watch::Sender::new(0),
            servers: JoinSet::new(),
        };
        Self(Arc::new(Mutex::new(replica)))
    }

    fn lock(&self) -> MutexGuard<'_, Replica> {
        self.0.lock().unwrap()
    }

    /// Directs new connections to the process with this health, or refuses them if it is `None`.
    fn is_followed_by(&self, health: Option<HealthReporter>) {
        self.lock().health = health;
    }

    /// Waits until the process has accepted this number of connections.
    async fn connections(&self, enough: u32) {
        let mut connections = self.lock().connections.subscribe();
        connections.wait_for(|&connections| connections >= enough).await.unwrap();
    }

    fn connect(&self) -> io::Result<TokioIo<DuplexStream>> {
        let mut replica = self.lock();
        let health = replica.health.clone().ok_or(io::ErrorKind::ConnectionRefused)?;
        let (ours, theirs) = duplex(64 * 1024);
        let vanished = replica.vanished.subscribe();
        replica.servers.spawn(serve(theirs, health, vanished));
        replica.connections.send_modify(|connections| *connections += 1);
        Ok(TokioIo::new(ours))
    }

    /// Watches the replica's health, and sends each change of the table.
    fn follow(&self) -> (mpsc::UnboundedReceiver<String>, JoinSet<()>) {
        let connector = self.clone();
        let connector = tower::service_fn(move |_uri| std::future::ready(connector.connect()));
        let endpoint = settings(http::Uri::from_static("http://replica"));
        let line = Line::over(endpoint.connect_with_connector_lazy(connector));
        let address = Address::Tcp(HostPort { host: "replica".to_owned(), port: 1 });
        let (table, mut tasks) = (Table::default(), JoinSet::new());
        table.insert(address.clone(), line.clone());
        let (seen, history) = mpsc::unbounded_channel();
        let mut state = table.watch();
        tasks.spawn(async move {
            while state.changed().await.is_ok() {
                let health =
                    state.borrow_and_update().replicas.values().map(|it| it.health.to_string()).collect();
                seen.send(health).unwrap();
            }
        });
        tasks.spawn(follow(address, line, table));
        (history, tasks)
    }
}

async fn reporting(status: tonic_health::ServingStatus) -> HealthReporter {
    let health = HealthReporter::new();
    health.set_service_status(SERVICE, status).await;
    health
}

/// Serves one connection like an adapter: at the end, the process announces the shutdown, waits for the streams, and cuts the rest.
async fn serve(io: DuplexStream, health: HealthReporter, mut vanished: watch::Receiver<bool>) {
    let service = HealthServer::new(HealthService::from_health_reporter(health));
    let mut builder = http2::Builder::new(TokioExecutor::new());
    let connection = builder.timer(TokioTimer::new());
    let connection = connection.serve_connection(TokioIo::new(io), TowerToHyperService::new(service));
    let mut connection = pin!(connection);
    tokio::select! {
        _ended = &mut connection => return,
        () = async { drop(vanished.wait_for(|vanished| *vanished).await) } => std::future::pending().await,
        () = sleep(AGE) => (),
    }
    connection.as_mut().graceful_shutdown();
    let _cut = timeout(GRACE, connection).await;
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_is_replaced_changes_nothing() {
    let replica = Shared::serving().await;
    let (mut history, _tasks) = replica.follow();
    replica.connections(4).await;
    assert_eq!(history.recv().await.unwrap(), "serves");
    assert!(history.try_recv().is_err(), "no further report");
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_is_gone_when_its_watch_reopens_is_down() {
    let replica = Shared::serving().await;
    let (mut history, _tasks) = replica.follow();
    assert_eq!(history.recv().await.unwrap(), "serves");
    replica.is_followed_by(None);
    assert_eq!(history.recv().await.unwrap(), "is not reachable: the connection was refused");
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_stopped_serving_becomes_a_standby() {
    let replica = Shared::serving().await;
    let (mut history, _tasks) = replica.follow();
    assert_eq!(history.recv().await.unwrap(), "serves");
    replica.is_followed_by(Some(reporting(tonic_health::ServingStatus::NotServing).await));
    assert_eq!(history.recv().await.unwrap(), "does not serve");
}

#[tokio::test(start_paused = true)]
async fn a_vanished_replica_is_down_before_another_leads() {
    let replica = Shared::serving().await;
    let (mut history, _tasks) = replica.follow();
    assert_eq!(history.recv().await.unwrap(), "serves");
    let start = Instant::now();
    replica.is_followed_by(None);
    replica.lock().vanished.send_replace(true);
    assert_eq!(history.recv().await.unwrap(), "is not reachable: the connection was refused");
    assert!(start.elapsed() <= Duration::from_secs(10), "{:?}", start.elapsed());
}
