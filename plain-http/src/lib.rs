//! The plain HTTP port of metrics and probes. Anybody who reaches it may read, so what strangers can take is bounded: few
//! connections, each with one request and little time. When all places are taken, the oldest makes room: a probe is answered
//! within milliseconds, and whoever holds a place for longer wants nothing that is served here.

#[cfg(test)]
mod tests;

use std::{collections::VecDeque, time::Duration};

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::{rt::TokioIo, service::TowerToHyperService};
use tokio::{
    net::{TcpListener, TcpStream},
    task::{AbortHandle, JoinSet},
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

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

/// Serves the pages until told to stop, and then those that are under way for at most a second.
pub async fn serve(listener: TcpListener, pages: Router, stop: CancellationToken) {
    let mut open = Open::default();
    let accept = async {
        loop {
            match listener.accept().await {
                Ok((stream, _from)) => open.admit(stream, pages.clone()).await,
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
    async fn admit(&mut self, stream: TcpStream, pages: Router) {
        while self.all.try_join_next().is_some() {}
        self.by_age.retain(|one| !one.is_finished());
        while self.all.len() >= CONNECTIONS {
            if let Some(oldest) = self.by_age.pop_front() {
                oldest.abort();
            }
            self.all.join_next().await;
        }
        self.by_age.push_back(self.all.spawn(connection(stream, pages)));
    }

    /// Until all have ended.
    async fn end(&mut self) {
        while self.all.join_next().await.is_some() {}
    }
}

/// Answers one request.
async fn connection(stream: TcpStream, pages: Router) {
    let served = http1::Builder::new()
        .keep_alive(false)
        .max_buf_size(REQUEST)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(pages));
    match timeout(TIME, served).await {
        Ok(Ok(())) => (),
        Ok(Err(error)) => tracing::debug!(%error, "A connection of the plain HTTP port broke"),
        Err(_elapsed) => tracing::debug!("A connection of the plain HTTP port took too long"),
    }
}
