//! Finds out which server has which address, and converts routes to the message `Route` of the adapter API. The functions have no side
//! effects.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use cloud_api_proto::v1alpha1::{NextHop, Route, RouteState};

use super::Can;
use crate::{
    api::router::{ExtraRoute, Port},
    instances::Shared,
    provider_id,
};

/// Prefix of the field `device_owner` of a server's port; the zone follows. Source: Nova.
const MACHINE: &str = "compute:";

/// The ports in the router's subnets, keyed by address.
pub(super) struct Table<'a> {
    at: BTreeMap<IpAddr, &'a Port>,
    /// The addresses of each server, keyed by server, in the order in which Neutron returns them.
    of: BTreeMap<&'a str, Vec<IpAddr>>,
}

impl<'a> Table<'a> {
    /// Builds the table. `ports` includes the router's own ports, which show the router's subnets. Ports in other subnets are ignored,
    /// because they may have the same addresses.
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

    pub(super) fn port_at(&self, address: &str) -> Option<&'a Port> {
        self.at.get(&address.parse().ok()?).copied()
    }

    /// Returns the addresses at which the router reaches a server. `None`: the router does not reach the server.
    pub(super) fn addresses_of(&self, server: &str) -> Option<&[IpAddr]> {
        self.of.get(server).map(Vec::as_slice)
    }

    /// Returns the message for a route, with its instance and state. A route is a blackhole if no port has its next hop. It is also a
    /// blackhole if the server's port drops the pods' packets, for example because its address pair was removed.
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
