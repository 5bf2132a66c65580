//! Ports on loopback that stay ours: a server that is stopped finds its port free when it starts again.
//!
//! A port that the kernel hands out (`bind` to port 0) would be given to the next client connection as soon as its server
//! is down. So ports come from below the range that clients get theirs from, in blocks, and a locked file tells every other
//! process of this user that a block is taken.

use std::env;
use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;

use anyhow::{Context, bail};

/// Below 30000, where the node ports of Kubernetes begin, and below 32768, where those of Linux's clients do.
const FIRST: u16 = 20_000;
const BLOCKS: u16 = 500;
/// One control plane, four servers with one or two ports each, and room.
const BLOCK: u16 = 20;

/// A block of ports. It is free for others again when this is dropped.
#[derive(Debug)]
pub struct Ports {
    left: Range<u16>,
    _claim: File,
}

impl Ports {
    /// Takes the first block that no other process has.
    ///
    /// # Errors
    /// When all are taken, or the lock files cannot be made.
    pub fn claim() -> anyhow::Result<Self> {
        let user = rustix::process::getuid().as_raw();
        let dir = env::temp_dir().join(format!("cloud-controllers-e2e-ports-{user}"));
        fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
        for block in 0..BLOCKS {
            let path = dir.join(format!("{block}.lock"));
            let claim = File::create(&path).with_context(|| format!("cannot create {}", path.display()))?;
            if claim.try_lock().is_ok() {
                let start = FIRST + block * BLOCK;
                return Ok(Self { left: start..start + BLOCK, _claim: claim });
            }
        }
        bail!(
            "all {BLOCKS} blocks of ports are taken; see which processes hold the files in {}",
            dir.display()
        );
    }

    /// The next port of the block that no server listens on.
    ///
    /// # Errors
    /// When the block is used up.
    pub fn take(&mut self) -> anyhow::Result<u16> {
        let is_free = |port: &u16| TcpListener::bind((Ipv4Addr::UNSPECIFIED, *port)).is_ok();
        self.left
            .find(is_free)
            .with_context(|| format!("a control plane has {BLOCK} ports, and all are used"))
    }
}

#[cfg(test)]
mod tests {
    use super::{Ipv4Addr, Ports, TcpListener};

    #[test]
    fn two_claims_share_no_port() {
        let (mut one, mut two) = (Ports::claim().unwrap(), Ports::claim().unwrap());
        let ports = [one.take(), one.take(), two.take(), two.take()].map(Result::unwrap);
        let mut distinct = ports.to_vec();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), ports.len(), "{ports:?}");
    }

    #[test]
    fn a_port_that_somebody_listens_on_is_passed_over() {
        let mut ports = Ports::claim().unwrap();
        let next = ports.left.start;
        let _server = TcpListener::bind((Ipv4Addr::LOCALHOST, next)).unwrap();
        assert_ne!(ports.take().unwrap(), next);
    }
}
