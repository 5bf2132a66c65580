//! Servers and ports in the answers of Nova and Neutron, and the instance that is built from them. Pure functions.
//!
//! Only the fields that the driver uses are parsed, and enums as text, so that an unknown value does not fail a whole listing.

use std::{collections::BTreeMap, net::IpAddr};

use cloud_adapter::kit;
use cloud_api_proto::v1alpha1::{
    Instance, InstanceState,
    instance_address::{Type, Value},
};
use serde::{Deserialize, Deserializer};

use super::{
    address::{Networking, addresses},
    label::label,
};
use crate::provider_id;

/// A server of Nova's API 2.47 and later.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Server {
    pub(crate) id: String,
    name: String,
    status: String,
    created: String,
    pub(super) metadata: BTreeMap<String, String>,
    #[serde(rename = "accessIPv4", deserialize_with = "or_empty")]
    pub(super) access_v4: String,
    #[serde(rename = "accessIPv6", deserialize_with = "or_empty")]
    pub(super) access_v6: String,
    /// The addresses of the server, by the name of the network.
    pub(super) addresses: BTreeMap<String, Vec<NetworkAddress>>,
    flavor: Flavor,
    #[serde(rename = "OS-EXT-AZ:availability_zone", deserialize_with = "or_empty")]
    zone: String,
    #[serde(rename = "OS-EXT-STS:task_state", deserialize_with = "or_empty")]
    task: String,
    #[serde(rename = "OS-EXT-STS:power_state")]
    power: Option<u8>,
}

/// An address of a server, as Nova knows it from Neutron.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct NetworkAddress {
    pub(super) addr: String,
    /// The type of the address: `fixed` or `floating`.
    #[serde(rename = "OS-EXT-IPS:type")]
    pub(super) kind: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
struct Flavor {
    original_name: String,
}

/// A port in Neutron's answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Port {
    pub(super) device_id: String,
    pub(super) status: String,
    pub(super) fixed_ips: Vec<FixedIp>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct FixedIp {
    pub(super) ip_address: String,
    pub(super) subnet_id: String,
}

impl Port {
    /// The subnet of one of the port's addresses.
    pub(crate) fn subnet_of(&self, address: IpAddr) -> Option<&str> {
        let is_it = |one: &&FixedIp| one.ip_address.parse() == Ok(address);
        self.fixed_ips.iter().find(is_it).map(|one| one.subnet_id.as_str()).filter(|id| !id.is_empty())
    }
}

/// Settings that are the same for all instances of the adapter.
#[derive(Clone, Debug)]
pub(crate) struct Shared<'a> {
    pub(crate) region: &'a str,
    pub(crate) networking: &'a Networking,
    pub(crate) form: provider_id::Form,
}

impl Server {
    /// The name of the network of an address.
    pub(super) fn network_of(&self, address: &str) -> Option<&str> {
        let ip = address.parse::<IpAddr>().ok()?;
        let is_it = |one: &NetworkAddress| one.addr.parse() == Ok(ip);
        self.addresses.iter().find(|(_, of_it)| of_it.iter().any(is_it)).map(|(name, _)| name.as_str())
    }

    /// Maps Nova's status. Source: Compute API, "Server concepts".
    fn state(&self) -> InstanceState {
        const SHUT_DOWN: u8 = 4;
        match (self.status.as_str(), self.task.as_str()) {
            // Only an operator can restore a soft-deleted server, which has left its cluster.
            ("DELETED" | "SOFT_DELETED", _) => InstanceState::Terminated,
            (_, "deleting" | "soft-deleting") => InstanceState::Terminating,
            ("SHUTOFF", _) => InstanceState::Stopped,
            // The hypervisor has shut the server down, but Nova does not show this in the status yet.
            ("ACTIVE", _) if self.power == Some(SHUT_DOWN) => InstanceState::Stopped,
            ("BUILD" | "REBUILD", _) => InstanceState::Starting,
            (
                "ACTIVE" | "REBOOT" | "HARD_REBOOT" | "PASSWORD" | "RESCUE" | "RESIZE" | "VERIFY_RESIZE"
                | "REVERT_RESIZE" | "MIGRATING",
                _,
            ) => InstanceState::Running,
            // These servers do not run, but are not shut down either: their volumes may be in use.
            ("PAUSED" | "SUSPENDED" | "SHELVED" | "SHELVED_OFFLOADED", _) => InstanceState::Stopping,
            ("ERROR", _) => InstanceState::Error,
            // An unknown status never counts as a deletion.
            _ => InstanceState::Unknown,
        }
    }
}

/// Converts a server to an instance of the contract. `ports`: the ports of this server, in the order that Neutron returns.
pub(super) fn instance(server: &Server, ports: &[&Port], place: &Shared<'_>) -> Instance {
    let Shared { region, networking, form } = place;
    let addresses = addresses(server, ports, networking);
    let provider_id = provider_id::write(*form, region, &server.id);
    let (state, kind, zone) = (server.state(), label(&server.flavor.original_name), label(&server.zone));
    // The fingerprint covers only the properties from which a Node is initialised.
    let mut node = vec![provider_id.as_str(), &server.name, state.as_str_name(), &kind, &zone, region];
    for address in &addresses {
        node.push(Type::try_from(address.r#type).unwrap_or_default().as_str_name());
        node.push(match &address.value {
            Some(Value::Ip(text) | Value::Name(text)) => text,
            None => "",
        });
    }
    let fingerprint = kit::digest(&node);
    Instance {
        name: server.name.clone(),
        state: state.into(),
        instance_type: kind,
        region: (*region).to_owned(),
        zone,
        created_at: server.created.parse().ok(),
        vendor_state: server.status.clone(),
        fingerprint,
        addresses,
        provider_id,
        ..Instance::default()
    }
}

/// Parses an optional value, because Nova returns `null` for unknown values.
fn or_empty<'de, D: Deserializer<'de>>(text: D) -> Result<String, D::Error> {
    Ok(Option::deserialize(text)?.unwrap_or_default())
}
