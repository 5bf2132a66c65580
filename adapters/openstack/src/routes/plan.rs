//! What changes at routers and ports. Pure.

use std::collections::BTreeMap;

use cloud_adapter::driver::{Fault, Location, RouteChanges, VendorError, WantedRoute};
use ipnet::IpNet;

use super::table::{AddressPair, ExtraRoute, Port, Table};
use crate::provider_id;

/// What one port is told: the pairs that it shall have.
#[derive(Debug)]
pub(super) struct PairChange<'a> {
    pub(super) port: &'a Port,
    pub(super) pairs: Vec<AddressPair>,
}

/// A route to lay.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Addition {
    pub(super) route: ExtraRoute,
    pub(super) provider_id: String,
}

/// The machine that a route shall lead to.
///
/// # Errors
/// [`Fault::Invalid`] if it is none of this region.
pub(super) fn machine_of(route: &WantedRoute, region: &str) -> Result<String, VendorError> {
    let provider_id = route.upsert.next_hop.as_ref().map_or("", |hop| &hop.provider_id);
    match provider_id::locate(region, provider_id) {
        Location::Here(server) => Ok(server),
        Location::Elsewhere | Location::Malformed => {
            let text = format!("{provider_id:?} is no server of region {region}");
            Err(invalid("next_hop.provider_id", &text))
        }
    }
}

/// A route as the router shall have it. Neutron refuses all routes of a call for one that it cannot reach, and lets an IPv4 network
/// lead to an IPv6 address: neither is asked for.
///
/// # Errors
/// [`Fault::Invalid`] with the field.
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
        return Err(invalid("next_hop.interface", "this cloud routes to addresses"));
    }
    let unreached = || {
        let text = format!("server {server} is not there, or has no port at a subnet of the router");
        invalid("next_hop.provider_id", &text)
    };
    let addresses = table.addresses_of(server).ok_or_else(unreached)?;
    let fits = |address: &&std::net::IpAddr| address.is_ipv4() == network.addr().is_ipv4();
    let is_it = |address: &&std::net::IpAddr| hop.address.is_empty() || hop.address.parse() == Ok(**address);
    let Some(address) = addresses.iter().filter(fits).find(is_it) else {
        let wanted = if hop.address.is_empty() { "an address" } else { &hop.address };
        let text = format!(
            "server {server} does not have {wanted} of the family of {network} at a subnet of the router"
        );
        return Err(invalid("next_hop.address", &text));
    };
    let route = ExtraRoute { destination: network.trunc().to_string(), nexthop: address.to_string() };
    Ok(Addition { route, provider_id: hop.provider_id })
}

/// What ports have to be told, each once, with all that changes there: pairs of routes that go are taken out, unless another leads to the
/// same port; those of routes that come are put in.
pub(super) fn pair_changes<'a>(
    remove: &[ExtraRoute],
    add: &[&ExtraRoute],
    table: &Table<'a>,
) -> Vec<PairChange<'a>> {
    #[derive(Default)]
    struct Nets {
        out: Vec<IpNet>,
        allowed: Vec<IpNet>,
    }
    let mut ports: BTreeMap<&str, (&Port, Nets)> = BTreeMap::new();
    let by_port = |route: &ExtraRoute| Some((table.port_at(&route.nexthop)?, route.destination()?));
    for (port, network) in add.iter().filter_map(|route| by_port(route)) {
        let (_, nets) = ports.entry(&port.id).or_insert_with(|| (port, Nets::default()));
        nets.allowed.push(network);
    }
    for (port, network) in remove.iter().filter_map(by_port) {
        let (_, nets) = ports.entry(&port.id).or_insert_with(|| (port, Nets::default()));
        if !nets.allowed.contains(&network) {
            nets.out.push(network);
        }
    }
    let changes = ports.into_values().filter_map(|(port, nets)| {
        let goes = |pair: &&AddressPair| pair.network().is_some_and(|network| nets.out.contains(&network));
        let mut pairs: Vec<AddressPair> =
            port.allowed_address_pairs.iter().filter(|pair| !goes(pair)).cloned().collect();
        for network in nets.allowed {
            if port.drops(network, &pairs) {
                pairs.push(AddressPair::of(network));
            }
        }
        (pairs != port.allowed_address_pairs).then_some(PairChange { port, pairs })
    });
    changes.collect()
}

/// The routes of a list with those that shall not and shall be.
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

/// The routes to remove, by their IDs.
pub(super) fn removals(changes: &RouteChanges) -> Vec<ExtraRoute> {
    changes.remove.iter().filter_map(|id| ExtraRoute::of(id)).collect()
}

fn invalid(field: &str, text: &str) -> VendorError {
    VendorError::new(Fault::Invalid, format!("{field}: {text}"))
}
