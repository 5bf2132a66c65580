//! The channel that generated clients take, and how it is opened.

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
    call::{self, PATIENCE},
    connector::{Address, Line},
    discovery::{self, Found, Resolve, SystemResolver},
    replicas::{Table, Tried, supervise},
    security::{Fault, Secured, Security},
    target::{HostPort, Target},
};

/// A way to an adapter, judged and not opened yet. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct Connection {
    target: Target,
    secured: Secured,
    resolver: Arc<dyn Resolve>,
    #[cfg(feature = "kubernetes")]
    kube: Option<KubeClient>,
}

/// Opened: the channel that tonic's generated clients take. Cloning is cheap and shares the connections.
#[derive(Clone, Debug)]
pub struct AdapterChannel {
    table: Table,
    patience: Duration,
    repeats: bool,
    /// What keeps the table right. Ends with the last clone.
    _tasks: Arc<JoinSet<()>>,
}

impl Connection {
    /// Judges security against target, and reads all files. Connects to nothing.
    ///
    /// # Errors
    /// All that is wrong, each with its flag and the fix.
    pub fn new(target: Target, security: &Security) -> Result<Self, Vec<Fault>> {
        let secured = security.check(&target)?;
        Ok(Self {
            target,
            secured,
            resolver: Arc::new(SystemResolver),
            #[cfg(feature = "kubernetes")]
            kube: None,
        })
    }

    /// Where it leads to.
    #[must_use]
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// The same, but names of `dns:///` are looked up here.
    #[must_use]
    pub fn resolving(mut self, resolver: Arc<dyn Resolve>) -> Self {
        self.resolver = resolver;
        self
    }

    /// The same, with the client that `kubernetes:///` looks for EndpointSlices with.
    #[cfg(feature = "kubernetes")]
    #[must_use]
    pub fn through(mut self, kube: kube::Client) -> Self {
        self.kube = Some(KubeClient(kube));
        self
    }

    /// Opens it: nothing of the other side need be there yet. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// An address that no URL can hold, or `kubernetes:///` without a client of the API server.
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

    /// One endpoint: nothing to choose from, nothing to wait for.
    fn single(&self, address: Address) -> Result<AdapterChannel, OpenError> {
        let line = Line::new(address.clone(), &self.secured)?;
        Ok(AdapterChannel::of(address, line))
    }

    /// Several replicas, which `discover` finds.
    fn several(
        &self,
        discover: impl FnOnce(watch::Sender<Found>, Table) -> BoxFuture<'static, ()>,
    ) -> AdapterChannel {
        let (table, mut tasks) = (Table::default(), JoinSet::new());
        let (found, looks) = watch::channel(Found::default());
        tasks.spawn(supervise(looks, self.secured.clone(), table.clone()));
        tasks.spawn(discover(found, table.clone()));
        AdapterChannel { table, patience: PATIENCE, repeats: true, _tasks: Arc::new(tasks) }
    }
}

/// Why a way cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The address makes no URL.
    #[error("the address makes no URL")]
    Address(#[from] http::Error),
    /// There is nobody to ask for EndpointSlices.
    #[cfg(feature = "kubernetes")]
    #[error("kubernetes:/// needs a client of the API server")]
    NoKubernetes,
}

impl AdapterChannel {
    /// The replica that the next call goes to. `None`: none is known that serves.
    #[must_use]
    pub fn serving(&self) -> Option<String> {
        let pick = self.table.watch().borrow().pick(&Tried::default());
        pick.map(|pick| pick.address.to_string())
    }

    /// Why the next call goes nowhere: no replica serves, with what is known of each. `None`: one does.
    #[must_use]
    pub fn away(&self) -> Option<String> {
        let state = self.table.watch();
        let state = state.borrow();
        state.pick(&Tried::default()).is_none().then(|| state.to_string())
    }

    fn of(address: Address, line: Line) -> Self {
        let table = Table::of(address, line);
        Self { table, patience: Duration::ZERO, repeats: true, _tasks: Arc::default() }
    }

    /// The same, but nothing is repeated: whatever the end of a connection does to a call is its answer. Shows how an adapter ends
    /// connections.
    #[must_use]
    pub fn without_repetition(self) -> Self {
        Self { repeats: false, ..self }
    }
}

/// A channel that was made elsewhere, as a single endpoint; tests connect in memory.
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

    /// Always: a call waits for its replica itself.
    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        traces::hand_over(request.headers_mut());
        let channel = self.clone();
        async move {
            if channel.repeats {
                call::call(request, &channel.table, channel.patience).await
            } else {
                call::once(request, &channel.table, channel.patience).await
            }
        }
        .boxed()
    }
}

/// kube's client has no `Debug`.
#[cfg(feature = "kubernetes")]
#[derive(Clone)]
struct KubeClient(kube::Client);

#[cfg(feature = "kubernetes")]
impl std::fmt::Debug for KubeClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KubeClient")
    }
}
