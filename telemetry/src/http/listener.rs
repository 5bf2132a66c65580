//! The sockets that serve metrics, probes and status pages.

use std::{
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener as Bound},
};

use tokio::net::{TcpListener, TcpStream};

/// A bound port, which any runtime can serve.
#[derive(Debug)]
pub struct Listener {
    at: Bound,
    /// The same port on the loopback address, for status pages. `None` if `at` covers the loopback address.
    near: Option<Bound>,
}

pub(crate) type Accepted = (TcpStream, SocketAddr);

impl Listener {
    /// Binds the port.
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        let at = bound(address)?;
        let near = beside(at.local_addr()?).and_then(|near| {
            let bound = bound(near);
            bound
                .inspect_err(
                    |error| tracing::warn!(%near, %error, "Cannot serve status pages on the loopback address"),
                )
                .ok()
        });
        Ok(Self { at, near })
    }

    /// The address of the port.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.at.local_addr()
    }

    /// Returns another handle to the same port. Only one of the handles should be served at a time.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { at: self.at.try_clone()?, near: self.near.as_ref().map(Bound::try_clone).transpose()? })
    }

    pub(crate) fn open(self) -> io::Result<Accepting> {
        let near = self.near.map(TcpListener::from_std).transpose()?;
        Ok(Accepting { at: TcpListener::from_std(self.at)?, near })
    }
}

#[derive(Debug)]
pub(crate) struct Accepting {
    at: TcpListener,
    near: Option<TcpListener>,
}

impl Accepting {
    pub(crate) async fn accept(&self) -> io::Result<Accepted> {
        match &self.near {
            None => self.at.accept().await,
            Some(near) => tokio::select! {
                accepted = self.at.accept() => accepted,
                accepted = near.accept() => accepted,
            },
        }
    }
}

fn bound(address: SocketAddr) -> io::Result<Bound> {
    let bound = Bound::bind(address)?;
    bound.set_nonblocking(true)?;
    Ok(bound)
}

/// Returns the loopback address with the port of `address`, unless `address` already includes the loopback address.
fn beside(address: SocketAddr) -> Option<SocketAddr> {
    let (ip, port) = (address.ip().to_canonical(), address.port());
    if ip.is_unspecified() || ip.is_loopback() {
        return None;
    }
    let near = if ip.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() };
    Some(SocketAddr::new(near, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_served_wherever_the_port_is() {
        let beside = |address: &str| beside(address.parse().expect("good")).map(|near| near.to_string());
        for (address, near) in [
            ("0.0.0.0:1", None),
            ("[::]:1", None),
            ("127.0.0.1:1", None),
            ("[::1]:1", None),
            ("192.0.2.1:1", Some("127.0.0.1:1")),
            ("[2001:db8::1]:1", Some("[::1]:1")),
        ] {
            assert_eq!(beside(address).as_deref(), near, "{address}");
        }
    }
}
