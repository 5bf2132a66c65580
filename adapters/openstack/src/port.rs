//! The ports of load balancers.

use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Transport {
    /// TCP and the protocols on top of it, such as HTTP.
    Tcp,
    Udp,
    Sctp,
}

impl Transport {
    /// Returns the transport protocol for the Octavia protocol of a listener or a pool. `None`: the protocol is unknown.
    pub(crate) fn of(protocol: &str) -> Option<Self> {
        match protocol {
            "TCP" | "HTTP" | "HTTPS" | "TERMINATED_HTTPS" | "PROMETHEUS" | "PROXY" | "PROXYV2" => {
                Some(Self::Tcp)
            }
            "UDP" => Some(Self::Udp),
            "SCTP" => Some(Self::Sctp),
            _ => None,
        }
    }

    /// Parses the text of [`Port::word`].
    pub(crate) fn named(word: &str) -> Option<Self> {
        let all = [Self::Tcp, Self::Udp, Self::Sctp];
        all.into_iter().find(|one| Port { transport: *one, number: 0 }.word() == word)
    }
}

/// The port of a listener. A load balancer has at most one listener for each transport and port number, so the port identifies the
/// listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Port {
    pub(crate) transport: Transport,
    pub(crate) number: u16,
}

impl Port {
    pub(crate) fn word(self) -> &'static str {
        match self.transport {
            Transport::Tcp => "tcp",
            Transport::Udp => "udp",
            Transport::Sctp => "sctp",
        }
    }

    /// Returns the name that the listener, pool and monitor of this port have in the cloud.
    pub(crate) fn name(self) -> String {
        format!("{}-{}", self.word(), self.number)
    }
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.word(), self.number)
    }
}
