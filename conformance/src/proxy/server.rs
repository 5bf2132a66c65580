//! Listens for plain HTTP, for TLS with the proxy's own certificate, and for CONNECT tunnels, whose TLS it terminates.

use std::{convert::Infallible, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::task::TaskTracker;
use tracing::debug;

use super::{
    Shared, forward,
    response::{Body, Cut},
};

const PAUSE: Duration = Duration::from_millis(50);

/// Runs until the future is dropped, which also ends its connections.
pub(super) async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_ended) = connections.join_next() => continue,
        };
        let Ok((stream, _peer)) = accepted else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let shared = Arc::clone(&shared);
        connections.spawn(async move {
            if shared.params.tls {
                let host = shared.params.listen.ip().to_string();
                end_tls(stream, shared, host, None).await;
            } else {
                connection(stream, shared, None).await;
            }
        });
    }
}

/// Terminates TLS with a certificate for `name`, and serves the requests inside. `host`: the destination of a tunnel.
async fn end_tls(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    shared: Arc<Shared>,
    name: String,
    host: Option<String>,
) {
    let Some(config) = shared.authority.as_ref().and_then(|authority| authority.server(&name)) else {
        debug!(name, "Cannot issue a certificate");
        return;
    };
    match TlsAcceptor::from(config).accept(stream).await {
        Ok(stream) => Box::pin(connection(stream, shared, host)).await,
        Err(error) => debug!(%error, name, "TLS handshake failed: does the adapter trust the proxy's CA?"),
    }
}

async fn connection(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    shared: Arc<Shared>,
    host: Option<String>,
) {
    let tunnels = TaskTracker::new();
    let answer = |request: Request<Incoming>| {
        let (shared, host, tunnels) = (Arc::clone(&shared), host.clone(), tunnels.clone());
        async move {
            if request.method() == Method::CONNECT {
                Ok(tunnel(request, shared, &tunnels))
            } else {
                forward::call(shared, host, request).await
            }
        }
    };
    let served = http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(answer));
    if let Err(error) = served.with_upgrades().await {
        debug!(%error, "A connection ended with an error");
    }
    tunnels.close();
    tunnels.wait().await;
}

fn tunnel(request: Request<Incoming>, shared: Arc<Shared>, tunnels: &TaskTracker) -> Response<Body> {
    let never = |never: Infallible| -> Cut { match never {} };
    let mut response = Response::new(Empty::<Bytes>::new().map_err(never).boxed_unsync());
    let Some(authority) = request.uri().authority().cloned().filter(|_| shared.authority.is_some()) else {
        *response.status_mut() = StatusCode::NOT_IMPLEMENTED;
        return response;
    };
    tunnels.spawn(async move {
        if let Ok(stream) = hyper::upgrade::on(request).await {
            let (name, host) = (authority.host().to_owned(), Some(authority.to_string()));
            end_tls(TokioIo::new(stream), shared, name, host).await;
        }
    });
    response
}
