//! Serves metrics, probes and status pages, over plain HTTP or TLS. Any client that reaches the port may read metrics and probes. Therefore
//! the cost of unknown clients is limited to few connections, each for one request and a short time. If all connections are in use, the
//! oldest is closed for a new connection. This is safe, because a probe takes milliseconds and no useful connection lasts long.
//!
//! [`report`](crate::report) defines the contents of the status pages, and [`Readers`] defines which clients may read them.

mod listener;
mod readers;
#[cfg(test)]
mod tests;
mod tls;

use std::{collections::VecDeque, io, sync::Arc, time::Duration};

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::{rt::TokioIo, service::TowerToHyperService};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    task::{AbortHandle, JoinSet},
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

pub use self::{
    listener::Listener,
    readers::{Endpoints, Readers},
    tls::{Certificate, Tls, TlsError, Version},
};

/// Maximum number of connections: far more than a kubelet and a few scrapers need.
const CONNECTIONS: usize = 64;
/// Time limit of a connection. It equals the usual `scrape_timeout` of Prometheus; probes take less time.
const TIME: Duration = Duration::from_secs(10);
/// Time limit for requests in flight when the process stops.
const GRACE: Duration = Duration::from_secs(1);
/// Maximum size of a request including headers, in bytes. This is the minimum that hyper accepts.
const REQUEST: usize = 8 * 1024;
/// Pause before the next connection is accepted if file descriptors or memory have run out. Another connection has to end first.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// Serves the pages over plain HTTP until `stop` is cancelled. Then finishes requests in flight, for at most a second.
pub async fn serve(listener: Listener, endpoints: Endpoints, stop: CancellationToken) -> io::Result<()> {
    serve_over(listener, None, endpoints, stop).await
}

/// Like [`serve`], but over TLS.
pub async fn serve_tls(
    listener: Listener,
    tls: Arc<Tls>,
    endpoints: Endpoints,
    stop: CancellationToken,
) -> io::Result<()> {
    serve_over(listener, Some(tls), endpoints, stop).await
}

async fn serve_over(
    listener: Listener,
    tls: Option<Arc<Tls>>,
    endpoints: Endpoints,
    stop: CancellationToken,
) -> io::Result<()> {
    let listener = listener.open()?;
    let mut open = Open::default();
    let accept = async {
        loop {
            match listener.accept().await {
                Ok((stream, from)) => {
                    open.admit(Box::pin(connection(stream, tls.clone(), endpoints.of(from.ip())))).await;
                }
                Err(error) => {
                    tracing::warn!(%error, "Cannot accept a connection on the port of metrics and probes");
                    sleep(ACCEPT_RETRY_DELAY).await;
                }
            }
        }
    };
    stop.run_until_cancelled(accept).await;
    // The listener closes here, so that new clients are refused at once instead of waiting for an answer that never comes.
    drop(listener);
    let _cut = timeout(GRACE, open.end()).await.is_err();
    Ok(())
}

/// The open connections. Dropping this value closes all of them.
#[derive(Debug, Default)]
struct Open {
    all: JoinSet<()>,
    /// The tasks of the connections, oldest first. Some of the connections may have ended.
    by_age: VecDeque<AbortHandle>,
}

impl Open {
    /// Serves a connection. Closes the oldest connection if the maximum is reached.
    async fn admit(&mut self, connection: impl Future<Output = ()> + Send + 'static) {
        while self.all.try_join_next().is_some() {}
        self.by_age.retain(|one| !one.is_finished());
        while self.all.len() >= CONNECTIONS {
            if let Some(oldest) = self.by_age.pop_front() {
                oldest.abort();
            }
            self.all.join_next().await;
        }
        self.by_age.push_back(self.all.spawn(connection));
    }

    async fn end(&mut self) {
        while self.all.join_next().await.is_some() {}
    }
}

/// Answers one request, after the TLS handshake if TLS is used. The time limit covers both.
async fn connection(stream: TcpStream, tls: Option<Arc<Tls>>, pages: Router) {
    let served = async {
        match tls {
            None => answer(stream, pages).await,
            Some(tls) => match tls.accept(stream).await {
                Ok(stream) => answer(stream, pages).await,
                Err(error) => {
                    tracing::debug!(%error, "TLS handshake on the port of metrics and probes failed");
                }
            },
        }
    };
    if timeout(TIME, served).await.is_err() {
        tracing::debug!("A connection to the metrics and probes port timed out");
    }
}

async fn answer(stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static, pages: Router) {
    let served = http1::Builder::new()
        .keep_alive(false)
        .max_buf_size(REQUEST)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(pages));
    if let Err(error) = served.await {
        tracing::debug!(%error, "A connection to the metrics and probes port failed");
    }
}
