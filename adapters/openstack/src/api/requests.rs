//! Bodies of requests to Octavia and Neutron. Fields that are not set are not serialised.
//!
//! Source: Octavia and Neutron API references.

use std::{collections::BTreeMap, net::IpAddr};

use ipnet::IpNet;
use serde::{Serialize, Serializer};

/// A load balancer, with its listeners if it is created in one call.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CreateLoadBalancer {
    pub(crate) name: String,
    pub(crate) description: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) provider: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) vip_subnet_id: Option<String>,
    /// The node in whose subnet the VIP is created if no subnet is configured.
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

/// A node whose subnet has to be looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Neighbour {
    pub(crate) provider_id: String,
    pub(crate) address: IpAddr,
}

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
    /// The pool. Set only if the load balancer is created in one call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) default_pool: Option<NewPool>,
}

/// The fields of a listener that can be changed.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ListenerSettings {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tags: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) connection_limit: Option<i64>,
    #[serde(flatten)]
    pub(crate) timeouts: Timeouts,
    /// The CIDRs of the clients that may connect. If the list is empty, any client may connect.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "null_if_empty")]
    pub(crate) allowed_cidrs: Option<Vec<IpNet>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) default_tls_container_ref: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) sni_container_refs: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) insert_headers: Option<BTreeMap<String, String>>,
}

/// Timeouts of a listener, in milliseconds.
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

/// A pool, with its members and health monitor if the load balancer is created in one call.
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

/// The changes of a pool, which contain only fields that can be changed and that differ.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct UpdatePool {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tags: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) lb_algorithm: Option<&'static str>,
    /// The new session persistence. `null` removes the session persistence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) session_persistence: Option<NullOr<NewPersistence>>,
}

/// A value, or an explicit `null`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub(crate) enum NullOr<T> {
    Value(T),
    Null,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct NewPersistence {
    #[serde(rename = "type")]
    pub(crate) kind: &'static str,
    /// Timeout in seconds, for UDP and SCTP only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) persistence_timeout: Option<u32>,
}

/// A health monitor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NewMonitor {
    pub(crate) name: String,
    #[serde(rename = "type")]
    pub(crate) kind: &'static str,
    #[serde(flatten)]
    pub(crate) settings: MonitorSettings,
}

/// The fields of a health monitor that can be changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MonitorSettings {
    /// Interval between two probes, in seconds.
    pub(crate) delay: u32,
    /// Timeout of a probe, in seconds.
    pub(crate) timeout: u32,
    pub(crate) max_retries: u32,
    pub(crate) max_retries_down: u32,
    /// The path of the probe, for HTTP only.
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

/// A new floating IP.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NewFloatingIp {
    /// Name or ID of the network, or of one of its subnets.
    #[serde(skip)]
    pub(crate) pool: Option<String>,
    /// The ID of the network. `None` selects the network of the pool, or else the only external network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) floating_network_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) subnet_id: Option<String>,
    pub(crate) description: String,
}

/// The existing floating IP that a new floating IP replaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Former {
    pub(crate) id: String,
    pub(crate) address: IpAddr,
    pub(crate) network_id: String,
    /// The new description, if this floating IP stays.
    pub(crate) description: String,
}

/// The port and address that a floating IP is attached to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Target {
    pub(crate) port_id: String,
    /// The address of the load balancer. Neutron needs this address, because a port may have several addresses.
    #[serde(rename = "fixed_ip_address")]
    pub(crate) address: IpAddr,
}

/// Serialises an empty list of allowed CIDRs as `null`, because Octavia does not accept an empty list.
fn null_if_empty<S: Serializer>(ranges: &Option<Vec<IpNet>>, to: S) -> Result<S::Ok, S::Error> {
    ranges.as_ref().filter(|ranges| !ranges.is_empty()).serialize(to)
}

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
