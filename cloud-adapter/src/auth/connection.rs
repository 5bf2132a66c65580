//! One gRPC connection: its limits and its termination.

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

use crate::auth::{ServiceAccount, metrics::Ended};

/// Maximum number of concurrent calls, and maximum size of request headers in bytes. Source: docs/security.md, "What is checked, in this
/// order".
const STREAMS: u32 = 100;
const HEADERS: u32 = 64 * 1024;
/// Number of bytes that are buffered before the service reads them, per call and per connection.
const STREAM_WINDOW: u32 = 64 * 1024;
const WINDOW: u32 = 256 * 1024;
/// Number of bytes of a response that are buffered per call, if the caller reads slowly.
const SEND_BUFFER: usize = 64 * 1024;
/// Maximum number of calls that the peer cancelled before the server accepted them, and that are not cleaned up yet. Above this number, the
/// connection is closed.
const RESETS: usize = 20;
/// Maximum number of calls that the server reset because of protocol errors. Above this number, the connection is closed.
const ERRORS: usize = 100;
/// Interval and timeout of pings, which detect peers that disappeared without closing the connection.
const KEEPALIVE: Duration = Duration::from_secs(30);
const KEEPALIVE_ANSWER: Duration = Duration::from_secs(20);

/// Time limits of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// The time within which the first call must be admitted.
    pub silence: Duration,
    /// The age at which the peer is asked to reconnect, so that it must prove its identity again. A random time of up to a tenth is added,
    /// so that connections opened together are not closed together.
    pub age: Duration,
    /// The time after `age` within which calls in flight must finish. Watches that are still open are then cut; clients resume them on a
    /// new connection.
    pub grace: Duration,
}

impl Default for Times {
    fn default() -> Self {
        Self { silence: Duration::from_secs(15), age: Duration::from_mins(30), grace: Duration::from_mins(2) }
    }
}

/// The peer of a connection, stored in the extensions of each request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Peer {
    /// The ServiceAccount in the client certificate, or the reason why the certificate does not name a ServiceAccount. `None`: there is no
    /// certificate.
    pub(crate) account: Option<Result<ServiceAccount, String>>,
    admission: Arc<CallAdmission>,
}

/// Whether a call has been admitted on a connection, and the signal that closes a connection without an admitted call.
#[derive(Debug, Default)]
pub(crate) struct CallAdmission {
    admitted: AtomicBool,
    out: CancellationToken,
}

impl CallAdmission {
    /// Returns whether a call was admitted on the connection.
    pub(crate) fn is_known(&self) -> bool {
        self.admitted.load(Ordering::Relaxed)
    }

    /// Closes the connection if no call was admitted on it.
    pub(crate) fn close(&self) {
        self.out.cancel();
    }

    /// Completes when the connection must be closed; never completes once a call was admitted.
    pub(crate) async fn closing(&self) {
        self.out.cancelled().await;
        if self.is_known() {
            std::future::pending::<()>().await;
        }
    }
}

impl Peer {
    pub(crate) fn of(account: Option<Result<ServiceAccount, String>>, admission: Arc<CallAdmission>) -> Self {
        Self { account, admission }
    }

    /// Records that a call was admitted on the connection.
    pub(crate) fn known(&self) {
        self.admission.admitted.store(true, Ordering::Relaxed);
    }

    fn is_known(&self) -> bool {
        self.admission.is_known()
    }
}

/// Returns the reason if the server closed the connection.
pub(crate) async fn serve<S>(
    io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    peer: Peer,
    service: S,
    times: Times,
    stop: CancellationToken,
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

/// Returns a random duration up to `most`.
fn chance(most: Duration) -> Duration {
    // Each `RandomState` has new keys, so its hashes are random enough here.
    let share = RandomState::new().hash_one(()) % 1000;
    most.mul_f64(f64::from(u32::try_from(share).unwrap_or_default()) / 1000.0)
}
