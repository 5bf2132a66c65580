//! The address of every pod: this machine's own, as for pods on the host network.
//!
//! Not loopback, which Kubernetes accepts in no EndpointSlice.

use std::net::{IpAddr, Ipv4Addr, UdpSocket};

use anyhow::{Context, ensure};

/// Set aside for documentation: nobody is there, and nothing is sent.
const ELSEWHERE: (Ipv4Addr, u16) = (Ipv4Addr::new(198, 51, 100, 1), 9);

/// The address that this machine would call others from.
///
/// # Errors
/// When it has none but loopback.
pub(crate) fn pod_ip() -> anyhow::Result<IpAddr> {
    let repair = "pods need an address of this machine besides loopback; as root, `ip address add 203.0.113.1/32 dev lo` and \
                  `ip route add default dev lo src 203.0.113.1` give it one";
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).context(repair)?;
    socket.connect(ELSEWHERE).context(repair)?;
    let ip = socket.local_addr().context(repair)?.ip();
    ensure!(!ip.is_loopback() && !ip.is_unspecified(), "{repair}");
    Ok(ip)
}
