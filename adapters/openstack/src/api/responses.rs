//! Responses of Octavia and Neutron about the parts of a load balancer. Only the fields that the driver uses are parsed.
//!
//! Enums such as protocols are parsed as text. An object with an unknown value then differs from the desired state, but does not make the
//! listing fail. Source: Octavia and Neutron API references.

use std::net::IpAddr;

use serde::{Deserialize, Deserializer};

use crate::port::{Port, Transport};

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct Balancer {
    pub(crate) id: String,
    #[serde(default, deserialize_with = "or_empty")]
    pub(crate) name: String,
    pub(crate) provisioning_status: String,
    /// Time of creation in UTC. The text contains no time zone.
    #[serde(default)]
    pub(crate) created_at: Option<jiff::civil::DateTime>,
    /// The time of the last change of the load balancer or any object below it, with a resolution of one second.
    #[serde(default)]
    pub(crate) updated_at: Option<String>,
    #[serde(default)]
    pub(crate) vip_address: Option<IpAddr>,
    #[serde(default)]
    pub(crate) vip_port_id: Option<String>,
    #[serde(default)]
    pub(crate) vip_subnet_id: Option<String>,
    #[serde(default)]
    pub(crate) vip_network_id: Option<String>,
    #[serde(default, deserialize_with = "or_empty")]
    pub(crate) additional_vips: Vec<AdditionalVip>,
    #[serde(default)]
    pub(crate) flavor_id: Option<String>,
    #[serde(default)]
    pub(crate) availability_zone: Option<String>,
    #[serde(default, deserialize_with = "or_empty")]
    pub(crate) tags: Vec<String>,
}

impl Balancer {
    pub(crate) fn ipv4(&self) -> Option<IpAddr> {
        let additional = self.additional_vips.iter().filter_map(|vip| vip.ip_address);
        self.vip_address.into_iter().chain(additional).find(IpAddr::is_ipv4)
    }
}

/// The fields of a load balancer that the driver reads before it writes the tags or deletes the load balancer.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct LiveBalancer {
    pub(crate) id: String,
    #[serde(default, deserialize_with = "or_empty")]
    pub(crate) name: String,
    pub(crate) provisioning_status: String,
    #[serde(default, deserialize_with = "or_empty")]
    pub(crate) listeners: Vec<Named>,
    #[serde(default, deserialize_with = "or_empty")]
    pub(crate) tags: Vec<String>,
}

impl LiveBalancer {
    pub(crate) fn goes(&self) -> bool {
        ["PENDING_DELETE", "DELETED"].contains(&self.provisioning_status.as_str())
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct AdditionalVip {
    #[serde(default)]
    pub(crate) ip_address: Option<IpAddr>,
    #[serde(default)]
    pub(crate) subnet_id: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct Listener {
    pub(crate) id: String,
    #[serde(default, deserialize_with = "or_empty")]
    pub(crate) name: String,
    pub(crate) protocol: String,
    pub(crate) protocol_port: u16,
    pub(crate) provisioning_status: String,
    #[serde(default)]
    pub(crate) default_pool_id: Option<String>,
    #[serde(default)]
    pub(crate) connection_limit: Option<i64>,
    #[serde(default)]
    pub(crate) timeout_client_data: Option<u32>,
    #[serde(default)]
    pub(crate) timeout_member_connect: Option<u32>,
    #[serde(default)]
    pub(crate) timeout_member_data: Option<u32>,
    #[serde(default)]
    pub(crate) timeout_tcp_inspect: Option<u32>,
    #[serde(default, deserialize_with = "or_empty")]
    pub(crate) allowed_cidrs: Vec<String>,
    #[serde(default)]
    pub(crate) default_tls_container_ref: Option<String>,
    #[serde(default, deserialize_with = "or_empty")]
    pub(crate) sni_container_refs: Vec<String>,
    #[serde(default, deserialize_with = "or_empty")]
    pub(crate) insert_headers: std::collections::BTreeMap<String, String>,
    #[serde(default, deserialize_with = "or_empty")]
    pub(crate) loadbalancers: Vec<Named>,
    #[serde(default, deserialize_with = "or_empty")]
    pub(crate) tags: Vec<String>,
}

impl Listener {
    /// Returns the port, or `None` if the protocol is unknown.
    pub(crate) fn port(&self) -> Option<Port> {
        Some(Port { transport: Transport::of(&self.protocol)?, number: self.protocol_port })
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct Pool {
    pub(crate) id: String,
    #[serde(default, deserialize_with = "or_empty")]
    pub(crate) name: String,
    pub(crate) protocol: String,
    pub(crate) lb_algorithm: String,
    pub(crate) provisioning_status: String,
    #[serde(default)]
    pub(crate) session_persistence: Option<Persistence>,
    /// The IDs of the members. The details of the members come from a separate listing for each pool.
    #[serde(default, deserialize_with = "or_empty")]
    pub(crate) members: Vec<Named>,
    #[serde(default, deserialize_with = "or_empty")]
    pub(crate) loadbalancers: Vec<Named>,
    #[serde(default, deserialize_with = "or_empty")]
    pub(crate) tags: Vec<String>,
    /// Time of the last change of the pool or a member, with a resolution of one second.
    #[serde(default)]
    pub(crate) updated_at: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct Persistence {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    /// Timeout in seconds, for UDP and SCTP only.
    #[serde(default)]
    pub(crate) persistence_timeout: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct Monitor {
    pub(crate) id: String,
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) delay: u32,
    pub(crate) timeout: u32,
    pub(crate) max_retries: u32,
    #[serde(default)]
    pub(crate) max_retries_down: Option<u32>,
    #[serde(default)]
    pub(crate) url_path: Option<String>,
    #[serde(default, deserialize_with = "or_empty")]
    pub(crate) pools: Vec<Named>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct Member {
    pub(crate) address: IpAddr,
    pub(crate) protocol_port: u16,
    #[serde(default)]
    pub(crate) weight: Option<u32>,
    #[serde(default)]
    pub(crate) monitor_port: Option<u16>,
    #[serde(default)]
    pub(crate) subnet_id: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct FloatingIp {
    pub(crate) id: String,
    pub(crate) floating_ip_address: IpAddr,
    /// The address of the port that the floating IP is attached to, or `None` if the floating IP is not attached.
    #[serde(default)]
    pub(crate) fixed_ip_address: Option<IpAddr>,
    #[serde(default, deserialize_with = "absent_if_empty")]
    pub(crate) port_id: Option<String>,
    #[serde(default, deserialize_with = "or_empty")]
    pub(crate) description: String,
    #[serde(default, deserialize_with = "or_empty")]
    pub(crate) floating_network_id: String,
    /// Time of creation, with a resolution of one second.
    #[serde(default)]
    pub(crate) created_at: Option<String>,
    /// The revision of the floating IP. The driver requests this field only where it is needed, because the revision also changes with
    /// unrelated fields.
    #[serde(default)]
    pub(crate) revision_number: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct SecurityGroup {
    pub(crate) id: String,
    /// Time of creation, with a resolution of one second.
    #[serde(default)]
    pub(crate) created_at: Option<String>,
    #[serde(default, deserialize_with = "or_empty")]
    pub(crate) description: String,
    #[serde(default, deserialize_with = "or_empty")]
    pub(crate) security_group_rules: Vec<SecurityRule>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct SecurityRule {
    pub(crate) id: String,
    /// Time of creation, with a resolution of one second.
    #[serde(default)]
    pub(crate) created_at: Option<String>,
    #[serde(default, deserialize_with = "or_empty")]
    pub(crate) direction: String,
    #[serde(default)]
    pub(crate) protocol: Option<String>,
    #[serde(default)]
    pub(crate) port_range_min: Option<i64>,
    #[serde(default)]
    pub(crate) port_range_max: Option<i64>,
    #[serde(default)]
    pub(crate) remote_ip_prefix: Option<String>,
    #[serde(default)]
    pub(crate) remote_group_id: Option<String>,
    #[serde(default, deserialize_with = "or_empty")]
    pub(crate) description: String,
}

/// A port of a server, with its security groups.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct GuardedPort {
    pub(crate) id: String,
    #[serde(default, deserialize_with = "or_empty")]
    pub(crate) device_id: String,
    #[serde(default, deserialize_with = "or_empty")]
    pub(crate) fixed_ips: Vec<FixedAddress>,
    #[serde(default, deserialize_with = "or_empty")]
    pub(crate) security_groups: Vec<String>,
    /// Whether port security is on. Without port security, security groups have no effect, and Neutron rejects them.
    #[serde(default = "guarded")]
    pub(crate) port_security_enabled: bool,
    #[serde(default)]
    pub(crate) revision_number: u64,
}

fn guarded() -> bool {
    true
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct FixedAddress {
    #[serde(default)]
    pub(crate) ip_address: Option<IpAddr>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct Subnet {
    pub(crate) id: String,
    pub(crate) cidr: ipnet::IpNet,
}

/// A reference to an object by its ID.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct Named {
    pub(crate) id: String,
}

/// Parses `null` as an empty value, because the services write `null` for empty values.
pub(super) fn or_empty<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    value: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(value)?.unwrap_or_default())
}

/// Parses `""` as a missing value, because some versions of Neutron write `""` for empty values.
fn absent_if_empty<'de, D: Deserializer<'de>>(value: D) -> Result<Option<String>, D::Error> {
    Ok(Option::deserialize(value)?.filter(|text: &String| !text.is_empty()))
}
