//! Ports on loopback for servers that tests stop and start again: a port stays reserved for this process until it ends.
//!
//! If the kernel chooses a port (`bind` to port 0), the port is from the range of ephemeral ports. While the server is down, a connection
//! of any process may get this port. The server then cannot bind the port again, even with `SO_REUSEADDR`: `Address already in use`.
//! Therefore the ports of this module are below that range, in blocks. A locked file reserves each block for one of this user's processes.

use std::env;
use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::ops::Range;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// The first port. All ports are below 30000, where the node ports of Kubernetes begin, and below 32768, where Linux's ephemeral ports
/// begin.
const FIRST: u16 = 20_000;
const BLOCKS: u16 = 500;
/// The number of ports in a block. They suffice for a control plane with its servers, so most processes need only one block.
const BLOCK: u16 = 20;

/// The blocks of this process. They are released when the process ends.
static OURS: Mutex<Vec<Block>> = Mutex::new(Vec::new());

#[derive(Debug)]
struct Block {
    left: Range<u16>,
    _reservation: File,
}

/// The next port on which no server listens. Each port is returned once.
pub fn take() -> io::Result<u16> {
    let mut ours = OURS.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        if let Some(port) = ours.last_mut().and_then(|block| block.left.find(is_free)) {
            return Ok(port);
        }
        let user = rustix::process::getuid().as_raw();
        ours.push(Block::reserve(&env::temp_dir().join(format!("cloud-controllers-test-ports-{user}")))?);
    }
}

/// Reserves a port as [`take`] does, and returns it with the IPv4 loopback address.
pub fn loopback() -> io::Result<SocketAddr> {
    Ok((Ipv4Addr::LOCALHOST, take()?).into())
}

fn is_free(port: &u16) -> bool {
    TcpListener::bind((Ipv4Addr::UNSPECIFIED, *port)).is_ok()
}

impl Block {
    /// The first block that no other process has reserved and that this process has not used up.
    fn reserve(dir: &Path) -> io::Result<Self> {
        fs::create_dir_all(dir)?;
        for block in 0..BLOCKS {
            let reservation = File::create(dir.join(format!("{block}.lock")))?;
            if reservation.try_lock().is_ok() {
                let start = FIRST + block * BLOCK;
                return Ok(Self { left: start..start + BLOCK, _reservation: reservation });
            }
        }
        let text = format!(
            "all {BLOCKS} blocks of ports are reserved; find the processes that have files of {} open",
            dir.display()
        );
        Err(io::Error::other(text))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{BLOCK, Ipv4Addr, TcpListener, take};

    #[test]
    fn no_port_is_returned_twice_in_several_blocks() {
        let ports: BTreeSet<u16> = (0..BLOCK + 2).map(|_| take().expect("a port")).collect();
        assert_eq!(ports.len(), usize::from(BLOCK) + 2, "{ports:?}");
    }

    #[test]
    fn port_in_use_is_skipped() {
        let before = take().expect("a port");
        let next =
            (before + 1..).find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok()).expect("one");
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, next)).expect("it is free");
        assert_ne!(take().expect("a port"), next);
        drop(server);
    }
}
