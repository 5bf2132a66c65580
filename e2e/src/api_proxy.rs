//! A proxy between a controller and the API server. A test uses it to hold back requests of the controller. The test's own requests do not
//! pass through the proxy.
//!
//! Clients speak plain HTTP to the proxy, on loopback. The proxy speaks TLS to the API server and passes tokens on, so the API server
//! authorizes as usual.

use std::convert::Infallible;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, ensure};
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::{StatusCode, header};
use kube::{Client, Config};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::control_plane::ControlPlane;
use crate::eventually::{WITHIN, eventually};
use crate::pods::Pod;

/// Maximum bytes of a request body; larger than any body sent to an API server.
const BODY_MAX: usize = 4 << 20;

/// The method and the path of requests that the proxy holds.
pub type Held = (&'static str, &'static str);

/// A running proxy. Dropping this value closes all connections.
#[derive(Debug)]
pub struct ApiProxy {
    url: String,
    shared: Arc<Shared>,
    _server: JoinSet<()>,
}

#[derive(Debug)]
struct Shared {
    /// The requests to hold.
    ordered: watch::Sender<Option<Held>>,
    /// The number of requests that were held since `ordered` was last set.
    held: watch::Sender<usize>,
    /// The number of held requests that were released one by one.
    let_go: watch::Sender<usize>,
}

#[derive(Clone)]
struct Proxy {
    api: Client,
    shared: Arc<Shared>,
}

impl ApiProxy {
    /// Starts a proxy that passes all requests.
    pub async fn start(control_plane: &ControlPlane) -> anyhow::Result<Self> {
        let server = control_plane.server();
        let mut config = Config::new(server.url.parse().context("the API server's URL")?);
        config.root_cert_file = Some(server.ca);
        let api = Client::try_from(config).context("cannot create a client")?;
        let shared = Arc::new(Shared {
            ordered: watch::Sender::new(None),
            held: watch::Sender::new(0),
            let_go: watch::Sender::new(0),
        });
        let address = format!("127.0.0.1:{}", test_support::ports::take()?);
        let listener = TcpListener::bind(&address).await.with_context(|| format!("cannot bind {address}"))?;
        let proxy = Proxy { api, shared: Arc::clone(&shared) };
        let router = Router::new().fallback(pass).with_state(proxy);
        let mut task = JoinSet::new();
        task.spawn(async move {
            // The server runs as long as its task.
            let _ended = axum::serve(listener, router).await.is_ok();
        });
        Ok(Self { url: format!("http://{address}"), shared, _server: task })
    }

    /// Makes a pod that does not run yet use this proxy.
    pub fn before(&self, pod: &Pod) -> anyhow::Result<()> {
        let path =
            pod.env().get("KUBECONFIG").with_context(|| format!("{} has no kubeconfig", pod.name()))?;
        redirect(Path::new(path), &self.url).with_context(|| format!("cannot change {path}"))
    }

    /// Holds each of these requests from now on.
    pub fn order(&self, held: Held) {
        self.set(Some(held));
    }

    /// Waits until the proxy holds a request that has not been released yet.
    pub async fn holds_one(&self) -> anyhow::Result<()> {
        eventually("a request is held", WITHIN, async || {
            let (held, let_go) = (*self.shared.held.borrow(), *self.shared.let_go.borrow());
            ensure!(held > let_go, "{held} requests were held, {let_go} were released");
            Ok(())
        })
        .await
    }

    /// Releases the held request. The proxy still holds the next request.
    pub fn let_one_go(&self) {
        self.shared.let_go.send_modify(|let_go| *let_go = let_go.saturating_add(1));
    }

    /// Releases all held requests, and lets all later requests pass.
    pub fn let_go(&self) {
        self.set(None);
    }

    fn set(&self, order: Option<Held>) {
        self.shared.held.send_replace(0);
        self.shared.let_go.send_replace(0);
        self.shared.ordered.send_replace(order);
    }
}

fn redirect(kubeconfig: &Path, url: &str) -> anyhow::Result<()> {
    let mut config: Value = serde_json::from_str(&fs::read_to_string(kubeconfig)?)?;
    *config.pointer_mut("/clusters/0/cluster").context("the kubeconfig has no cluster")? =
        json!({ "server": url });
    Ok(fs::write(kubeconfig, config.to_string())?)
}

async fn pass(State(proxy): State<Proxy>, request: Request) -> Result<Response, Infallible> {
    if proxy.shared.is_held(&request) {
        proxy.shared.hold().await;
    }
    Ok(proxy.forward(request).await)
}

impl Shared {
    fn is_held(&self, request: &Request) -> bool {
        self.ordered
            .borrow()
            .is_some_and(|(method, path)| request.method().as_str() == method && request.uri().path() == path)
    }

    /// Holds the calling request until it is released, or until `ordered` changes.
    async fn hold(&self) {
        let (mut ordered, mut let_go) = (self.ordered.subscribe(), self.let_go.subscribe());
        let order = *ordered.borrow();
        let mut number = 0;
        self.held.send_modify(|held| {
            *held = held.saturating_add(1);
            number = *held;
        });
        // `self` owns the senders, so the channels cannot be closed.
        tokio::select! {
            _ = ordered.wait_for(|now| *now != order) => (),
            _ = let_go.wait_for(|let_go| *let_go >= number) => (),
        }
    }
}

impl Proxy {
    async fn forward(&self, request: Request) -> Response {
        match self.send(request).await {
            Ok(answer) => answer,
            Err(error) => (StatusCode::BAD_GATEWAY, format!("{error:#}")).into_response(),
        }
    }

    async fn send(&self, request: Request) -> anyhow::Result<Response> {
        let (mut parts, body) = request.into_parts();
        // The client sets its own Host header.
        parts.headers.remove(header::HOST);
        let body = to_bytes(body, BODY_MAX).await?;
        let answer = self.api.send(http::Request::from_parts(parts, body.into())).await?;
        let (mut parts, body) = answer.into_parts();
        parts.headers.remove(header::TRANSFER_ENCODING);
        Ok(Response::from_parts(parts, Body::new(body)))
    }
}
