//! The port of metrics, probes and status pages, over plain HTTP or TLS. All callers that reach it read metrics and probes, so what strangers
//! can take is bounded: few connections, each with one request and little time. When all places are taken, the oldest makes room: a
//! probe is answered within milliseconds, and whoever holds a place for longer wants nothing that is served here.
//!
//! [`report`] has what the status pages say, [`Readers`] who reads them.

mod listener;
mod readers;
pub mod report;
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
    readers::{Pages, Readers},
    tls::{Certificate, Tls, TlsError, Version},
};

/// Connections at once: far more than a kubelet and a few scrapers need.
const CONNECTIONS: usize = 64;
/// For a whole connection. Source: the usual `scrape_timeout` of Prometheus; probes wait less.
const TIME: Duration = Duration::from_secs(10);
/// For pages that are under way when the process stops.
const GRACE: Duration = Duration::from_secs(1);
/// Bytes of a request, headers included; hyper accepts no less.
const REQUEST: usize = 8 * 1024;
/// Out of file descriptors or memory: somebody else has to end first.
const BREATH: Duration = Duration::from_millis(100);

/// Serves the pages over plain HTTP until told to stop, and then those that are under way for at most a second.
///
/// # Errors
/// The runtime does not take the port.
pub async fn serve(listener: Listener, pages: Pages, stop: CancellationToken) -> io::Result<()> {
    serve_over(listener, None, pages, stop).await
}

/// The same over TLS.
///
/// # Errors
/// The runtime does not take the port.
pub async fn serve_tls(
    listener: Listener,
    tls: Arc<Tls>,
    pages: Pages,
    stop: CancellationToken,
) -> io::Result<()> {
    serve_over(listener, Some(tls), pages, stop).await
}

async fn serve_over(
    listener: Listener,
    tls: Option<Arc<Tls>>,
    pages: Pages,
    stop: CancellationToken,
) -> io::Result<()> {
    let listener = listener.open()?;
    let mut open = Open::default();
    let accept = async {
        loop {
            match listener.accept().await {
                Ok((stream, from)) => {
                    open.admit(Box::pin(connection(stream, tls.clone(), pages.of(from.ip())))).await;
                }
                Err(error) => {
                    tracing::warn!(%error, "A connection cannot be taken");
                    sleep(BREATH).await;
                }
            }
        }
    };
    stop.run_until_cancelled(accept).await;
    // New callers are refused at once and do not wait in vain.
    drop(listener);
    let _cut = timeout(GRACE, open.end()).await.is_err();
    Ok(())
}

/// The connections; all end when this is dropped.
#[derive(Debug, Default)]
struct Open {
    all: JoinSet<()>,
    /// The oldest first. May name some that have ended.
    by_age: VecDeque<AbortHandle>,
}

impl Open {
    /// Serves one more, in the place of the oldest if there is no other.
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

    /// Until all have ended.
    async fn end(&mut self) {
        while self.all.join_next().await.is_some() {}
    }
}

/// Answers one request, after a handshake if there is one: both in the same time.
async fn connection(stream: TcpStream, tls: Option<Arc<Tls>>, pages: Router) {
    let served = async {
        match tls {
            None => answer(stream, pages).await,
            Some(tls) => match tls.accept(stream).await {
                Ok(stream) => answer(stream, pages).await,
                Err(error) => tracing::debug!(%error, "A handshake of the pages' port failed"),
            },
        }
    };
    if timeout(TIME, served).await.is_err() {
        tracing::debug!("A connection of the pages' port took too long");
    }
}

async fn answer(stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static, pages: Router) {
    let served = http1::Builder::new()
        .keep_alive(false)
        .max_buf_size(REQUEST)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(pages));
    if let Err(error) = served.await {
        tracing::debug!(%error, "A connection of the pages' port broke");
    }
}
