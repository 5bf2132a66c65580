//! Decides which addresses a node should list.

mod provided_node_ip;

use std::collections::BTreeSet;

use controller_core::node::HOSTNAME;
use serde::Serialize;

use self::provided_node_ip::Error;
use super::{Instance, Node, Pairs};

/// One entry of `status.addresses`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct Address {
    /// `InternalIP`, `ExternalIP`, `Hostname`, `InternalDNS`, `ExternalDNS`.
    #[serde(rename = "type")]
    pub(crate) type_: String,
    pub(crate) address: String,
}

fn all(addresses: &Pairs) -> Vec<Address> {
    let owned =
        |(type_, address): (&str, &str)| Address { type_: type_.to_owned(), address: address.to_owned() };
    addresses.iter().map(owned).collect()
}

/// Returns the list that the node should have, if it differs from the current one.
///
/// The result is the cloud's list, in the cloud's order. If the cloud lists no host names, the node's host names stay. The cloud must list
/// the provided node IP. If the cloud lists no address, nothing changes, because addresses are never cleared. Duplicates are dropped, since
/// the API server refuses them. Lists are compared exactly, including the order.
pub(super) fn wanted(node: &Node, instance: &Instance) -> Result<Option<Vec<Address>>, Error> {
    let (mut wanted, has) = (all(&instance.addresses), all(&node.addresses));
    if let Some(provided) = &node.provided_node_ip {
        provided_node_ip::apply(provided, &wanted)?;
    }
    let is_hostname = |address: &&Address| address.type_ == HOSTNAME;
    if !wanted.iter().any(|address| is_hostname(&address)) && !wanted.is_empty() {
        wanted.extend(has.iter().filter(is_hostname).cloned());
    }
    let mut seen = BTreeSet::new();
    wanted.retain(|address| seen.insert(address.clone()));
    if let Some(provided) = &node.provided_node_ip {
        wanted = provided_node_ip::apply(provided, &wanted)?;
    }
    Ok((!wanted.is_empty() && wanted != has).then_some(wanted))
}

/// Whether the node has an address other than its host name.
pub(super) fn has_any(node: &Node) -> bool {
    node.addresses.iter().any(|(type_, _)| type_ != HOSTNAME)
}
