//! The channel for generated clients, and the functions that open it.

use std::{
    error::Error,
    future,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures::{FutureExt as _, future::BoxFuture};
use http::{Request, Response};
use tokio::{sync::watch, task::JoinSet};
use tonic::{body::Body, transport::Channel};
use tower::Service;

use crate::{
    call::{self, REPLICA_TIMEOUT},
    channel_security::{ChannelSecurity, Fault, Secured},
    connector::{Address, Line},
    discovery::{self, Resolve, SystemResolver},
    replicas::{Found, Table, Tried, supervise},
    target::{HostPort, Target},
};

/// A validated connection that is not opened yet. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Connection {
    target: Target,
    secured: Secured,
    resolver: Arc<dyn Resolve>,
    #[cfg(feature = "kubernetes")]
    kube: Option<KubeClient>,
}

/// An open channel for tonic's generated clients. Cheap to clone; clones share the connections.
#[derive(Clone, Debug)]
pub struct AdapterChannel {
    table: Table,
    max_wait: Duration,
    repeats: bool,
    /// The tasks that update the table. They are aborted when the last clone is dropped.
    _tasks: Arc<JoinSet<()>>,
}

impl Connection {
    /// Validates the security settings for the target, and reads all files. Does not connect yet.
    pub fn new(target: Target, security: &ChannelSecurity) -> Result<Self, Vec<Fault>> {
        let secured = security.check(&target)?;
        Ok(Self {
            target,
            secured,
            resolver: Arc::new(SystemResolver),
            #[cfg(feature = "kubernetes")]
            kube: None,
        })
    }

    /// The target.
    #[must_use]
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// Returns a connection that uses `resolver` for names of `dns:///`.
    #[must_use]
    pub fn resolving(mut self, resolver: Arc<dyn Resolve>) -> Self {
        self.resolver = resolver;
        self
    }

    /// Returns a connection that uses this client of the API server to watch EndpointSlices for `kubernetes:///`.
    #[cfg(feature = "kubernetes")]
    #[must_use]
    pub fn through(mut self, kube: kube::Client) -> Self {
        self.kube = Some(KubeClient(kube));
        self
    }

    /// Opens the channel; the adapter need not be reachable yet. Must be called in a tokio runtime.
    pub fn open(&self) -> Result<AdapterChannel, OpenError> {
        match &self.target {
            Target::Single { host, .. } => self.single(Address::Tcp(host.clone())),
            Target::Unix(path) => self.single(Address::Unix(path.clone())),
            Target::Static(hosts) => {
                let addresses = hosts.iter().cloned().map(Address::Tcp).collect();
                Ok(self.several(|found, _table| {
                    found.send_replace(Found { addresses, trouble: None });
                    future::ready(()).boxed()
                }))
            }
            Target::Dns(name) => Ok(self.several(|found, table| {
                discovery::follow_name(name.clone(), Arc::clone(&self.resolver), found, table).boxed()
            })),
            #[cfg(feature = "kubernetes")]
            Target::Kubernetes(service) => {
                let kube = self.kube.clone().ok_or(OpenError::NoKubernetes)?.0;
                Ok(self
                    .several(|found, _table| discovery::follow_service(kube, service.clone(), found).boxed()))
            }
        }
    }

    /// Builds a channel to a single endpoint. Its calls neither choose nor await a replica.
    fn single(&self, address: Address) -> Result<AdapterChannel, OpenError> {
        let line = Line::new(address.clone(), &self.secured)?;
        Ok(AdapterChannel::of(address, line))
    }

    /// Builds a channel to several replicas, which `discover` finds.
    fn several(
        &self,
        discover: impl FnOnce(watch::Sender<Found>, Table) -> BoxFuture<'static, ()>,
    ) -> AdapterChannel {
        let (table, mut tasks) = (Table::default(), JoinSet::new());
        let (found, results) = watch::channel(Found::default());
        tasks.spawn(supervise(results, self.secured.clone(), table.clone()));
        tasks.spawn(discover(found, table.clone()));
        AdapterChannel { table, max_wait: REPLICA_TIMEOUT, repeats: true, _tasks: Arc::new(tasks) }
    }
}

/// Why a channel cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The address does not form a valid URL.
    #[error("the address does not form a valid URL")]
    Address(#[from] http::Error),
    /// No API server client was given to watch EndpointSlices.
    #[cfg(feature = "kubernetes")]
    #[error("kubernetes:/// needs a client of the API server")]
    NoKubernetes,
}

impl AdapterChannel {
    /// Returns the replica for the next call, or `None` if no replica is known to serve.
    #[must_use]
    pub fn serving(&self) -> Option<String> {
        let pick = self.table.watch().borrow().pick(&Tried::default());
        pick.map(|pick| pick.address.to_string())
    }

    /// Returns the state of each replica if no replica can be called, and otherwise `None`.
    #[must_use]
    pub fn away(&self) -> Option<String> {
        let state = self.table.watch();
        let state = state.borrow();
        state.pick(&Tried::default()).is_none().then(|| state.to_string())
    }

    fn of(address: Address, line: Line) -> Self {
        let table = Table::of(address, line);
        Self { table, max_wait: Duration::ZERO, repeats: true, _tasks: Arc::default() }
    }

    /// Returns a channel that never repeats calls. If a connection is closed, the caller gets the error. Conformance checks use this
    /// channel to test how an adapter closes connections.
    #[must_use]
    pub fn without_repetition(self) -> Self {
        Self { repeats: false, ..self }
    }
}

/// Wraps an existing channel as a single endpoint; used by tests to connect in memory.
impl From<Channel> for AdapterChannel {
    fn from(channel: Channel) -> Self {
        let nowhere = HostPort { host: "adapter".to_owned(), port: 0 };
        Self::of(Address::Tcp(nowhere), Line::over(channel))
    }
}

impl Service<Request<Body>> for AdapterChannel {
    type Response = Response<Body>;
    type Error = Box<dyn Error + Send + Sync>;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    /// Always ready, because each call itself waits for its replica.
    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        telemetry::traces::hand_over(request.headers_mut());
        let channel = self.clone();
        async move {
            if channel.repeats {
                call::call(request, &channel.table, channel.max_wait).await
            } else {
                call::once(request, &channel.table, channel.max_wait).await
            }
        }
        .boxed()
    }
}

/// Implemented by hand because the kube client does not implement `Debug`.
#[cfg(feature = "kubernetes")]
#[derive(Clone)]
struct KubeClient(kube::Client);

#[cfg(feature = "kubernetes")]
impl std::fmt::Debug for KubeClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KubeClient")
    }
}
