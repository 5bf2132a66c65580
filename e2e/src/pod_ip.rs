//! The address of all pods: the host's own address, as for pods on the host network.
//!
//! The address is not loopback, because Kubernetes rejects loopback addresses in EndpointSlices.

use std::net::{IpAddr, Ipv4Addr, UdpSocket};

use anyhow::{Context, ensure};

/// An address reserved for documentation. No packet is sent to it.
const ELSEWHERE: (Ipv4Addr, u16) = (Ipv4Addr::new(198, 51, 100, 1), 9);

/// The address that this host would use as the source of connections.
pub(crate) fn pod_ip() -> anyhow::Result<IpAddr> {
    let repair = "pods need an address of this host besides loopback; as root, `ip address add \
                  203.0.113.1/32 dev lo` and `ip route add default dev lo src 203.0.113.1` add one";
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).context(repair)?;
    socket.connect(ELSEWHERE).context(repair)?;
    let ip = socket.local_addr().context(repair)?.ip();
    ensure!(!ip.is_loopback() && !ip.is_unspecified(), "{repair}");
    Ok(ip)
}
