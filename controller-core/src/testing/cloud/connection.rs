//! Connections in memory that can be cut.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
};

use futures::{FutureExt as _, future::BoxFuture};
use http::Uri;
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf, duplex},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;
use tonic::{service::Routes, transport::Server};

const BUFFER: usize = 64 * 1024;

/// Makes connections to the fake adapter, with one server each.
#[derive(Clone, Debug)]
pub(super) struct Connector(Arc<Mutex<Connections>>);

#[derive(Debug)]
struct Connections {
    routes: Routes,
    /// The token that cuts all connections when it is cancelled. `None` while the adapter is away.
    power: Option<CancellationToken>,
    /// Whether the output of the servers is held back.
    hangs: Arc<AtomicBool>,
    servers: JoinSet<()>,
}

impl Connector {
    pub(super) fn new(routes: Routes) -> Self {
        let power = Some(CancellationToken::new());
        let hangs = Arc::default();
        Self(Arc::new(Mutex::new(Connections { routes, power, hangs, servers: JoinSet::new() })))
    }

    pub(super) fn away(&self, away: bool) {
        let mut connections = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(power) = connections.power.take() {
            power.cancel();
        }
        connections.servers.abort_all();
        connections.power = (!away).then(CancellationToken::new);
    }

    pub(super) fn hang(&self, hangs: bool) {
        let before =
            self.0.lock().unwrap_or_else(PoisonError::into_inner).hangs.swap(hangs, Ordering::Relaxed);
        if before && !hangs {
            self.away(false);
        }
    }

    fn connect(&self) -> io::Result<TokioIo<Cuttable>> {
        let mut connections = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(power) = connections.power.clone() else {
            return Err(io::Error::new(io::ErrorKind::ConnectionRefused, "connection refused"));
        };
        let (client, server) = duplex(BUFFER);
        let routes = connections.routes.clone();
        connections.servers.spawn(async move {
            let incoming = futures::stream::iter([Ok::<_, io::Error>(server)]);
            // The test has cut the connection.
            let _cut = Server::builder().add_routes(routes).serve_with_incoming(incoming).await.is_err();
        });
        let cut = power.cancelled_owned().boxed();
        let hangs = Arc::clone(&connections.hangs);
        Ok(TokioIo::new(Cuttable { stream: client, cut, hangs }))
    }
}

impl tower::Service<Uri> for Connector {
    type Response = TokioIo<Cuttable>;
    type Error = io::Error;
    type Future = std::future::Ready<io::Result<Self::Response>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _uri: Uri) -> Self::Future {
        std::future::ready(self.connect())
    }
}

/// The client's end of a connection. The connection breaks when the adapter goes away.
pub(super) struct Cuttable {
    stream: DuplexStream,
    cut: BoxFuture<'static, ()>,
    hangs: Arc<AtomicBool>,
}

impl Cuttable {
    fn check(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        match self.cut.poll_unpin(context) {
            Poll::Ready(()) => Err(io::Error::new(io::ErrorKind::ConnectionReset, "connection reset")),
            Poll::Pending => Ok(()),
        }
    }
}

impl AsyncRead for Cuttable {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check(context)?;
        if self.hangs.load(Ordering::Relaxed) {
            // While the output is held back, only the cut of the connection wakes the task.
            return Poll::Pending;
        }
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Cuttable {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
