//! Routers, their routes, and ports in the requests and answers of Neutron.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

/// The separator of the two parts of a route's ID. Neither part contains this character.
const VIA: char = '=';

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct Router {
    pub(crate) routes: Vec<ExtraRoute>,
    #[serde(default)]
    pub(crate) revision_number: u64,
}

/// A route of a router, in Neutron's own spelling. Only the destination and the next hop identify the route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ExtraRoute {
    pub(crate) destination: String,
    pub(crate) nexthop: String,
}

impl ExtraRoute {
    /// Returns the ID of the route in the adapter's RPC messages.
    pub(crate) fn id(&self) -> String {
        format!("{}{VIA}{}", self.destination, self.nexthop)
    }

    /// Parses an ID. Returns `None` if this adapter did not create the ID.
    pub(crate) fn of(id: &str) -> Option<Self> {
        let (destination, nexthop) = id.split_once(VIA)?;
        Some(Self { destination: destination.to_owned(), nexthop: nexthop.to_owned() })
    }

    /// Returns whether both are the same route, even if the two spellings differ.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.destination() == other.destination() && self.hop() == other.hop()
    }

    pub(crate) fn destination(&self) -> Option<IpNet> {
        Some(self.destination.parse::<IpNet>().ok()?.trunc())
    }

    pub(crate) fn hop(&self) -> Option<IpAddr> {
        self.nexthop.parse().ok()
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Port {
    pub(crate) id: String,
    pub(crate) device_id: String,
    pub(crate) device_owner: String,
    pub(crate) fixed_ips: Vec<FixedIp>,
    pub(crate) allowed_address_pairs: Vec<AddressPair>,
    /// Whether the port drops packets that a server sends from foreign addresses. `None` means that Neutron does not support port security.
    pub(crate) port_security_enabled: Option<bool>,
    pub(crate) revision_number: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct FixedIp {
    pub(crate) subnet_id: String,
    pub(crate) ip_address: String,
}

/// Additional addresses from which a server may send.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AddressPair {
    /// An address, or a network as a CIDR.
    pub(crate) ip_address: String,
    /// The MAC address of the port, which Neutron fills in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) mac_address: Option<String>,
}

impl AddressPair {
    pub(crate) fn of(network: IpNet) -> Self {
        Self { ip_address: network.to_string(), mac_address: None }
    }

    pub(crate) fn network(&self) -> Option<IpNet> {
        let network: Option<IpNet> = self.ip_address.parse().ok();
        network.or_else(|| Some(self.ip_address.parse::<IpAddr>().ok()?.into()))
    }
}

impl Port {
    /// Returns whether the port would drop packets from a network if the port had these pairs. A pair with a wider network also allows the
    /// packets.
    pub(crate) fn drops(&self, network: IpNet, pairs: &[AddressPair]) -> bool {
        let allows = |pair: &AddressPair| pair.network().is_some_and(|wide| wide.contains(&network));
        self.port_security_enabled == Some(true) && !pairs.iter().any(allows)
    }
}
