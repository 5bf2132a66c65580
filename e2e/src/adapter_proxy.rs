//! A proxy between the controllers and the adapter. A test uses it to inject faults, or to simulate an adapter with fewer capabilities.
//!
//! The proxy speaks gRPC without TLS on both sides, because other tests cover authentication and encryption. It changes only the
//! capabilities that the adapter reports and adds unknown fields; everything else passes unchanged, including trailers.

mod longer;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use anyhow::{Context, ensure};
use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use cloud_api_proto::v1alpha1::adapter_service_client::AdapterServiceClient;
use cloud_api_proto::v1alpha1::adapter_service_server::{AdapterService, AdapterServiceServer};
use cloud_api_proto::v1alpha1::{GetInfoRequest, GetInfoResponse, WatchStatusRequest, WatchStatusResponse};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tonic::body::Body;
use tonic::service::Routes;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Server};
use tonic::{Status, Streaming};
use tower::ServiceExt as _;

use crate::eventually::{WITHIN, eventually};

/// A fault for calls. Call names are those of the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// These calls are answered with UNIMPLEMENTED, as by an adapter of another version.
    Lacks(&'static [&'static str]),
    /// The first calls of this name, up to this number, wait until the fault changes.
    Holds(&'static str, usize),
}

/// A running proxy. Dropping this value closes all connections.
#[derive(Debug)]
pub struct AdapterProxy {
    url: String,
    shared: Arc<Shared>,
    _server: JoinSet<()>,
}

#[derive(Debug)]
struct Shared {
    adapter: OnceLock<Channel>,
    /// Capabilities that the proxy removes from the adapter's report.
    hidden: watch::Sender<&'static [&'static str]>,
    /// Whether the proxy adds an unknown field to each answer.
    newer: watch::Sender<bool>,
    order: watch::Sender<Option<Order>>,
    counts: watch::Sender<Counts>,
}

/// Numbers of calls since the fault was last set.
#[derive(Debug, Default)]
struct Counts {
    calls: BTreeMap<String, usize>,
    held: usize,
}

impl AdapterProxy {
    /// Starts a proxy that has no adapter yet.
    pub async fn start() -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("cannot bind a loopback port")?;
        let url = format!("http://{}", listener.local_addr()?);
        let shared = Arc::new(Shared {
            adapter: OnceLock::new(),
            hidden: watch::Sender::new(&[]),
            newer: watch::Sender::new(false),
            order: watch::Sender::new(None),
            counts: watch::Sender::default(),
        });
        let server = Server::builder().add_routes(routes(&shared));
        let mut task = JoinSet::new();
        task.spawn(async move {
            // The server runs as long as its task.
            let _ended = server.serve_with_incoming(TcpIncoming::from(listener)).await.is_ok();
        });
        Ok(Self { url, shared, _server: task })
    }

    /// The chart values that make the controllers use this proxy.
    pub fn values(&self) -> Value {
        json!({ "adapter": { "endpoint": self.url, "tls": { "mode": "off" }, "authentication": "none" } })
    }

    /// Sets the adapter's address, which must stay the same when the adapter restarts.
    pub fn lead_to(&self, address: &str) -> anyhow::Result<()> {
        let channel = Channel::from_shared(format!("http://{address}"))
            .context("invalid adapter address")?
            .connect_lazy();
        ensure!(self.shared.adapter.set(channel).is_ok(), "the proxy has an adapter already");
        Ok(())
    }

    /// Hides a capability of the adapter from now on.
    pub fn hide(&self, capabilities: &'static [&'static str]) {
        self.shared.hidden.send_replace(capabilities);
    }

    /// Adds an unknown field to each message of the adapter from now on, as a later release might.
    pub fn say_more(&self) {
        self.shared.newer.send_replace(true);
    }

    /// Sets the fault for calls from now on. Open streams continue.
    pub fn order(&self, order: Order) {
        self.set(Some(order));
    }

    /// Clears the fault; held calls continue.
    pub fn heal(&self) {
        self.set(None);
    }

    /// The number of calls of this name since the fault was last set.
    pub fn calls(&self, name: &str) -> usize {
        self.shared.counts.borrow().calls.get(name).copied().unwrap_or_default()
    }

    /// Waits until the proxy holds this number of calls at the same time.
    ///
    /// Returns an error if the proxy holds fewer calls until the deadline.
    /// Returns an error if it holds fewer until the deadline.
    pub async fn holds(&self, calls: usize) -> anyhow::Result<()> {
        eventually(&format!("{calls} calls are held"), WITHIN, async || {
            let held = self.shared.counts.borrow().held;
            ensure!(held >= calls, "{held} are");
            Ok(())
        })
        .await
    }

    fn set(&self, order: Option<Order>) {
        self.shared.counts.send_replace(Counts::default());
        self.shared.order.send_replace(order);
    }
}

fn routes(shared: &Arc<Shared>) -> Routes {
    let others = Router::new().fallback(pass).with_state(Arc::clone(shared));
    let info = Routes::new(AdapterServiceServer::new(Info(Arc::clone(shared))));
    let all = info.into_axum_router().fallback_service(others);
    all.layer(from_fn_with_state(Arc::clone(shared), meet)).into()
}

/// Applies the fault to a call.
async fn meet(State(shared): State<Arc<Shared>>, request: Request, next: Next) -> Response {
    let name = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
    if shared.lacks(&name) {
        return Status::unimplemented(format!("{name} is unimplemented, as the test requested")).into_http();
    }
    shared.hold(&name).await;
    let answer = next.run(request).await;
    if *shared.newer.borrow() { answer.map(longer::longer) } else { answer }
}

async fn pass(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let answer = match shared.adapter() {
        Ok(adapter) => adapter.oneshot(request.map(Body::new)).await.map_err(|error| away(&error)),
        Err(status) => Err(status),
    };
    answer.map_or_else(Status::into_http, |answer| answer.map(axum::body::Body::new))
}

fn away(error: &tonic::transport::Error) -> Status {
    Status::unavailable(format!("cannot reach the adapter behind the proxy: {error}"))
}

impl Shared {
    fn adapter(&self) -> Result<Channel, Status> {
        self.adapter.get().cloned().ok_or_else(|| Status::unavailable("the proxy has no adapter yet"))
    }

    fn lacks(&self, name: &str) -> bool {
        self.counts.send_modify(|counts| {
            let calls = counts.calls.entry(name.to_owned()).or_default();
            *calls = calls.saturating_add(1);
        });
        matches!(*self.order.borrow(), Some(Order::Lacks(names)) if names.contains(&name))
    }

    async fn hold(&self, name: &str) {
        let mut orders = self.order.subscribe();
        let order = *orders.borrow_and_update();
        let Some(Order::Holds(held, most)) = order else { return };
        let is_held = held == name
            && self.counts.send_if_modified(|counts| {
                let is_held = counts.held < most;
                counts.held = counts.held.saturating_add(usize::from(is_held));
                is_held
            });
        if is_held {
            // `self` owns the sender, so the channel cannot be closed.
            let _changed = orders.wait_for(|now| *now != order).await.is_ok();
        }
    }
}

/// Removes the hidden capabilities from the adapter's report.
struct Info(Arc<Shared>);

#[tonic::async_trait]
impl AdapterService for Info {
    type WatchStatusStream = Streaming<WatchStatusResponse>;

    async fn get_info(
        &self,
        request: tonic::Request<GetInfoRequest>,
    ) -> Result<tonic::Response<GetInfoResponse>, Status> {
        let mut answer = AdapterServiceClient::new(self.0.adapter()?).get_info(request).await?;
        let hidden = *self.0.hidden.borrow();
        answer.get_mut().capabilities.retain(|it| !hidden.contains(&it.name.as_str()));
        Ok(answer)
    }

    async fn watch_status(
        &self,
        request: tonic::Request<WatchStatusRequest>,
    ) -> Result<tonic::Response<Self::WatchStatusStream>, Status> {
        AdapterServiceClient::new(self.0.adapter()?).watch_status(request).await
    }
}
