//! Serves the fake over HTTP on loopback, for processes and clients that take a kubeconfig.
//!
//! Do not use ports in tests on paused time, because a runtime that waits for a socket would jump to the next timer.

use std::io::{self, Write as _};

use axum::{
    Router,
    body::Body,
    extract::Request,
    http::StatusCode,
    response::{IntoResponse as _, Response},
};
use futures::StreamExt as _;
use http_body_util::{BodyStream, StreamBody};
use serde_json::json;
use tempfile::NamedTempFile;
use tokio::{net::TcpListener, sync::watch, task::JoinSet};

use super::FakeKube;

/// A port of the fake API server with its kubeconfig. Dropping this value closes the port.
#[derive(Debug)]
pub struct KubePort {
    /// The kubeconfig for this port. Its default namespace is `kube-system`.
    pub kubeconfig: NamedTempFile,
    cut: watch::Sender<bool>,
    _serving: JoinSet<io::Result<()>>,
}

impl KubePort {
    /// Blocks or unblocks all requests and watches of this port, as a broken network does.
    pub fn cut(&self, cut: bool) {
        self.cut.send_replace(cut);
    }
}

impl FakeKube {
    /// Opens a port.
    ///
    /// Returns an error if no port is free, or the kubeconfig cannot be written.
    pub async fn listen(&self) -> io::Result<KubePort> {
        self.listen_with(Router::new()).await
    }

    /// Opens a port that also has these routes, for what the API server answers without objects: discovery documents and reviews.
    ///
    /// Returns an error if no port is free, or the kubeconfig cannot be written.
    pub async fn listen_with(&self, routes: Router) -> io::Result<KubePort> {
        // The kube client requires a crypto provider; a process installs one at its start.
        let _installed = rustls::crypto::aws_lc_rs::default_provider().install_default().is_ok();
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let mut kubeconfig = NamedTempFile::new()?;
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{ "name": "c", "cluster": { "server": format!("http://{}", listener.local_addr()?) } }],
            "users": [{ "name": "u", "user": { "token": "own" } }],
            "contexts": [{ "name": "x", "context": { "cluster": "c", "user": "u", "namespace": "kube-system" } }],
            "current-context": "x",
        });
        write!(kubeconfig, "{config}")?;
        let (kube, (cut, is_cut)) = (self.clone(), watch::channel(false));
        let router = routes.fallback(move |request| answer(kube.clone(), is_cut.clone(), request));
        let mut serving = JoinSet::new();
        serving.spawn(async move { axum::serve(listener, router).await });
        Ok(KubePort { kubeconfig, cut, _serving: serving })
    }
}

async fn answer(kube: FakeKube, is_cut: watch::Receiver<bool>, request: Request) -> Response {
    connected(is_cut.clone()).await;
    match kube.serve(request).await {
        Ok(answer) => answer.map(|body| {
            let frames = BodyStream::new(body).then(move |frame| {
                let is_cut = is_cut.clone();
                async move {
                    connected(is_cut).await;
                    frame
                }
            });
            Body::new(StreamBody::new(frames))
        }),
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, error.to_string()).into_response(),
    }
}

async fn connected(mut is_cut: watch::Receiver<bool>) {
    // An error means that the port is being closed.
    let _open = is_cut.wait_for(|is_cut| !is_cut).await.is_ok();
}
