//! A relay between the suite and an adapter. It counts connections, because generated clients do not report them.

use std::{io, net::SocketAddr};

use adapter_client::Target;
use tokio::{
    io::{AsyncRead, AsyncWrite, copy_bidirectional},
    net::{TcpListener, TcpStream, UnixStream},
    sync::watch,
    task::JoinSet,
};

/// A running relay. Dropping this value ends the relay and its connections.
#[derive(Debug)]
pub(crate) struct Relay {
    address: SocketAddr,
    opened: watch::Receiver<usize>,
    _serving: JoinSet<()>,
}

impl Relay {
    /// Listens on the loopback address, and connects to the first replica if there are several. Returns the errors of the operating system.
    pub(crate) async fn start(to: Target) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let (count, opened) = watch::channel(0);
        let mut serving = JoinSet::new();
        serving.spawn(serve(listener, to, count));
        Ok(Self { address, opened, _serving: serving })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn opened(&self) -> usize {
        *self.opened.borrow()
    }
}

async fn serve(listener: TcpListener, to: Target, count: watch::Sender<usize>) {
    let mut pairs = JoinSet::new();
    // If the port accepts no more connections, calls fail and the check reports it.
    while let Ok((stream, _from)) = listener.accept().await {
        count.send_modify(|count| *count = count.saturating_add(1));
        let to = to.clone();
        pairs.spawn(async move { pass(stream, &to).await.unwrap_or_default() });
        while pairs.try_join_next().is_some() {}
    }
}

/// Copies bytes both ways until one side closes the connection.
async fn pass(stream: TcpStream, to: &Target) -> io::Result<()> {
    match to {
        Target::Single { host, .. } | Target::Dns(host) => {
            both(stream, TcpStream::connect((host.host.as_str(), host.port)).await?).await
        }
        Target::Static(hosts) => match hosts.first() {
            Some(host) => both(stream, TcpStream::connect((host.host.as_str(), host.port)).await?).await,
            None => Ok(()),
        },
        Target::Unix(path) => both(stream, UnixStream::connect(path).await?).await,
        // Cargo unifies features, so `Target` has a variant for targets in a cluster if the controllers are in the same build.
        #[expect(
            clippy::allow_attributes,
            reason = "which variants exist depends on the crates in the build"
        )]
        #[allow(unreachable_patterns, reason = "no further variant exists if this crate is built alone")]
        _ => Err(io::Error::new(
            io::ErrorKind::Unsupported,
            format!("{to}: the relay cannot connect to this address"),
        )),
    }
}

async fn both(mut one: TcpStream, mut other: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<()> {
    copy_bidirectional(&mut one, &mut other).await.map(drop)
}
