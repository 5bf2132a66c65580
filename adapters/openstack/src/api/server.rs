//! Servers and ports in the answers of Nova and Neutron.
//!
//! Only the fields that the driver uses are parsed. Enums are parsed as text, so that an unknown value does not make a whole listing fail.

use std::{collections::BTreeMap, net::IpAddr};

use serde::Deserialize;

use super::responses::or_empty;

/// A server as returned by Nova's API 2.47 and later.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Server {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) status: String,
    pub(crate) created: String,
    pub(crate) metadata: BTreeMap<String, String>,
    #[serde(rename = "accessIPv4", deserialize_with = "or_empty")]
    pub(crate) access_v4: String,
    #[serde(rename = "accessIPv6", deserialize_with = "or_empty")]
    pub(crate) access_v6: String,
    /// The addresses of the server, by the name of the network.
    pub(crate) addresses: BTreeMap<String, Vec<NetworkAddress>>,
    pub(crate) flavor: Flavor,
    #[serde(rename = "OS-EXT-AZ:availability_zone", deserialize_with = "or_empty")]
    pub(crate) zone: String,
    #[serde(rename = "OS-EXT-STS:task_state", deserialize_with = "or_empty")]
    pub(crate) task: String,
    #[serde(rename = "OS-EXT-STS:power_state")]
    pub(crate) power: Option<u8>,
}

/// An address of a server, as Nova knows it from Neutron.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct NetworkAddress {
    pub(crate) addr: String,
    /// The type of the address: `fixed` or `floating`.
    #[serde(rename = "OS-EXT-IPS:type")]
    pub(crate) kind: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Flavor {
    pub(crate) original_name: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Port {
    pub(crate) device_id: String,
    pub(crate) status: String,
    pub(crate) fixed_ips: Vec<FixedIp>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct FixedIp {
    pub(crate) ip_address: String,
    pub(crate) subnet_id: String,
}

impl Port {
    pub(crate) fn subnet_of(&self, address: IpAddr) -> Option<&str> {
        let is_it = |one: &&FixedIp| one.ip_address.parse() == Ok(address);
        self.fixed_ips.iter().find(is_it).map(|one| one.subnet_id.as_str()).filter(|id| !id.is_empty())
    }
}

impl Server {
    pub(crate) fn network_of(&self, address: &str) -> Option<&str> {
        let ip = address.parse::<IpAddr>().ok()?;
        let is_it = |one: &NetworkAddress| one.addr.parse() == Ok(ip);
        self.addresses.iter().find(|(_, of_it)| of_it.iter().any(is_it)).map(|(name, _)| name.as_str())
    }
}
