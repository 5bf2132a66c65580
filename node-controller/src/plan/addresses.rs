//! Which addresses a node shall list.

use std::collections::BTreeSet;

use controller_core::node::HOSTNAME;
use serde::Serialize;

use super::{
    Instance, Node, Pairs,
    provided_node_ip::{self, Error},
};

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

/// The list that the node shall have, if it has another one.
///
/// The cloud's list in the cloud's order; the node's own host names stay if the cloud names none; then the rule of the provided node
/// IP, which the cloud must know, whatever the node calls itself. A cloud that lists no address changes nothing: addresses are never
/// cleared. What is listed twice stands once, or the API server would refuse the list. Compared exactly, order included.
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

/// Whether the node has an address: what it calls itself is none.
pub(super) fn has_any(node: &Node) -> bool {
    node.addresses.iter().any(|(type_, _)| type_ != HOSTNAME)
}
