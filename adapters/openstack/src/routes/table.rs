//! Routers and ports in Neutron's answers. Finds out which server has which address. Pure functions.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use cloud_api_proto::v1alpha1::{NextHop, Route, RouteState};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::Can;
use crate::{instances::Shared, provider_id};

/// Prefix of the field `device_owner` of a server's port; the zone follows. Source: Nova.
const MACHINE: &str = "compute:";
/// Separator of the two parts of a route's ID; neither part contains it.
const VIA: char = '=';

/// A router.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct Router {
    pub(crate) routes: Vec<ExtraRoute>,
    #[serde(default)]
    pub(crate) revision_number: u64,
}

/// A route of a router, in Neutron's own spelling. Its destination and next hop are its only identity.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ExtraRoute {
    pub(crate) destination: String,
    pub(crate) nexthop: String,
}

impl ExtraRoute {
    /// Returns the ID of the route in the contract.
    pub(super) fn id(&self) -> String {
        format!("{}{VIA}{}", self.destination, self.nexthop)
    }

    /// Parses an ID. Returns `None` if this adapter did not create the ID.
    pub(super) fn of(id: &str) -> Option<Self> {
        let (destination, nexthop) = id.split_once(VIA)?;
        Some(Self { destination: destination.to_owned(), nexthop: nexthop.to_owned() })
    }

    /// Whether both are the same route, even if they are spelled differently.
    pub(super) fn is(&self, other: &Self) -> bool {
        self.destination() == other.destination() && self.hop() == other.hop()
    }

    pub(super) fn destination(&self) -> Option<IpNet> {
        Some(self.destination.parse::<IpNet>().ok()?.trunc())
    }

    fn hop(&self) -> Option<IpAddr> {
        self.nexthop.parse().ok()
    }
}

/// A port, with the fields that the driver needs for routes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Port {
    pub(crate) id: String,
    pub(super) device_id: String,
    device_owner: String,
    pub(super) fixed_ips: Vec<FixedIp>,
    pub(super) allowed_address_pairs: Vec<AddressPair>,
    /// Whether the port drops packets that a server sends from foreign addresses. Unset: Neutron does not support this.
    port_security_enabled: Option<bool>,
    pub(crate) revision_number: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct FixedIp {
    pub(super) subnet_id: String,
    pub(super) ip_address: String,
}

/// Additional addresses from which a server may send.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AddressPair {
    /// An address, or a network as a CIDR.
    pub(super) ip_address: String,
    /// The MAC address of the port, which Neutron fills in. It carries no information.
    #[serde(skip_serializing_if = "Option::is_none")]
    mac_address: Option<String>,
}

impl AddressPair {
    pub(super) fn of(network: IpNet) -> Self {
        Self { ip_address: network.to_string(), mac_address: None }
    }

    pub(super) fn network(&self) -> Option<IpNet> {
        let network: Option<IpNet> = self.ip_address.parse().ok();
        network.or_else(|| Some(self.ip_address.parse::<IpAddr>().ok()?.into()))
    }
}

impl Port {
    /// Whether the port would drop packets from a network if it had these pairs. A pair with a wider network also allows the packets.
    pub(super) fn drops(&self, network: IpNet, pairs: &[AddressPair]) -> bool {
        let allows = |pair: &AddressPair| pair.network().is_some_and(|wide| wide.contains(&network));
        self.port_security_enabled == Some(true) && !pairs.iter().any(allows)
    }
}

/// The ports in the router's subnets, by address.
pub(super) struct Table<'a> {
    at: BTreeMap<IpAddr, &'a Port>,
    /// Addresses by server, in the order that Neutron returns.
    of: BTreeMap<&'a str, Vec<IpAddr>>,
}

impl<'a> Table<'a> {
    /// Builds the table. `ports` includes the router's own ports, which show its subnets. Other subnets may use the same addresses.
    pub(super) fn new(router: &str, ports: impl Iterator<Item = &'a Port> + Clone) -> Self {
        let (mut at, mut of) = (BTreeMap::new(), BTreeMap::<_, Vec<_>>::new());
        let own = ports.clone().filter(|port| port.device_id == router);
        let subnets: BTreeSet<&str> =
            own.flat_map(|port| &port.fixed_ips).map(|ip| ip.subnet_id.as_str()).collect();
        for port in ports.filter(|port| port.device_id != router) {
            let near = port.fixed_ips.iter().filter(|ip| subnets.contains(ip.subnet_id.as_str()));
            for address in near.filter_map(|ip| ip.ip_address.parse().ok()) {
                at.insert(address, port);
                if port.device_owner.starts_with(MACHINE) {
                    of.entry(port.device_id.as_str()).or_default().push(address);
                }
            }
        }
        Self { at, of }
    }

    /// Returns the port with an address.
    pub(super) fn port_at(&self, address: &str) -> Option<&'a Port> {
        self.at.get(&address.parse().ok()?).copied()
    }

    /// Returns the addresses by which the router reaches a server. `None`: the router does not reach the server.
    pub(super) fn addresses_of(&self, server: &str) -> Option<&[IpAddr]> {
        self.of.get(server).map(Vec::as_slice)
    }

    /// Converts a route to the contract, with its instance and state. A route is a blackhole if no port has its next hop, or if the
    /// server's port drops the pods' packets, for example because its address pair was removed.
    pub(super) fn route(&self, route: &ExtraRoute, place: &Shared<'_>, can: Can) -> Route {
        let port = self.port_at(&route.nexthop);
        let machine = port.filter(|port| port.device_owner.starts_with(MACHINE));
        let provider_id = machine.map(|port| provider_id::write(place.form, place.region, &port.device_id));
        let drops = |port: &Port| {
            can.pairs && route.destination().is_some_and(|to| port.drops(to, &port.allowed_address_pairs))
        };
        let is_dropped = machine.is_some_and(drops);
        let state = if port.is_some() && !is_dropped { RouteState::Active } else { RouteState::Blackhole };
        contract_route(route, provider_id.unwrap_or_default(), state)
    }
}

/// Converts a route to the contract.
pub(super) fn contract_route(route: &ExtraRoute, provider_id: String, state: RouteState) -> Route {
    let canonical = route.destination().map(|network| network.to_string());
    let address = route.hop().map(|address| address.to_string());
    Route {
        vendor_id: route.id(),
        destination: canonical.unwrap_or_else(|| route.destination.clone()),
        next_hop: Some(NextHop {
            provider_id,
            address: address.unwrap_or_else(|| route.nexthop.clone()),
            interface: String::new(),
        }),
        state: state.into(),
        ..Route::default()
    }
}
