//! A proxy between a controller and the API server, with which a test injects faults. The test's own requests do not pass the proxy.
//!
//! Clients speak HTTP without TLS to the proxy, on loopback; the proxy speaks TLS to the API server and passes tokens on, so the API server
//! authorizes as usual. Faults never affect Leases: other tests cover leader election during an outage.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use futures::{StreamExt as _, stream};
use http::{HeaderValue, StatusCode, header};
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

/// A fault for requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// Every answer is delayed by this duration.
    Slow(Duration),
    /// Every request is refused, with 429 and `Retry-After` in plain text, as by the API server's own flow control.
    Throttled(Duration),
    /// Every request is refused with 500.
    Fails,
    /// Every watch, and every later page of a listing, is refused because its resource version is too old.
    TooOld,
    /// No request gets an answer.
    Hangs,
    /// Each request of this method and path waits until the fault changes.
    Holds(&'static str, &'static str),
    /// Each request of this method to one of these paths is refused with the status next to it; with status 0 it gets no answer.
    Refuses(&'static str, &'static [(&'static str, u16)]),
}

/// A running proxy. Dropping this value closes all connections.
#[derive(Debug)]
pub struct ApiProxy {
    url: String,
    shared: Arc<Shared>,
    _server: JoinSet<()>,
}

#[derive(Debug)]
struct Shared {
    trouble: watch::Sender<Option<Trouble>>,
    /// The number of requests held since the fault was last set.
    held: watch::Sender<usize>,
    /// The number of held requests that were released one by one.
    let_go: watch::Sender<usize>,
    /// The number of requests that the fault affected since it was last set, by path.
    met: watch::Sender<BTreeMap<String, usize>>,
    /// Ends open streams and hanging requests. The value does not matter.
    cut: watch::Sender<()>,
}

#[derive(Clone)]
struct Proxy {
    api: Client,
    shared: Arc<Shared>,
}

impl ApiProxy {
    /// Starts a proxy without a fault.
    pub async fn start(control_plane: &ControlPlane) -> anyhow::Result<Self> {
        let server = control_plane.server();
        let mut config = Config::new(server.url.parse().context("the API server's URL")?);
        config.root_cert_file = Some(server.ca);
        let api = Client::try_from(config).context("cannot create a client")?;
        let shared = Arc::new(Shared {
            trouble: watch::Sender::new(None),
            held: watch::Sender::new(0),
            let_go: watch::Sender::new(0),
            met: watch::Sender::default(),
            cut: watch::Sender::new(()),
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

    /// Sets the fault for every request from now on. Running watches continue.
    pub fn order(&self, trouble: Trouble) {
        self.set(Some(trouble));
    }

    /// Clears the fault; hanging requests are closed.
    pub fn heal(&self) {
        self.set(None);
        self.cut();
    }

    /// Ends running watches and hanging requests.
    pub fn cut(&self) {
        self.shared.cut.send_replace(());
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

    /// Releases the held request; the proxy also holds the next one.
    pub fn let_one_go(&self) {
        self.shared.let_go.send_modify(|let_go| *let_go = let_go.saturating_add(1));
    }

    /// The number of requests to this path that the last fault affected.
    pub fn met(&self, path: &str) -> usize {
        self.shared.met.borrow().get(path).copied().unwrap_or_default()
    }

    /// Clears the fault and releases held requests.
    pub fn let_go(&self) {
        self.set(None);
    }

    fn set(&self, trouble: Option<Trouble>) {
        self.shared.held.send_replace(0);
        self.shared.let_go.send_replace(0);
        self.shared.met.send_replace(BTreeMap::new());
        self.shared.trouble.send_replace(trouble);
    }
}

fn redirect(kubeconfig: &Path, url: &str) -> anyhow::Result<()> {
    let mut config: Value = serde_json::from_str(&fs::read_to_string(kubeconfig)?)?;
    *config.pointer_mut("/clusters/0/cluster").context("the kubeconfig has no cluster")? =
        json!({ "server": url });
    Ok(fs::write(kubeconfig, config.to_string())?)
}

async fn pass(State(proxy): State<Proxy>, request: Request) -> Result<Response, Infallible> {
    let (trouble, path) = (proxy.shared.trouble(&request), request.uri().path().to_owned());
    if trouble.is_some() {
        proxy.shared.met.send_modify(|met| {
            let times = met.entry(path.clone()).or_default();
            *times = times.saturating_add(1);
        });
    }
    let mut cut = proxy.shared.cut.subscribe();
    let answer = async {
        match trouble {
            None => proxy.forward(request).await,
            Some(Trouble::Slow(by)) => {
                let answer = proxy.forward(request).await;
                tokio::time::sleep(by).await;
                answer
            }
            Some(Trouble::Throttled(after)) => throttled(after),
            Some(Trouble::Fails) => {
                status(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", "requested by the test")
            }
            Some(Trouble::TooOld) => status(StatusCode::GONE, "Expired", "too old resource version: 1 (2)"),
            Some(Trouble::Hangs) => std::future::pending().await,
            Some(held @ Trouble::Holds(..)) => {
                proxy.shared.hold(held).await;
                proxy.forward(request).await
            }
            Some(refuses @ Trouble::Refuses(..)) => match refuses.answer(&path) {
                Some(code) => status(code, "Ordered", "requested by the test"),
                None => std::future::pending().await,
            },
        }
    };
    Ok(tokio::select! {
        answer = answer => answer,
        _ = cut.changed() => (StatusCode::BAD_GATEWAY, "the proxy cut the connection").into_response(),
    })
}

impl Trouble {
    /// The status with which a request to this path is refused; `None`: the request gets no answer.
    fn answer(self, path: &str) -> Option<StatusCode> {
        let Self::Refuses(_, paths) = self else { return None };
        let (_, code) = paths.iter().find(|(refused, _)| *refused == path)?;
        StatusCode::from_u16(*code).ok()
    }
}

impl Shared {
    fn trouble(&self, request: &Request) -> Option<Trouble> {
        let trouble = (*self.trouble.borrow())?;
        let (path, query) = (request.uri().path(), request.uri().query().unwrap_or_default());
        let meets = match trouble {
            Trouble::TooOld => query.contains("watch=true") || query.contains("continue="),
            Trouble::Holds(method, held) => request.method().as_str() == method && path == held,
            Trouble::Refuses(method, paths) => {
                request.method().as_str() == method && paths.iter().any(|(refused, _)| path == *refused)
            }
            Trouble::Slow(_) | Trouble::Throttled(_) | Trouble::Fails | Trouble::Hangs => true,
        };
        (meets && !path.contains("/leases")).then_some(trouble)
    }

    /// Waits until the fault changes, or until this request is released.
    async fn hold(&self, trouble: Trouble) {
        let (mut ordered, mut let_go) = (self.trouble.subscribe(), self.let_go.subscribe());
        let mut number = 0;
        self.held.send_modify(|held| {
            *held = held.saturating_add(1);
            number = *held;
        });
        // `self` owns the senders, so the channels cannot be closed.
        tokio::select! {
            _ = ordered.wait_for(|now| *now != Some(trouble)) => (),
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
        Ok(Response::from_parts(parts, cuttable(Body::new(body), self.shared.cut.subscribe())))
    }
}

/// The same body, but it fails when connections are cut.
fn cuttable(body: Body, cut: watch::Receiver<()>) -> Body {
    let begin = Some((body.into_data_stream(), cut));
    Body::from_stream(stream::unfold(begin, async |going| {
        let (mut body, mut cut) = going?;
        tokio::select! {
            chunk = body.next() => Some((chunk?.map_err(io::Error::other), Some((body, cut)))),
            _ = cut.changed() => Some((Err(io::Error::other("the proxy cut the connection")), None)),
        }
    }))
}

fn throttled(after: Duration) -> Response {
    let text = "Too many requests, please try again later.\n";
    let mut answer = (StatusCode::TOO_MANY_REQUESTS, text).into_response();
    answer.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(after.as_secs()));
    answer
}

fn status(code: StatusCode, reason: &str, message: &str) -> Response {
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {},
        "status": "Failure", "code": code.as_u16(), "reason": reason, "message": message,
    });
    (code, axum::Json(body)).into_response()
}
