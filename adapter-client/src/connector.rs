//! A connection to one replica: TCP or a Unix socket, optional TLS, HTTP/2, and the caller's token in each request.

use std::{
    io,
    path::PathBuf,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures::{FutureExt as _, future::BoxFuture};
use http::{Uri, header::AUTHORIZATION};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, UnixStream},
};
use tonic::{
    body::Body,
    transport::{self, Channel, Endpoint},
};
use tower::{Service, ServiceExt as _};

use crate::{
    channel_security::{Secured, Tls, Token},
    target::HostPort,
};

/// Timeout for connecting. An address that does not accept a connection in this time counts as dead.
pub(crate) const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// The interval of keepalive pings and their timeout. Their sum is the time to detect a silently dropped connection. It is less than the 10
/// to 12 s until another replica leads. The adapter runtime does not limit pings; other gRPC servers must allow pings at this interval.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_LIMIT: Duration = Duration::from_secs(3);
pub(crate) const HEARD_WITHIN: Duration = KEEPALIVE_INTERVAL.saturating_add(KEEPALIVE_LIMIT);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Address {
    Tcp(HostPort),
    Unix(PathBuf),
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tcp(host) => host.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// A lazy connection to one replica, which reconnects automatically. Clones share the connection.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    channel: Channel,
    token: Option<Arc<Token>>,
}

impl Line {
    /// Creates the connection. Must be called in a tokio runtime.
    pub(crate) fn new(address: Address, secured: &Secured) -> Result<Self, http::Error> {
        let origin = origin(&address, secured.tls.as_deref())?;
        // tonic must not add TLS of its own, because the TLS of this connector reloads its files.
        let uri = Uri::builder().scheme("http").authority("adapter").path_and_query("/").build()?;
        let connector = Connector { address, tls: secured.tls.clone() };
        let channel = settings(uri).origin(origin).connect_with_connector_lazy(connector);
        Ok(Self { channel, token: secured.token.clone() })
    }

    pub(crate) fn over(channel: Channel) -> Self {
        Self { channel, token: None }
    }

    pub(crate) async fn send(
        mut self,
        mut request: http::Request<Body>,
    ) -> Result<http::Response<Body>, transport::Error> {
        if let Some(token) = &self.token {
            request.headers_mut().insert(AUTHORIZATION, token.header().await);
        }
        self.channel.ready().await?.call(request).await
    }
}

/// Lets tonic's generated clients use the connection.
impl Service<http::Request<Body>> for Line {
    type Response = http::Response<Body>;
    type Error = transport::Error;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        self.clone().send(request).boxed()
    }
}

/// Sets the timeouts of a connection: 5 s for connecting, 8 s to detect a peer that is gone.
pub fn settings(uri: Uri) -> Endpoint {
    Channel::builder(uri)
        .connect_timeout(CONNECT_LIMIT)
        .http2_keep_alive_interval(KEEPALIVE_INTERVAL)
        .keep_alive_timeout(KEEPALIVE_LIMIT)
        .keep_alive_while_idle(true)
}

/// Returns the scheme and the host of requests. With TLS, the host is the name in the server's certificate. Without TLS, the host is the
/// server's address, or `localhost` for a Unix socket.
fn origin(address: &Address, tls: Option<&Tls>) -> Result<Uri, http::Error> {
    let (scheme, authority) = match (address, tls) {
        (Address::Tcp(HostPort { port, .. }), Some(tls)) => {
            let host = tls.server_name().to_str().into_owned();
            ("https", HostPort { host, port: *port }.to_string())
        }
        (Address::Tcp(host), None) => ("http", host.to_string()),
        (Address::Unix(_), _) => ("http", "localhost".to_owned()),
    };
    Uri::builder().scheme(scheme).authority(authority).path_and_query("/").build()
}

#[derive(Clone, Debug)]
struct Connector {
    address: Address,
    tls: Option<Arc<Tls>>,
}

/// A byte stream to a replica, over any transport.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

impl Connector {
    async fn connect(self) -> io::Result<TokioIo<Box<dyn Stream>>> {
        let stream: Box<dyn Stream> = match (&self.address, &self.tls) {
            (Address::Tcp(to), None) => Box::new(dial(to).await?),
            (Address::Tcp(to), Some(tls)) => Box::new(tls.connect(dial(to).await?).await?),
            (Address::Unix(path), _) => Box::new(UnixStream::connect(path).await?),
        };
        Ok(TokioIo::new(stream))
    }
}

async fn dial(to: &HostPort) -> io::Result<TcpStream> {
    let stream = TcpStream::connect((to.host.as_str(), to.port)).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

impl Service<Uri> for Connector {
    type Response = TokioIo<Box<dyn Stream>>;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<Self::Response>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _uri: Uri) -> Self::Future {
        self.clone().connect().boxed()
    }
}
