//! Computes the changes of routers and ports. Pure functions.

use std::collections::BTreeMap;

use cloud_adapter::driver::{Fault, Location, RouteChanges, VendorError, WantedRoute};
use ipnet::IpNet;

use super::table::Table;
use crate::{
    api::router::{AddressPair, ExtraRoute, Port},
    provider_id,
};

#[derive(Debug)]
pub(super) struct PairChange<'a> {
    pub(super) port: &'a Port,
    pub(super) pairs: Vec<AddressPair>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Addition {
    pub(super) route: ExtraRoute,
    pub(super) provider_id: String,
}

/// Returns the server to which a route must lead.
pub(super) fn machine_of(route: &WantedRoute, region: &str) -> Result<String, VendorError> {
    let provider_id = route.upsert.next_hop.as_ref().map_or("", |hop| &hop.provider_id);
    match provider_id::locate(region, provider_id) {
        Location::Here(server) => Ok(server),
        Location::Elsewhere | Location::Malformed => {
            let text = format!(
                "invalid provider ID {provider_id:?}: expected the ID of a server in region {region}"
            );
            Err(invalid("next_hop.provider_id", &text))
        }
    }
}

/// Returns the route for the router. Checks the next hop, because Neutron does not check it well enough. If one next hop is unreachable,
/// Neutron refuses all routes of the call. Neutron also accepts an IPv6 next hop for an IPv4 network.
pub(super) fn addition(
    route: &WantedRoute,
    server: &str,
    table: &Table<'_>,
) -> Result<Addition, VendorError> {
    let destination = route.upsert.key.as_ref().map_or("", |key| &key.destination);
    let network: IpNet = destination
        .parse()
        .map_err(|error| invalid("key.destination", &format!("{destination:?}: {error}")))?;
    let hop = route.upsert.next_hop.clone().unwrap_or_default();
    if !hop.interface.is_empty() {
        return Err(invalid("next_hop.interface", "this cloud supports only addresses as next hops"));
    }
    let unreached = || {
        let text = format!("server {server} does not exist, or has no port in a subnet of the router");
        invalid("next_hop.provider_id", &text)
    };
    let addresses = table.addresses_of(server).ok_or_else(unreached)?;
    let fits = |address: &&std::net::IpAddr| address.is_ipv4() == network.addr().is_ipv4();
    let is_it = |address: &&std::net::IpAddr| hop.address.is_empty() || hop.address.parse() == Ok(**address);
    let Some(address) = addresses.iter().filter(fits).find(is_it) else {
        let wanted = if hop.address.is_empty() { "an address" } else { &hop.address };
        let text = format!(
            "server {server} does not have {wanted} of the IP family of {network} in a subnet of the router"
        );
        return Err(invalid("next_hop.address", &text));
    };
    let route = ExtraRoute { destination: network.trunc().to_string(), nexthop: address.to_string() };
    Ok(Addition { route, provider_id: hop.provider_id })
}

/// Returns the address pairs that ports need for new routes. The result has one change for each port, which covers all routes to it.
pub(super) fn missing_pairs<'a>(add: &[&ExtraRoute], table: &Table<'a>) -> Vec<PairChange<'a>> {
    let mut ports: BTreeMap<&str, PairChange<'a>> = BTreeMap::new();
    for route in add {
        let (Some(port), Some(network)) = (table.port_at(&route.nexthop), route.destination()) else {
            continue;
        };
        let unchanged = || PairChange { port, pairs: port.allowed_address_pairs.clone() };
        let change = ports.entry(&port.id).or_insert_with(unchanged);
        if port.drops(network, &change.pairs) {
            change.pairs.push(AddressPair::of(network));
        }
    }
    changed_ports(ports)
}

/// Returns the changes that remove the address pairs of removed routes, one change for each port. A pair that another route needs stays.
pub(super) fn spare_pairs<'a>(
    gone: &[ExtraRoute],
    stay: &[ExtraRoute],
    table: &Table<'a>,
) -> Vec<PairChange<'a>> {
    let by_port = |route: &ExtraRoute| Some((table.port_at(&route.nexthop)?, route.destination()?));
    let mut ports: BTreeMap<&str, PairChange<'a>> = BTreeMap::new();
    for (port, network) in gone.iter().filter_map(by_port) {
        let is_needed = |wide: IpNet| {
            stay.iter().filter_map(by_port).any(|(at, network)| at.id == port.id && wide.contains(&network))
        };
        let goes = |pair: &AddressPair| pair.network() == Some(network) && !is_needed(network);
        let unchanged = || PairChange { port, pairs: port.allowed_address_pairs.clone() };
        ports.entry(&port.id).or_insert_with(unchanged).pairs.retain(|pair| !goes(pair));
    }
    changed_ports(ports)
}

fn changed_ports<'a>(ports: BTreeMap<&str, PairChange<'a>>) -> Vec<PairChange<'a>> {
    ports.into_values().filter(|change| change.pairs != change.port.allowed_address_pairs).collect()
}

pub(super) fn changed(there: &[ExtraRoute], remove: &[ExtraRoute], add: &[ExtraRoute]) -> Vec<ExtraRoute> {
    let stays = |route: &&ExtraRoute| !remove.iter().any(|gone| gone.is(route));
    let mut routes: Vec<ExtraRoute> = there.iter().filter(stays).cloned().collect();
    for new in add {
        if !routes.iter().any(|route| route.is(new)) {
            routes.push(new.clone());
        }
    }
    routes
}

pub(super) fn removals(changes: &RouteChanges) -> Vec<ExtraRoute> {
    changes.remove.iter().filter_map(|id| ExtraRoute::of(id)).collect()
}

fn invalid(field: &str, text: &str) -> VendorError {
    VendorError::new(Fault::Invalid, format!("{field}: {text}"))
}
