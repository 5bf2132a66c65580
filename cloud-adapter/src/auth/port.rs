//! The gRPC port: accepts a bounded number of connections and performs their handshakes concurrently.

use std::{
    collections::VecDeque,
    convert::Infallible,
    fmt, fs, io,
    net::SocketAddr,
    os::unix::fs::{FileTypeExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    str::FromStr,
    sync::{Arc, Weak},
    time::Duration,
};

use http::{Request, Response};
use hyper::body::Incoming;
use rustls::ServerConfig;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream, UnixListener, UnixStream},
    sync::{OwnedSemaphorePermit, Semaphore, watch},
};
use tokio_rustls::TlsAcceptor;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic::body::Body;
use tower::Service;

use crate::auth::{
    connection::{self, CallAdmission, Peer, Times},
    metrics::{Ended, Metrics},
    spiffe,
};

/// Maximum number of connections; further connections wait in the kernel's queue.
const CONNECTIONS: usize = 512;
/// Maximum number of connections without an admitted call, including connections in their handshake. At this limit, each new connection
/// closes the oldest connection without an admitted call. So unknown peers cannot use up the connections, and callers need not wait for
/// handshake timeouts.
const UNADMITTED_MAX: usize = 128;
const HANDSHAKE: Duration = Duration::from_secs(5);
/// Pause after the process ran out of file descriptors or memory. Another connection must end before the port can accept again.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// Address of the gRPC port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// An IP address and a port.
    Tcp(SocketAddr),
    /// The path of a Unix socket, such as `unix:/run/cloud-adapter.sock`.
    Unix(PathBuf),
}

impl Address {
    /// Returns whether only processes on this host can connect.
    #[must_use]
    pub fn is_local(&self) -> bool {
        match self {
            Self::Tcp(address) => address.ip().is_loopback(),
            Self::Unix(_) => true,
        }
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        Self::Tcp(address)
    }
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.strip_prefix("unix:") {
            Some(path) if Path::new(path).is_absolute() => Ok(Self::Unix(path.into())),
            Some(path) => Err(format!(
                "invalid socket path {path:?}: use an absolute path, such as \
                 unix:/run/cloud-adapter.sock"
            )),
            None => text.parse().map(Self::Tcp).map_err(|error| {
                format!("{error}: use an IP address and a port, such as 0.0.0.0:8443, or unix:/path")
            }),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// An open gRPC port.
#[derive(Debug)]
pub struct Port(Listener);

#[derive(Debug)]
enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener, Socket),
}

/// The path of a socket file, which is removed on drop.
#[derive(Debug)]
struct Socket(PathBuf);

impl Drop for Socket {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.0) {
            tracing::debug!(path = %self.0.display(), %error, "Cannot remove the socket file");
        }
    }
}

/// Settings that all connections of a port share.
#[derive(Clone, Debug)]
pub struct Terms {
    /// The TLS configuration; `None`: plaintext.
    pub tls: Option<watch::Receiver<Arc<ServerConfig>>>,
    /// The required trust domain of client certificates; `None`: client certificates are not checked.
    pub trust_domain: Option<Arc<str>>,
    /// Time limits of a connection.
    pub times: Times,
    /// Metrics of callers and connections.
    pub metrics: Metrics,
}

impl Port {
    /// Opens the port.
    pub async fn bind(address: &Address) -> io::Result<Self> {
        match address {
            Address::Tcp(address) => Ok(Self(Listener::Tcp(TcpListener::bind(address).await?))),
            Address::Unix(path) => {
                remove_stale(path).await?;
                let listener = bind_private(path)?;
                Ok(Self(Listener::Unix(listener, Socket(path.clone()))))
            }
        }
    }

    /// Returns the address of the port, with the port number that the system chose.
    pub fn address(&self) -> io::Result<Address> {
        match &self.0 {
            Listener::Tcp(listener) => listener.local_addr().map(Address::Tcp),
            Listener::Unix(_, socket) => Ok(Address::Unix(socket.0.clone())),
        }
    }

    /// Serves connections until `stop` is cancelled, and then until all connections have ended.
    pub async fn serve<S>(self, terms: Terms, service: S, stop: CancellationToken)
    where
        S: Service<Request<Incoming>, Response = Response<Body>, Error = Infallible> + Clone + Send + 'static,
        S::Future: Send,
    {
        let tracker = TaskTracker::new();
        let permits = Arc::new(Semaphore::new(CONNECTIONS));
        let mut unadmitted = UnadmittedConnections::default();
        let accept = async {
            loop {
                if permits.available_permits() == 0 {
                    unadmitted.close_oldest();
                }
                let Ok(permit) = Arc::clone(&permits).acquire_owned().await else { return };
                let arrive = || {
                    let (terms, stop) = (terms.clone(), stop.clone());
                    NewConnection { terms, stop, permit, admission: unadmitted.enter() }
                };
                match self.accept().await {
                    Ok(Stream::Tcp(stream)) => tracker.spawn(arrive().serve(stream, service.clone())),
                    Ok(Stream::Unix(stream)) => tracker.spawn(arrive().serve(stream, service.clone())),
                    Err(error) => {
                        tracing::warn!(%error, "Cannot accept a connection");
                        tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
                        continue;
                    }
                };
            }
        };
        tokio::select! {
            () = accept => (),
            () = stop.cancelled() => (),
        }
        // The listener is closed first, so that new clients are refused at once instead of waiting in vain.
        drop(self);
        tracker.close();
        tracker.wait().await;
    }

    async fn accept(&self) -> io::Result<Stream> {
        match &self.0 {
            Listener::Tcp(listener) => {
                let (stream, _from) = listener.accept().await?;
                // Do not delay small packets, because responses are small, and callers wait for them.
                stream.set_nodelay(true)?;
                Ok(Stream::Tcp(stream))
            }
            Listener::Unix(listener, _) => Ok(Stream::Unix(listener.accept().await?.0)),
        }
    }
}

enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

struct NewConnection {
    terms: Terms,
    stop: CancellationToken,
    permit: OwnedSemaphorePermit,
    admission: Arc<CallAdmission>,
}

#[derive(Debug, Default)]
struct UnadmittedConnections(VecDeque<Weak<CallAdmission>>);

impl UnadmittedConnections {
    fn enter(&mut self) -> Arc<CallAdmission> {
        self.forget_others();
        if self.0.len() >= UNADMITTED_MAX {
            self.close_oldest();
        }
        let admission = Arc::new(CallAdmission::default());
        self.0.push_back(Arc::downgrade(&admission));
        admission
    }

    fn close_oldest(&mut self) {
        self.forget_others();
        if let Some(oldest) = self.0.pop_front().and_then(|oldest| oldest.upgrade()) {
            oldest.close();
        }
    }

    /// Removes connections that have ended, and connections with an admitted call.
    fn forget_others(&mut self) {
        self.0.retain(|one| one.upgrade().is_some_and(|one| !one.is_known()));
    }
}

impl NewConnection {
    /// Serves the connection until it ends, or until a newer connection replaces it because no call was admitted.
    async fn serve<S>(self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, service: S)
    where
        S: Service<Request<Incoming>, Response = Response<Body>, Error = Infallible> + Clone + Send + 'static,
        S::Future: Send,
    {
        let (admission, metrics) = (Arc::clone(&self.admission), self.terms.metrics.clone());
        tokio::select! {
            () = self.served(stream, service) => (),
            () = admission.closing() => metrics.ended(Ended::Silent),
        }
    }

    /// Performs the handshake, serves the connection, and counts its end.
    async fn served<S>(self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, service: S)
    where
        S: Service<Request<Incoming>, Response = Response<Body>, Error = Infallible> + Clone + Send + 'static,
        S::Future: Send,
    {
        let Self { terms, stop, permit, admission } = self;
        let Terms { tls, trust_domain, times, metrics } = terms;
        let _counted = Counted::one_more(&metrics);
        let ended = match tls.map(|tls| Arc::clone(&tls.borrow())) {
            None => connection::serve(stream, Peer::of(None, admission), service, times, stop).await,
            Some(config) => match tokio::time::timeout(HANDSHAKE, TlsAcceptor::from(config).accept(stream))
                .await
            {
                Ok(Ok(stream)) => {
                    let certificate = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
                    let domain = trust_domain.as_deref();
                    let account = certificate.zip(domain).map(|(der, domain)| spiffe::account(der, domain));
                    connection::serve(stream, Peer::of(account, admission), service, times, stop).await
                }
                Ok(Err(error)) => {
                    tracing::debug!(%error, "TLS handshake failed");
                    Some(Ended::Handshake)
                }
                Err(_elapsed) => Some(Ended::SlowHandshake),
            },
        };
        if let Some(why) = ended {
            metrics.ended(why);
        }
        drop(permit);
    }
}

/// A connection that the gauge counts until this value is dropped.
struct Counted(Metrics);

impl Counted {
    fn one_more(metrics: &Metrics) -> Self {
        metrics.connections.inc();
        Self(metrics.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.connections.dec();
    }
}

/// Opens a socket that other users cannot reach at any time. The process creates the socket in a private directory, sets the mode there,
/// and moves the socket to its final name. An existing file of that name is not replaced.
fn bind_private(path: &Path) -> io::Result<UnixListener> {
    let beside = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let ours = fs::Permissions::from_mode(0o700);
    let folder = tempfile::Builder::new().prefix(".").permissions(ours).tempdir_in(beside)?;
    let unnamed = folder.path().join("s");
    let listener = UnixListener::bind(&unnamed)?;
    // A process may connect to a socket if it may write to the socket file.
    fs::set_permissions(&unnamed, fs::Permissions::from_mode(0o660))?;
    let in_use = |error: &io::Error| error.kind() == io::ErrorKind::AlreadyExists;
    fs::hard_link(&unnamed, path)
        .map_err(|error| if in_use(&error) { io::ErrorKind::AddrInUse.into() } else { error })?;
    Ok(listener)
}

/// Removes the socket file of a process that ended without removing it. Keeps a socket that is in use, so that binding fails.
async fn remove_stale(path: &Path) -> io::Result<()> {
    let stale = fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket())
        && UnixStream::connect(path)
            .await
            .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused);
    if stale { fs::remove_file(path) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::{
        net::Ipv6Addr,
        sync::atomic::{AtomicBool, Ordering},
    };

    use super::*;

    fn mode(path: &Path) -> Option<u32> {
        fs::metadata(path).ok().map(|found| found.permissions().mode() & 0o777)
    }

    #[tokio::test]
    async fn a_socket_has_its_mode_from_the_first_moment() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("adapter.sock");
        let over = AtomicBool::new(false);
        let seen = std::thread::scope(|scope| {
            let watcher = scope.spawn(|| {
                let mut seen = std::collections::BTreeSet::new();
                while !over.load(Ordering::Relaxed) {
                    seen.extend(mode(&path));
                }
                seen
            });
            for _ in 0..2_000 {
                drop((bind_private(&path).expect("bound"), Socket(path.clone())));
            }
            over.store(true, Ordering::Relaxed);
            watcher.join().expect("no panic")
        });
        assert_eq!(Vec::from_iter(seen), [0o660]);
        assert_eq!(fs::read_dir(dir.path()).expect("a folder").count(), 0, "no file is left");
    }

    /// An IPv6-only cluster needs this.
    #[tokio::test]
    async fn port_listens_on_ipv6() {
        for text in ["[::]:0", "[::1]:0"] {
            let port = Port::bind(&text.parse().expect("an address")).await.expect("a free port");
            let Address::Tcp(address) = port.address().expect("open") else { panic!("{text}") };
            assert!(address.is_ipv6(), "{address}");
            TcpStream::connect((Ipv6Addr::LOCALHOST, address.port())).await.expect("the listener answers");
        }
    }

    #[tokio::test]
    async fn a_socket_in_use_is_not_removed() {
        let dir = tempfile::tempdir().expect("a folder");
        let address = Address::Unix(dir.path().join("adapter.sock"));
        let Address::Unix(path) = &address else { panic!("{address}") };
        let first = Port::bind(&address).await.expect("bound");
        assert_eq!((mode(path), first.address().expect("open")), (Some(0o660), address.clone()));
        let error = Port::bind(&address).await.expect_err("taken");
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse, "{error}");
        UnixStream::connect(path).await.expect("the first listener answers");
        drop(first);
        assert_eq!(mode(path), None, "the socket file is removed with the listener");
    }
}
