//! What Octavia and Neutron are told, as they want it written. A field that is not set is not written.
//!
//! Source: Octavia and Neutron API references.

use std::{collections::BTreeMap, net::IpAddr};

use ipnet::IpNet;
use serde::{Serialize, Serializer};

/// A load balancer; with its listeners, if all is made at once.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CreateLoadBalancer {
    pub(crate) name: String,
    pub(crate) description: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) provider: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) vip_subnet_id: Option<String>,
    /// In place of the subnet, where nobody says any: it goes to this node's.
    #[serde(skip)]
    pub(crate) beside: Option<Neighbour>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) vip_network_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) vip_address: Option<IpAddr>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) additional_vips: Vec<NewVip>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) flavor_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) availability_zone: Option<String>,
    pub(crate) tags: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) listeners: Vec<NewListener>,
}

/// A node whose subnet is looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Neighbour {
    pub(crate) provider_id: String,
    pub(crate) address: IpAddr,
}

/// An address beside the first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct NewVip {
    pub(crate) subnet_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ip_address: Option<IpAddr>,
}

/// A listener.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NewListener {
    pub(crate) name: String,
    pub(crate) protocol: &'static str,
    pub(crate) protocol_port: u16,
    #[serde(flatten)]
    pub(crate) settings: ListenerSettings,
    /// Only where all is made at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) default_pool: Option<NewPool>,
}

/// What can change in a listener.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ListenerSettings {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tags: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) connection_limit: Option<i64>,
    #[serde(flatten)]
    pub(crate) timeouts: Timeouts,
    /// Empty: everybody.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "null_if_empty")]
    pub(crate) allowed_cidrs: Option<Vec<IpNet>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) default_tls_container_ref: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) sni_container_refs: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) insert_headers: Option<BTreeMap<String, String>>,
}

/// A listener's patience, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Timeouts {
    #[serde(rename = "timeout_client_data", skip_serializing_if = "Option::is_none")]
    pub(crate) client_data: Option<u32>,
    #[serde(rename = "timeout_member_connect", skip_serializing_if = "Option::is_none")]
    pub(crate) member_connect: Option<u32>,
    #[serde(rename = "timeout_member_data", skip_serializing_if = "Option::is_none")]
    pub(crate) member_data: Option<u32>,
    #[serde(rename = "timeout_tcp_inspect", skip_serializing_if = "Option::is_none")]
    pub(crate) tcp_inspect: Option<u32>,
}

/// A pool; with what is in it, if all is made at once.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NewPool {
    pub(crate) name: String,
    pub(crate) protocol: &'static str,
    pub(crate) lb_algorithm: &'static str,
    pub(crate) tags: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) session_persistence: Option<NewPersistence>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) healthmonitor: Option<NewMonitor>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) members: Vec<NewMember>,
}

/// What can change in a pool, and does.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct UpdatePool {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tags: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) lb_algorithm: Option<&'static str>,
    /// `null` takes it away.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) session_persistence: Option<NullOr<NewPersistence>>,
}

/// A value, or that there shall be none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub(crate) enum NullOr<T> {
    Value(T),
    Null,
}

/// Whether a client stays with its member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct NewPersistence {
    #[serde(rename = "type")]
    pub(crate) kind: &'static str,
    /// Seconds; for UDP and SCTP alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) persistence_timeout: Option<u32>,
}

/// How members are probed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NewMonitor {
    pub(crate) name: String,
    #[serde(rename = "type")]
    pub(crate) kind: &'static str,
    #[serde(flatten)]
    pub(crate) settings: MonitorSettings,
}

/// What can change in a monitor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MonitorSettings {
    /// Seconds between two probes.
    pub(crate) delay: u32,
    /// Seconds for an answer.
    pub(crate) timeout: u32,
    pub(crate) max_retries: u32,
    pub(crate) max_retries_down: u32,
    /// Of HTTP alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) url_path: Option<String>,
}

/// A member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NewMember {
    pub(crate) name: String,
    pub(crate) address: IpAddr,
    pub(crate) protocol_port: u16,
    pub(crate) weight: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) monitor_port: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) subnet_id: Option<String>,
}

/// A floating IP at a port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NewFloatingIp {
    /// What people call the network, or a subnet of it: by name or ID.
    #[serde(skip)]
    pub(crate) pool: Option<String>,
    /// `None`: that of the pool, else the only external network that there is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) floating_network_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) subnet_id: Option<String>,
    pub(crate) description: String,
}

/// The floating IP that a new one takes the place of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Former {
    pub(crate) id: String,
    pub(crate) address: IpAddr,
    /// Where it is from.
    pub(crate) network_id: String,
    /// What it says of itself if it stays.
    pub(crate) description: String,
}

/// Where a floating IP leads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Target {
    pub(crate) port_id: String,
    /// A port may have several.
    #[serde(rename = "fixed_ip_address")]
    pub(crate) address: IpAddr,
}

/// Octavia knows no empty list of those who may connect.
fn null_if_empty<S: Serializer>(ranges: &Option<Vec<IpNet>>, to: S) -> Result<S::Ok, S::Error> {
    ranges.as_ref().filter(|ranges| !ranges.is_empty()).serialize(to)
}

/// A rule of a security group that lets packets in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct NewRule {
    pub(crate) security_group_id: String,
    pub(crate) direction: &'static str,
    pub(crate) ethertype: &'static str,
    pub(crate) protocol: &'static str,
    pub(crate) port_range_min: u16,
    pub(crate) port_range_max: u16,
    pub(crate) remote_ip_prefix: IpNet,
    pub(crate) description: String,
}
