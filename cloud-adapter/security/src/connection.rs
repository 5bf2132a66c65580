//! One gRPC connection: its limits, and its end.

use std::{
    hash::{BuildHasher as _, RandomState},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use http::{Request, Response};
use hyper::{body::Incoming, server::conn::http2};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;
use tonic::body::Body;
use tower::{Service, ServiceExt as _};

use crate::{ServiceAccount, metrics::Ended};

/// What one connection may cost. Source: security, "Network".
const STREAMS: u32 = 100;
const HEADERS: u32 = 64 * 1024;
/// Received ahead of being read: by one call, and by all of a connection.
const STREAM_WINDOW: u32 = 64 * 1024;
const WINDOW: u32 = 256 * 1024;
/// Kept of an answer for a caller that reads slowly, by call.
const SEND_BUFFER: usize = 64 * 1024;
/// Calls that are cancelled as soon as they are sent, not yet cleaned up; the connection ends at more.
const RESETS: usize = 20;
/// Calls that we cancelled for breaking the protocol; the connection ends at more.
const ERRORS: usize = 100;
/// A peer that is gone without a word is noticed.
const KEEPALIVE: Duration = Duration::from_secs(30);
const KEEPALIVE_ANSWER: Duration = Duration::from_secs(20);

/// How long things may take on a connection.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// Until the first call that is admitted.
    pub silence: Duration,
    /// Until the peer is asked to connect anew, so that what was proved once does not count for ever. Lengthened by up to a
    /// tenth, by chance: connections that began together do not end together.
    pub age: Duration,
    /// For calls under way to end after that. Watches that are still open then are cut; they resume elsewhere.
    pub grace: Duration,
}

impl Default for Times {
    fn default() -> Self {
        Self { silence: Duration::from_secs(15), age: Duration::from_mins(30), grace: Duration::from_mins(2) }
    }
}

/// Who is at the other end, as far as the connection tells. Stands in each request's extensions.
#[derive(Clone, Debug, Default)]
pub(crate) struct Peer {
    /// Whom the client certificate names, or why it names nobody. `None`: there is none.
    pub(crate) account: Option<Result<ServiceAccount, String>>,
    newcomer: Arc<Newcomer>,
}

/// A connection as long as no call over it was admitted.
#[derive(Debug, Default)]
pub(crate) struct Newcomer {
    admitted: AtomicBool,
    out: CancellationToken,
}

impl Newcomer {
    /// Whether a call was admitted: then it is none any more.
    pub(crate) fn is_known(&self) -> bool {
        self.admitted.load(Ordering::Relaxed)
    }

    /// Ends it.
    pub(crate) fn make_room(&self) {
        self.out.cancel();
    }

    /// Returns when it has to end: never, once a call was admitted.
    pub(crate) async fn must_go(&self) {
        self.out.cancelled().await;
        if self.is_known() {
            std::future::pending::<()>().await;
        }
    }
}

impl Peer {
    pub(crate) fn of(account: Option<Result<ServiceAccount, String>>, newcomer: Arc<Newcomer>) -> Self {
        Self { account, newcomer }
    }

    /// A call was admitted.
    pub(crate) fn known(&self) {
        self.newcomer.admitted.store(true, Ordering::Relaxed);
    }

    fn is_known(&self) -> bool {
        self.newcomer.is_known()
    }
}

/// Serves one connection until it ends. Tells why, if it was us who ended it.
pub(crate) async fn serve<S>(
    io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    peer: Peer,
    service: S,
    (times, stop): (Times, CancellationToken),
) -> Option<Ended>
where
    S: Service<Request<Incoming>, Response = Response<Body>, Error = std::convert::Infallible>
        + Clone
        + Send
        + 'static,
    S::Future: Send,
{
    let known = peer.clone();
    let service = service.map_request(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(peer.clone());
        request
    });
    let connection = builder().serve_connection(TokioIo::new(io), TowerToHyperService::new(service));
    let mut connection = std::pin::pin!(connection);
    let silence = async {
        tokio::time::sleep(times.silence).await;
        if known.is_known() {
            std::future::pending::<()>().await;
        }
    };
    let aged = tokio::select! {
        result = &mut connection => return result.is_err().then_some(Ended::Broken),
        () = silence => return Some(Ended::Silent),
        () = tokio::time::sleep(times.age + chance(times.age / 10)) => true,
        () = stop.cancelled() => false,
    };
    connection.as_mut().graceful_shutdown();
    let cut = tokio::time::timeout(times.grace, connection).await.is_err();
    (aged || cut).then_some(Ended::Aged)
}

fn builder() -> http2::Builder<TokioExecutor> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(HEADERS)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(WINDOW)
        .max_send_buf_size(SEND_BUFFER)
        .max_pending_accept_reset_streams(RESETS)
        .max_local_error_reset_streams(ERRORS)
        .keep_alive_interval(KEEPALIVE)
        .keep_alive_timeout(KEEPALIVE_ANSWER);
    builder
}

/// Some of this much time.
fn chance(most: Duration) -> Duration {
    // Keyed anew for each: as random as needed here.
    let share = RandomState::new().hash_one(()) % 1000;
    most.mul_f64(f64::from(u32::try_from(share).unwrap_or_default()) / 1000.0)
}
