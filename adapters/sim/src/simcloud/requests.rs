//! Request bodies. Unknown fields are refused, so a misspelt field is not mistaken for an unset field.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Deserializer, Serialize};

use super::model::{
    Algorithm, HealthMonitor, IpFamily, ListenerProtocol, Member, Persistence, Placement, PoolProtocol,
    ProvisioningStatus, Route, Scheme, Tags, Traffic,
};

/// Request body of `CreateLoadBalancer`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CreateLoadBalancer {
    /// Display name; not unique.
    pub name: String,
    /// The network that can reach the load balancer.
    pub scheme: Scheme,
    /// The IP families: at least one, and each at most once.
    #[serde(default = "ipv4_only")]
    pub families: Vec<IpFamily>,
    /// The addresses to use, at most one per family. The cloud chooses the addresses of the other families.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vips: Vec<IpAddr>,
    /// Location and size of the load balancer.
    #[serde(default)]
    pub placement: Placement,
    /// Arbitrary tags.
    #[serde(default)]
    pub tags: Tags,
    /// Makes a repeated create idempotent. A second create with the same token and content returns the existing load balancer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_token: Option<String>,
}

fn ipv4_only() -> Vec<IpFamily> {
    vec![IpFamily::Ipv4]
}

/// The request body of `UpdateLoadBalancer`. Unset fields do not change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct UpdateLoadBalancer {
    /// A new name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The new tags, which replace all existing tags.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tags: Option<Tags>,
}

/// Request body of `CreateListener`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CreateListener {
    /// Display name.
    #[serde(default)]
    pub name: String,
    /// Transport protocol. The combination of protocol and port is unique on the load balancer.
    pub protocol: ListenerProtocol,
    /// Port on the virtual addresses, 1..=65535.
    pub port: u16,
    /// Idle timeout in seconds.
    #[serde(default = "default_idle_timeout")]
    pub idle_timeout: u32,
    /// Source ranges that may connect; empty: all clients.
    #[serde(default)]
    pub allowed_cidrs: Vec<IpNet>,
    /// How the listener processes traffic.
    #[serde(default)]
    pub traffic: Traffic,
    /// An existing pool of the same load balancer. Must not be set together with `pool`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool_id: Option<String>,
    /// A pool to create together with the listener.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<CreatePool>,
}

const fn default_idle_timeout() -> u32 {
    60
}

/// The request body of `UpdateListener`. Unset fields do not change. Protocol and port are immutable.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct UpdateListener {
    /// A new name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Idle timeout in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_timeout: Option<u32>,
    /// The new source ranges, which replace all existing ranges.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed_cidrs: Option<Vec<IpNet>>,
    /// The new settings for how the listener processes traffic. They replace all existing settings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub traffic: Option<Traffic>,
    /// Another pool of the same load balancer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool_id: Option<String>,
}

/// Request body of `CreatePool`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CreatePool {
    /// Display name.
    #[serde(default)]
    pub name: String,
    /// The protocol towards members.
    pub protocol: PoolProtocol,
    /// The algorithm that chooses a member.
    #[serde(default)]
    pub algorithm: Algorithm,
    /// Session affinity of clients.
    #[serde(default)]
    pub persistence: Option<Persistence>,
    /// The health check of members.
    #[serde(default)]
    pub health_monitor: Option<HealthMonitor>,
    /// The first members.
    #[serde(default)]
    pub members: Vec<Member>,
}

/// The request body of `UpdatePool`. Unset fields do not change, and `null` removes a setting. The protocol is immutable.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct UpdatePool {
    /// A new name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The algorithm that chooses a member.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub algorithm: Option<Algorithm>,
    /// Session affinity of clients.
    #[serde(skip_serializing_if = "Change::is_keep")]
    pub persistence: Change<Persistence>,
    /// The health check of members.
    #[serde(skip_serializing_if = "Change::is_keep")]
    pub health_monitor: Change<HealthMonitor>,
}

/// A field of a change. The field may be absent, `null` or a value, and each of these three cases has its own meaning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Change<T> {
    /// Absent: unchanged.
    #[default]
    Keep,
    /// `null`: removed.
    Clear,
    /// The setting gets this value.
    Set(T),
}

impl<T> Change<T> {
    /// Whether the field is absent.
    pub const fn is_keep(&self) -> bool {
        matches!(self, Self::Keep)
    }

    pub(super) fn apply(self, field: &mut Option<T>) {
        match self {
            Self::Keep => (),
            Self::Clear => *field = None,
            Self::Set(value) => *field = Some(value),
        }
    }
}

impl<T: Serialize> Serialize for Change<T> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Keep | Self::Clear => serializer.serialize_none(),
            Self::Set(value) => value.serialize(serializer),
        }
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Change<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // `default` sets an absent field to `Keep`, so this code only sees fields that are present.
        Ok(Option::deserialize(deserializer)?.map_or(Self::Clear, Self::Set))
    }
}

/// The request body of `SetMembers`. It contains the new members, which replace all existing members.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetMembers {
    /// All members.
    pub members: Vec<Member>,
}

/// The request body of `UpdateMembers`. Removals are executed first, then additions. Adding a member that exists replaces it; removing a
/// member that does not exist is not an error.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct UpdateMembers {
    /// Members to add or replace.
    pub add: Vec<Member>,
    /// Members to remove.
    pub remove: Vec<MemberKey>,
}

/// The key of a member in a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemberKey {
    /// The address of the member.
    pub address: IpAddr,
    /// The port of the member.
    pub port: u16,
}

/// The request body of `BatchRoutes`. Removals are executed first, then additions. Each item has its own result, and a request may contain
/// at most 200 items.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BatchRoutes {
    /// Routes to add.
    pub add: Vec<AddRoute>,
    /// IDs of routes to remove.
    pub remove: Vec<String>,
}

/// One route to add. At least one of the next hops is required.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AddRoute {
    /// Destination of packets; host bits must be zero.
    pub destination: IpNet,
    /// The next hop, as an instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_hop_instance: Option<String>,
    /// The next hop, as an address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_hop_address: Option<IpAddr>,
    /// Arbitrary tags.
    #[serde(default)]
    pub tags: Tags,
}

/// The response to `BatchRoutes`: one result per item, in the order of the request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchRoutesAnswer {
    /// One result per item of `add`.
    pub added: Vec<RouteResult>,
    /// One result per item of `remove`.
    pub removed: Vec<RouteResult>,
}

/// The result for one item of a batch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RouteResult {
    /// Success, with the added or the removed route.
    Ok(Route),
    /// The cloud refused the item and changed nothing for it.
    Error(ItemError),
}

/// Why the cloud refused an item.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ItemError {
    /// The error code. The codes are the same as for whole calls.
    pub code: String,
    /// The message for users.
    pub message: String,
    /// Details that depend on the code.
    pub details: serde_json::Value,
}

/// The response to `SetMembers` and `UpdateMembers`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MembersAnswer {
    /// The pool.
    pub pool_id: String,
    /// The current number of members of the pool.
    pub members: usize,
    /// The status of the pool.
    pub status: ProvisioningStatus,
}
