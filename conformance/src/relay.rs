//! A relay between the suite and an adapter, which counts connections: how many there were is no business of generated clients.

use std::{io, net::SocketAddr};

use adapter_client::Target;
use tokio::{
    io::{AsyncRead, AsyncWrite, copy_bidirectional},
    net::{TcpListener, TcpStream, UnixStream},
    sync::watch,
    task::JoinSet,
};

/// A running relay. Dropping it ends it, with all connections.
#[derive(Debug)]
pub(crate) struct Relay {
    address: SocketAddr,
    opened: watch::Receiver<usize>,
    _serving: JoinSet<()>,
}

impl Relay {
    /// Listens on this machine. Of several replicas it leads to the first.
    ///
    /// # Errors
    /// Those of the operating system.
    pub(crate) async fn start(to: Target) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let (count, opened) = watch::channel(0);
        let mut serving = JoinSet::new();
        serving.spawn(serve(listener, to, count));
        Ok(Self { address, opened, _serving: serving })
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many connections were opened so far.
    pub(crate) fn opened(&self) -> usize {
        *self.opened.borrow()
    }
}

async fn serve(listener: TcpListener, to: Target, count: watch::Sender<usize>) {
    let mut pairs = JoinSet::new();
    // A port that takes no more connections shows as calls that fail.
    while let Ok((stream, _from)) = listener.accept().await {
        count.send_modify(|count| *count = count.saturating_add(1));
        let to = to.clone();
        pairs.spawn(async move { pass(stream, &to).await.unwrap_or_default() });
        while pairs.try_join_next().is_some() {}
    }
}

/// Takes bytes both ways, until one side hangs up.
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
        // Built together with programs of a cluster, there are targets of one, too.
        #[expect(clippy::allow_attributes, reason = "whether it can be reached depends on who else is built")]
        #[allow(unreachable_patterns, reason = "built alone, there is none")]
        _ => Err(io::Error::new(io::ErrorKind::Unsupported, format!("{to} is no address"))),
    }
}

async fn both(mut one: TcpStream, mut other: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<()> {
    copy_bidirectional(&mut one, &mut other).await.map(drop)
}
