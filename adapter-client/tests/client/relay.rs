//! A relay between a client and a replica. The relay can stop forwarding.

use std::net::SocketAddr;

use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
};

/// Forwards bytes until it is silenced. Then it accepts all data and forwards nothing, like a network whose other end is gone.
pub(crate) struct Relay {
    pub(crate) address: SocketAddr,
    silent: watch::Sender<bool>,
    _accepting: JoinSet<()>,
}

impl Relay {
    pub(crate) async fn start(to: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (silent, silenced) = watch::channel(false);
        let mut accepting = JoinSet::new();
        accepting.spawn(async move {
            let mut passing = JoinSet::new();
            loop {
                let (client, _from) = listener.accept().await.unwrap();
                passing.spawn(pass(client, to, silenced.clone()));
            }
        });
        Self { address, silent, _accepting: accepting }
    }

    /// Stops forwarding on all connections, without closing them.
    pub(crate) fn fall_silent(&self) {
        self.silent.send_replace(true);
    }
}

async fn pass(mut client: TcpStream, to: SocketAddr, mut silent: watch::Receiver<bool>) {
    let Ok(mut server) = TcpStream::connect(to).await else { return };
    tokio::select! {
        // One side has closed or reset the connection, so the relay closes or resets the other side.
        _closed = copy_bidirectional(&mut client, &mut server) => (),
        () = async { drop(silent.wait_for(|silent| *silent).await) } => std::future::pending().await,
    }
}
