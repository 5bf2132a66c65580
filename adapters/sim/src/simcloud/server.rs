//! The accept loop. It uses hyper directly, because fault rules may close a connection without a response.

use std::io;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt as _;
use tracing::{debug, warn};

use super::http::{CloseConnection, router};
use super::{SharedCloud, admin};

const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves the cloud until `shutdown` is cancelled. Calls in flight are still answered.
///
/// Cost: one task per connection. Failed accepts are logged and retried.
pub async fn serve(listener: TcpListener, cloud: SharedCloud, shutdown: CancellationToken) -> io::Result<()> {
    let address = listener.local_addr()?;
    let router = router(cloud, admin::router());
    let connections = TaskTracker::new();
    debug!(%address, "Serving");
    while let Some(accepted) = shutdown.run_until_cancelled(listener.accept()).await {
        match accepted {
            Ok((stream, _)) => {
                connections.spawn(connection(stream, router.clone(), shutdown.clone()));
            }
            Err(error) => {
                warn!(%error, "Cannot accept a connection, trying again");
                // The process probably has no free file descriptor, so the loop waits until other connections end.
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    connections.close();
    connections.wait().await;
    Ok(())
}

async fn connection(stream: TcpStream, router: axum::Router, shutdown: CancellationToken) {
    let service = service_fn(move |request| answer(router.clone(), request));
    let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = shutdown.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        debug!(%error, "A connection ended with an error");
    }
}

/// If this returns an error, hyper closes the connection without a response, as some fault rules require.
async fn answer(router: axum::Router, request: Request<Incoming>) -> Result<Response, Closed> {
    let Ok(response) = router.oneshot(request.map(Body::new)).await;
    if response.extensions().get::<CloseConnection>().is_some() { Err(Closed) } else { Ok(response) }
}

#[derive(Debug, thiserror::Error)]
#[error("a fault rule closed the connection")]
struct Closed;
