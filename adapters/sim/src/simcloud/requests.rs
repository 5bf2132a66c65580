//! What callers send. Unknown fields are refused, so that a typing error does not pass for a default.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Deserializer, Serialize};

use super::model::{
    Algorithm, HealthMonitor, IpFamily, ListenerProtocol, Member, Persistence, Placement, PoolProtocol,
    ProvisioningStatus, Route, Scheme, Tags, Traffic,
};

/// `CreateLoadBalancer`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CreateLoadBalancer {
    /// For people; need not be unique.
    pub name: String,
    /// Who reaches it.
    pub scheme: Scheme,
    /// At least one, each once.
    #[serde(default = "ipv4_only")]
    pub families: Vec<IpFamily>,
    /// Addresses to use, at most one a family; the cloud chooses the others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vips: Vec<IpAddr>,
    /// Where and how large it is.
    #[serde(default)]
    pub placement: Placement,
    /// Free labels.
    #[serde(default)]
    pub tags: Tags,
    /// Makes a repeated create harmless: the same token and content answers the load balancer that is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_token: Option<String>,
}

fn ipv4_only() -> Vec<IpFamily> {
    vec![IpFamily::Ipv4]
}

/// `UpdateLoadBalancer`: what is not given stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct UpdateLoadBalancer {
    /// A new name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The full new set of tags.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tags: Option<Tags>,
}

/// `CreateListener`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CreateListener {
    /// For people.
    #[serde(default)]
    pub name: String,
    /// With the port unique on the load balancer.
    pub protocol: ListenerProtocol,
    /// 1..=65535.
    pub port: u16,
    /// Seconds after which a silent connection is cut.
    #[serde(default = "default_idle_timeout")]
    pub idle_timeout: u32,
    /// Who may connect; empty means everybody.
    #[serde(default)]
    pub allowed_cidrs: Vec<IpNet>,
    /// How it treats what comes in.
    #[serde(default)]
    pub traffic: Traffic,
    /// A pool of the same load balancer. Not together with `pool`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool_id: Option<String>,
    /// A pool to make together with the listener, in the same call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<CreatePool>,
}

const fn default_idle_timeout() -> u32 {
    60
}

/// `UpdateListener`: what is not given stays. Protocol and port never change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct UpdateListener {
    /// A new name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Seconds after which a silent connection is cut.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_timeout: Option<u32>,
    /// The full new set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed_cidrs: Option<Vec<IpNet>>,
    /// How it treats what comes in, all of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub traffic: Option<Traffic>,
    /// Another pool of the same load balancer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool_id: Option<String>,
}

/// `CreatePool`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CreatePool {
    /// For people.
    #[serde(default)]
    pub name: String,
    /// How traffic is handed to the members.
    pub protocol: PoolProtocol,
    /// How members are chosen.
    #[serde(default)]
    pub algorithm: Algorithm,
    /// Whether a client stays with its member.
    #[serde(default)]
    pub persistence: Option<Persistence>,
    /// How members are probed.
    #[serde(default)]
    pub health_monitor: Option<HealthMonitor>,
    /// The first members.
    #[serde(default)]
    pub members: Vec<Member>,
}

/// `UpdatePool`: what is not given stays, `null` takes away. The protocol never changes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct UpdatePool {
    /// A new name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// How members are chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub algorithm: Option<Algorithm>,
    /// Whether a client stays with its member.
    #[serde(skip_serializing_if = "Change::is_keep")]
    pub persistence: Change<Persistence>,
    /// How members are probed.
    #[serde(skip_serializing_if = "Change::is_keep")]
    pub health_monitor: Change<HealthMonitor>,
}

/// A field of a change that may be absent, `null` or a value, three different wishes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Change<T> {
    /// Absent: leave it.
    #[default]
    Keep,
    /// `null`: take it away.
    Clear,
    /// Put this there.
    Set(T),
}

impl<T> Change<T> {
    /// Nothing is asked for.
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
        // An absent field never gets here: `default` has made it `Keep`.
        Ok(Option::deserialize(deserializer)?.map_or(Self::Clear, Self::Set))
    }
}

/// `SetMembers`: the full new set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetMembers {
    /// All members.
    pub members: Vec<Member>,
}

/// `UpdateMembers`: removals first, then additions. Adding a member that is there replaces it; removing one that is not
/// there is no error.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct UpdateMembers {
    /// Members to add or replace.
    pub add: Vec<Member>,
    /// Members to take away.
    pub remove: Vec<MemberKey>,
}

/// Which member of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemberKey {
    /// Its address.
    pub address: IpAddr,
    /// Its port.
    pub port: u16,
}

/// `BatchRoutes`: removals first, then additions, each on its own; at most 200 together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BatchRoutes {
    /// Routes to add.
    pub add: Vec<AddRoute>,
    /// Ids of routes to take away.
    pub remove: Vec<String>,
}

/// One route to add. At least one of the next hops is needed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AddRoute {
    /// Where packets want to go; host bits are zero.
    pub destination: IpNet,
    /// The instance that takes them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_hop_instance: Option<String>,
    /// The address that takes them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_hop_address: Option<IpAddr>,
    /// Free labels.
    #[serde(default)]
    pub tags: Tags,
}

/// The answer to `BatchRoutes`: one result for each item, in the order given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchRoutesAnswer {
    /// One for each of `add`.
    pub added: Vec<RouteResult>,
    /// One for each of `remove`.
    pub removed: Vec<RouteResult>,
}

/// What became of one item.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RouteResult {
    /// Done; the route as it is, or as it was before its removal.
    Ok(Route),
    /// Refused; nothing was changed for this item.
    Error(ItemError),
}

/// Why an item was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ItemError {
    /// The same codes as for whole calls.
    pub code: String,
    /// For people.
    pub message: String,
    /// By code.
    pub details: serde_json::Value,
}

/// The answer to `SetMembers` and `UpdateMembers`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MembersAnswer {
    /// The pool.
    pub pool_id: String,
    /// How many members it has now.
    pub members: usize,
    /// Of the pool.
    pub status: ProvisioningStatus,
}
