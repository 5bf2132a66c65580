//! A replica of an adapter: a real gRPC server that can be killed.

use std::{
    collections::BTreeSet,
    io,
    net::SocketAddr,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use cloud_api_proto::{
    AdapterError, Reason,
    v1alpha1::{
        GetInfoRequest, GetInfoResponse, WatchStatusRequest, WatchStatusResponse,
        adapter_service_server::{AdapterService, AdapterServiceServer},
    },
};
use futures::{Stream, StreamExt as _, stream::BoxStream};
use rustls::ServerConfig;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, UnixListener},
    runtime::Runtime,
};
use tokio_rustls::TlsAcceptor;
use tokio_stream::wrappers::{TcpListenerStream, UnixListenerStream};
use tonic::{
    Request, Response, Status,
    transport::{Server, server::Connected},
};
use tonic_health::{
    ServingStatus,
    pb::health_server::HealthServer,
    server::{HealthReporter, HealthService},
};

const SERVICE: &str = "cloudadapter.v1alpha1.AdapterService";

#[derive(Clone)]
pub(crate) struct Setup {
    pub(crate) name: &'static str,
    pub(crate) listen: SocketAddr,
    pub(crate) tls: Option<ServerConfig>,
    /// Whether the replica implements `grpc.health.v1`.
    pub(crate) health: bool,
    /// Interval at which connections are replaced.
    pub(crate) connection_age: Option<Duration>,
}

impl Setup {
    pub(crate) fn new(name: &'static str) -> Self {
        let listen = test_support::ports::loopback().unwrap();
        Self { name, listen, tls: None, health: true, connection_age: None }
    }
}

/// A running replica. Dropping this value ends all connections without a shutdown, like `kill -9`.
pub(crate) struct Replica {
    pub(crate) address: SocketAddr,
    pub(crate) shared: Arc<Shared>,
    health: HealthReporter,
    runtime: Option<Runtime>,
}

pub(crate) struct Shared {
    name: &'static str,
    leads: AtomicBool,
    /// What the replica waits for before it serves. Empty: it is not starting.
    starts: Mutex<&'static str>,
    /// Number of GetInfo calls that have begun.
    pub(crate) calls: AtomicU32,
    pub(crate) connections: AtomicU32,
    /// Accepted tokens. If empty, any caller is accepted.
    pub(crate) tokens: Mutex<BTreeSet<String>>,
    /// The credentials of the last call.
    pub(crate) token: Mutex<String>,
    /// While this is set, new calls never get an answer.
    pub(crate) holds: AtomicBool,
}

impl Replica {
    pub(crate) async fn start(setup: Setup) -> Self {
        let mut replica = Self::new(&setup).await;
        let runtime = replica.runtime.as_ref().unwrap();
        let listener = runtime.spawn(TcpListener::bind(setup.listen)).await.unwrap().unwrap();
        replica.address = listener.local_addr().unwrap();
        let shared = Arc::clone(&replica.shared);
        let incoming = TcpListenerStream::new(listener).inspect(move |_stream| {
            shared.connections.fetch_add(1, Ordering::SeqCst);
        });
        match setup.tls.clone() {
            None => replica.serve(&setup, incoming),
            Some(tls) => {
                let acceptor = TlsAcceptor::from(Arc::new(tls));
                let shaken = incoming.then(move |stream| {
                    let acceptor = acceptor.clone();
                    async move { acceptor.accept(stream?).await }
                });
                // A client that does not trust the certificate fails the handshake, which must not stop the server.
                replica.serve(&setup, shaken.filter(|shaken| std::future::ready(shaken.is_ok())).boxed());
            }
        }
        replica
    }

    pub(crate) async fn at_socket(name: &'static str, path: &Path) -> Self {
        let (setup, path) = (Setup::new(name), path.to_owned());
        let replica = Self::new(&setup).await;
        let runtime = replica.runtime.as_ref().unwrap();
        let listener = runtime.spawn(async move { UnixListener::bind(path) }).await.unwrap().unwrap();
        replica.serve(&setup, UnixListenerStream::new(listener));
        replica
    }

    async fn new(setup: &Setup) -> Self {
        let shared = Arc::new(Shared {
            name: setup.name,
            leads: AtomicBool::new(true),
            starts: Mutex::default(),
            calls: AtomicU32::new(0),
            connections: AtomicU32::new(0),
            tokens: Mutex::default(),
            token: Mutex::default(),
            holds: AtomicBool::new(false),
        });
        let health = HealthReporter::new();
        health.set_service_status(SERVICE, ServingStatus::Serving).await;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let address = setup.listen;
        Self { address, shared, health, runtime: Some(runtime.unwrap()) }
    }

    fn serve<S>(&self, setup: &Setup, incoming: impl Stream<Item = io::Result<S>> + Send + 'static)
    where
        S: AsyncRead + AsyncWrite + Connected + Unpin + Send + 'static,
        S::ConnectInfo: Clone + Send + Sync + 'static,
    {
        let health = HealthService::from_health_reporter(self.health.clone());
        let health = setup.health.then(|| HealthServer::new(health));
        let mut server = Server::builder();
        if let Some(age) = setup.connection_age {
            server = server.max_connection_age(age);
        }
        let server = server
            .add_service(AdapterServiceServer::new(Service(Arc::clone(&self.shared))))
            .add_optional_service(health)
            .serve_with_incoming(incoming);
        self.runtime.as_ref().unwrap().spawn(server);
    }

    pub(crate) fn host_port(&self) -> String {
        self.address.to_string()
    }

    pub(crate) fn calls(&self) -> u32 {
        self.shared.calls.load(Ordering::SeqCst)
    }

    /// Makes this replica the leader or a standby, and reports the new state.
    pub(crate) async fn lead(&self, leads: bool) {
        self.shared.leads.store(leads, Ordering::SeqCst);
        let status = if leads { ServingStatus::Serving } else { ServingStatus::NotServing };
        self.health.set_service_status(SERVICE, status).await;
    }

    /// Makes this replica a leader that waits for this before it serves.
    pub(crate) async fn start_by(&self, waits_for: &'static str) {
        *self.shared.starts.lock().unwrap() = waits_for;
        self.health.set_service_status(SERVICE, ServingStatus::NotServing).await;
    }

    /// Makes this replica a standby that still reports that it serves.
    pub(crate) fn lead_in_name_only(&self) {
        self.shared.leads.store(false, Ordering::SeqCst);
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

#[derive(Clone)]
struct Service(Arc<Shared>);

impl Service {
    fn admit<T>(&self, request: &Request<T>) -> Result<(), Status> {
        let tokens = self.0.tokens.lock().unwrap();
        let given = request.metadata().get("authorization").and_then(|value| value.to_str().ok());
        let token = given.and_then(|given| given.strip_prefix("Bearer ")).unwrap_or_default();
        token.clone_into(&mut self.0.token.lock().unwrap());
        if !tokens.is_empty() && !tokens.contains(token) {
            return Err(AdapterError::new(Reason::CallerUnauthenticated, "unknown caller").into());
        }
        let starts = *self.0.starts.lock().unwrap();
        if !starts.is_empty() {
            return Err(AdapterError::new(Reason::Starting, starts).into());
        }
        if !self.0.leads.load(Ordering::SeqCst) {
            return Err(AdapterError::new(Reason::NotLeader, "standby").into());
        }
        Ok(())
    }
}

#[tonic::async_trait]
impl AdapterService for Service {
    type WatchStatusStream = BoxStream<'static, Result<WatchStatusResponse, Status>>;

    async fn get_info(&self, request: Request<GetInfoRequest>) -> Result<Response<GetInfoResponse>, Status> {
        self.0.calls.fetch_add(1, Ordering::SeqCst);
        self.admit(&request)?;
        if self.0.holds.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        Ok(Response::new(GetInfoResponse { adapter_name: self.0.name.to_owned(), ..Default::default() }))
    }

    async fn watch_status(
        &self,
        request: Request<WatchStatusRequest>,
    ) -> Result<Response<Self::WatchStatusStream>, Status> {
        self.admit(&request)?;
        let first = WatchStatusResponse { instance_id: self.0.name.to_owned(), ..Default::default() };
        let rest = futures::stream::pending();
        Ok(Response::new(futures::stream::iter([Ok(first)]).chain(rest).boxed()))
    }
}
