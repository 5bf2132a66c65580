//! The gRPC port: takes connections, as many as it may, and shakes hands without letting one hold up the others.

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

use crate::{
    connection::{self, Newcomer, Peer, Times},
    metrics::{Ended, Metrics},
    spiffe,
};

/// Connections at once; more wait in the kernel's queue.
const CONNECTIONS: usize = 512;
/// Of these, connections over which no call was admitted yet, those in their handshake included. The oldest of them is closed before a
/// new one is taken: so strangers take no places of callers, and callers do not wait until the strangers' handshakes time out.
const NEWCOMERS: usize = 128;
/// The time for a handshake.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// Out of file descriptors or memory: somebody else has to end first.
const BREATH: Duration = Duration::from_millis(100);

/// Where the port listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// An IP address and a port.
    Tcp(SocketAddr),
    /// The path of a socket: `unix:/run/cloud-adapter.sock`.
    Unix(PathBuf),
}

impl Address {
    /// Whether only this machine can connect.
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
            Some(path) => Err(format!("{path:?} is no absolute path: use unix:/run/cloud-adapter.sock")),
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

/// An open port.
#[derive(Debug)]
pub struct Port(Listener);

#[derive(Debug)]
enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener, Socket),
}

/// Removes the socket's file in the end.
#[derive(Debug)]
struct Socket(PathBuf);

impl Drop for Socket {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.0) {
            tracing::debug!(path = %self.0.display(), %error, "The socket cannot be removed");
        }
    }
}

/// What all connections of a port have in common.
#[derive(Clone, Debug)]
pub struct Terms {
    /// The certificates; `None`: plaintext.
    pub tls: Option<watch::Receiver<Arc<ServerConfig>>>,
    /// The trust domain that client certificates must be of; `None`: none are looked at.
    pub trust_domain: Option<Arc<str>>,
    /// How long things may take.
    pub times: Times,
    /// What is counted.
    pub metrics: Metrics,
}

impl Port {
    /// Opens it.
    ///
    /// # Errors
    /// Those of the operating system.
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

    /// Where it is open, with the port that the system chose.
    ///
    /// # Errors
    /// Those of the operating system.
    pub fn address(&self) -> io::Result<Address> {
        match &self.0 {
            Listener::Tcp(listener) => listener.local_addr().map(Address::Tcp),
            Listener::Unix(_, socket) => Ok(Address::Unix(socket.0.clone())),
        }
    }

    /// Serves until told to stop, and then until all connections have ended.
    pub async fn serve<S>(self, terms: Terms, service: S, stop: CancellationToken)
    where
        S: Service<Request<Incoming>, Response = Response<Body>, Error = Infallible> + Clone + Send + 'static,
        S::Future: Send,
    {
        let tracker = TaskTracker::new();
        let places = Arc::new(Semaphore::new(CONNECTIONS));
        let mut lobby = Lobby::default();
        let accept = async {
            loop {
                if places.available_permits() == 0 {
                    lobby.close_oldest();
                }
                let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
                let arrive = || {
                    let (terms, stop) = (terms.clone(), stop.clone());
                    Arrival { terms, stop, place, newcomer: lobby.enter() }
                };
                match self.accept().await {
                    Ok(Stream::Tcp(stream)) => tracker.spawn(arrive().welcome(stream, service.clone())),
                    Ok(Stream::Unix(stream)) => tracker.spawn(arrive().welcome(stream, service.clone())),
                    Err(error) => {
                        tracing::warn!(%error, "A connection cannot be taken");
                        tokio::time::sleep(BREATH).await;
                        continue;
                    }
                };
            }
        };
        tokio::select! {
            () = accept => (),
            () = stop.cancelled() => (),
        }
        // New callers are refused at once and do not wait in vain.
        drop(self);
        tracker.close();
        tracker.wait().await;
    }

    async fn accept(&self) -> io::Result<Stream> {
        match &self.0 {
            Listener::Tcp(listener) => {
                let (stream, _from) = listener.accept().await?;
                // Answers are small and waited for.
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

/// A connection that has just come.
struct Arrival {
    terms: Terms,
    stop: CancellationToken,
    place: OwnedSemaphorePermit,
    newcomer: Arc<Newcomer>,
}

/// Connections over which no call was admitted yet, the oldest first.
#[derive(Debug, Default)]
struct Lobby(VecDeque<Weak<Newcomer>>);

impl Lobby {
    fn enter(&mut self) -> Arc<Newcomer> {
        self.forget_others();
        if self.0.len() >= NEWCOMERS {
            self.close_oldest();
        }
        let newcomer = Arc::new(Newcomer::default());
        self.0.push_back(Arc::downgrade(&newcomer));
        newcomer
    }

    /// Closes the oldest connection that is here, if there is one.
    fn close_oldest(&mut self) {
        self.forget_others();
        if let Some(oldest) = self.0.pop_front().and_then(|oldest| oldest.upgrade()) {
            oldest.make_room();
        }
    }

    /// Those that have ended, and those over which a call was admitted, are here no longer.
    fn forget_others(&mut self) {
        self.0.retain(|one| one.upgrade().is_some_and(|one| !one.is_known()));
    }
}

impl Arrival {
    /// Serves until it ends, or until a newer one takes the place of one that has proved nothing.
    async fn welcome<S>(self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, service: S)
    where
        S: Service<Request<Incoming>, Response = Response<Body>, Error = Infallible> + Clone + Send + 'static,
        S::Future: Send,
    {
        let (newcomer, metrics) = (Arc::clone(&self.newcomer), self.terms.metrics.clone());
        tokio::select! {
            () = self.served(stream, service) => (),
            () = newcomer.must_go() => metrics.ended(Ended::Silent),
        }
    }

    /// Shakes hands, serves, and counts the end.
    async fn served<S>(self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, service: S)
    where
        S: Service<Request<Incoming>, Response = Response<Body>, Error = Infallible> + Clone + Send + 'static,
        S::Future: Send,
    {
        let Self { terms, stop, place, newcomer } = self;
        let Terms { tls, trust_domain, times, metrics } = terms;
        let _counted = Counted::one_more(&metrics);
        let ended = match tls.map(|tls| Arc::clone(&tls.borrow())) {
            None => connection::serve(stream, Peer::of(None, newcomer), service, (times, stop)).await,
            Some(config) => match tokio::time::timeout(HANDSHAKE, TlsAcceptor::from(config).accept(stream))
                .await
            {
                Ok(Ok(stream)) => {
                    let certificate = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
                    let domain = trust_domain.as_deref();
                    let account = certificate.zip(domain).map(|(der, domain)| spiffe::account(der, domain));
                    connection::serve(stream, Peer::of(account, newcomer), service, (times, stop)).await
                }
                Ok(Err(error)) => {
                    tracing::debug!(%error, "A TLS handshake failed");
                    Some(Ended::Handshake)
                }
                Err(_elapsed) => Some(Ended::SlowHandshake),
            },
        };
        if let Some(why) = ended {
            metrics.ended(why);
        }
        drop(place);
    }
}

/// A connection in the gauge.
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

/// Opens a socket that nobody but user and group can reach, from the first moment on: it gets its mode in a folder that is ours alone,
/// and only then its name. What has that name already stays.
fn bind_private(path: &Path) -> io::Result<UnixListener> {
    let beside = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let ours = fs::Permissions::from_mode(0o700);
    let folder = tempfile::Builder::new().prefix(".").permissions(ours).tempdir_in(beside)?;
    let unnamed = folder.path().join("s");
    let listener = UnixListener::bind(&unnamed)?;
    // Whoever may write to it may call.
    fs::set_permissions(&unnamed, fs::Permissions::from_mode(0o660))?;
    let in_use = |error: &io::Error| error.kind() == io::ErrorKind::AlreadyExists;
    fs::hard_link(&unnamed, path)
        .map_err(|error| if in_use(&error) { io::ErrorKind::AddrInUse.into() } else { error })?;
    Ok(listener)
}

/// Removes the socket of a process that ended without doing it. One that somebody listens on stays: then binding fails.
async fn remove_stale(path: &Path) -> io::Result<()> {
    let stale = fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket())
        && UnixStream::connect(path)
            .await
            .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused);
    if stale { fs::remove_file(path) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

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
        assert_eq!(fs::read_dir(dir.path()).expect("a folder").count(), 0, "nothing is left");
    }

    #[tokio::test]
    async fn a_socket_that_somebody_listens_on_stays() {
        let dir = tempfile::tempdir().expect("a folder");
        let address = Address::Unix(dir.path().join("adapter.sock"));
        let Address::Unix(path) = &address else { panic!("{address}") };
        let first = Port::bind(&address).await.expect("bound");
        assert_eq!((mode(path), first.address().expect("open")), (Some(0o660), address.clone()));
        let error = Port::bind(&address).await.expect_err("taken");
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse, "{error}");
        UnixStream::connect(path).await.expect("the first one answers");
        drop(first);
        assert_eq!(mode(path), None, "its name goes with it");
    }
}
