//! The ports of the pages. They are bound and served before the cluster ID is known, so that probes get an answer in the meantime.

use std::{future::Future, sync::Arc};

use anyhow::Context as _;
use telemetry::http::{self, Endpoints, Listener, Readers, Tls};
use tokio_util::sync::CancellationToken;

use crate::{
    config::{CommonConfig, HttpsEndpoints},
    explain::{self, Explain},
    health::{self, Health},
    metrics::Registry,
};

#[derive(Debug)]
pub(super) struct Pages {
    pub(super) listener: Listener,
    pub(super) secure: Option<(Listener, Arc<Tls>)>,
    pub(super) readers: Readers,
}

impl Pages {
    pub(super) fn bind(config: &CommonConfig) -> anyhow::Result<Self> {
        let address = config.http_address;
        let listener = Listener::bind(address).with_context(|| format!("--http-address {address}"))?;
        let secure = match &config.https {
            None => None,
            Some(HttpsEndpoints { address, tls }) => {
                let listener = Listener::bind(*address);
                Some((listener.with_context(|| format!("--secure-port: {address}"))?, Arc::clone(tls)))
            }
        };
        Ok(Self { listener, secure, readers: config.readers })
    }

    /// Serves the pages of a process that has not started yet, until `work` has ended. The ports stay bound, so that no later request is
    /// refused.
    pub(super) async fn serve_during<T>(
        &self,
        health: Health,
        work: impl Future<Output = T>,
    ) -> anyhow::Result<T> {
        let stop = CancellationToken::new();
        let (open, status) =
            (health::routes(health, Registry::default()), explain::routes(Explain::default()));
        let all = Endpoints::new(open, status, self.readers);
        let plain = http::serve(self.listener.try_clone()?, all.clone(), stop.clone());
        let secure = async {
            match &self.secure {
                None => Ok(()),
                Some((listener, tls)) => {
                    http::serve_tls(listener.try_clone()?, Arc::clone(tls), all, stop.clone()).await
                }
            }
        };
        let work = async {
            let done = work.await;
            stop.cancel();
            done
        };
        let (done, plain, secure) = tokio::join!(work, plain, secure);
        plain.and(secure).context("cannot serve the pages")?;
        Ok(done)
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpStream,
    };

    use super::*;
    use crate::start::cluster_id::Progress;

    async fn get(address: SocketAddr, path: &str) -> String {
        let mut stream = TcpStream::connect(address).await.expect("the port is bound");
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("the request is sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("an answer");
        answer
    }

    #[tokio::test]
    async fn probes_are_answered_while_the_cluster_id_is_unknown() {
        let listener = Listener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).expect("a free port");
        let address = listener.local_addr().expect("bound");
        let pages = Pages { listener, secure: None, readers: Readers::default() };
        let progress = Progress::default();
        progress.failed("namespaces is forbidden");
        let (alive, ready) = pages
            .serve_during(progress.health(), async {
                (get(address, "/livez").await, get(address, "/readyz").await)
            })
            .await
            .expect("no fault");
        assert!(alive.starts_with("HTTP/1.1 200"), "{alive}");
        assert!(ready.starts_with("HTTP/1.1 5"), "{ready}");
        assert!(ready.contains("clusterID: waits for the cluster ID: namespaces is forbidden"), "{ready}");
        assert_eq!(pages.listener.local_addr().expect("still bound"), address);
    }
}
