//! The cloud's responses, limited to the fields that the driver reads. Parsing is tolerant, so that one unknown value does not make a whole
//! listing unreadable.
//!
//! The request types are in [`crate::simcloud::requests`]; they reject unknown fields.

use std::net::IpAddr;

use ipnet::IpNet;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use crate::simcloud::{
    model::{
        AddressKind, Algorithm, HealthMonitor, InstanceStatus, IpFamily, ListenerProtocol, Member,
        Persistence, Placement, PoolProtocol, ProvisioningStatus, RouteStatus, Scheme, Tags, Traffic,
    },
    requests::ItemError,
};

/// A value of an enumeration. A newer cloud may add variants to the enumeration.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub(crate) enum Read<T> {
    Known(T),
    /// An unknown value, as received.
    Unknown(Value),
}

impl<T> Read<T> {
    pub(crate) const fn known(&self) -> Option<&T> {
        match self {
            Self::Known(value) => Some(value),
            Self::Unknown(_) => None,
        }
    }

    /// The value as received.
    pub(crate) fn word(&self) -> String
    where
        T: serde::Serialize,
    {
        let value = match self {
            Self::Known(value) => serde_json::to_value(value).unwrap_or_default(),
            Self::Unknown(value) => value.clone(),
        };
        value.as_str().map_or_else(|| value.to_string(), str::to_owned)
    }
}

impl<T: PartialEq> Read<T> {
    /// Returns whether the value is known and differs from `wanted`. The driver does not change an unknown value, because the value might
    /// differ again after every change.
    pub(crate) fn differs(&self, wanted: &T) -> bool {
        self.known().is_some_and(|there| there != wanted)
    }

    pub(crate) fn is(&self, wanted: &T) -> bool {
        self.known() == Some(wanted)
    }
}

#[derive(Debug, Deserialize)]
pub(crate) struct InstancePage {
    pub(crate) instances: Vec<Instance>,
    pub(crate) next: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct FoundInstances {
    pub(crate) instances: Vec<Instance>,
    pub(crate) missing: Vec<String>,
}

/// An instance.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Instance {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) status: Read<InstanceStatus>,
    #[serde(rename = "type")]
    pub(crate) instance_type: String,
    pub(crate) zone: String,
    pub(crate) region: String,
    pub(crate) addresses: Vec<Address>,
    pub(crate) tags: Tags,
    pub(crate) created_at: Timestamp,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Address {
    pub(crate) kind: Read<AddressKind>,
    pub(crate) address: String,
    #[serde(default)]
    pub(crate) network: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct LoadBalancerPage {
    pub(crate) load_balancers: Vec<LoadBalancer>,
    pub(crate) next: Option<String>,
}

/// The fields of the response to `CreateLoadBalancer` that the driver needs.
#[derive(Debug, Deserialize)]
pub(crate) struct Made {
    pub(crate) id: String,
}

/// A load balancer with all its listeners, pools and members. Timestamps are left out, because they would make equal objects differ.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct LoadBalancer {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) scheme: Read<Scheme>,
    pub(crate) families: Vec<Read<IpFamily>>,
    pub(crate) status: Read<ProvisioningStatus>,
    pub(crate) vips: Vec<IpAddr>,
    pub(crate) placement: Read<Placement>,
    pub(crate) tags: Tags,
    pub(crate) listeners: Vec<Listener>,
    pub(crate) pools: Vec<Pool>,
    pub(crate) created_at: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct Listener {
    pub(crate) id: String,
    pub(crate) protocol: Read<ListenerProtocol>,
    pub(crate) port: u16,
    pub(crate) idle_timeout: u32,
    pub(crate) allowed_cidrs: Vec<IpNet>,
    pub(crate) traffic: Read<Traffic>,
    pub(crate) pool_id: Option<String>,
    pub(crate) status: Read<ProvisioningStatus>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct Pool {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) protocol: Read<PoolProtocol>,
    pub(crate) algorithm: Read<Algorithm>,
    pub(crate) persistence: Read<Option<Persistence>>,
    pub(crate) health_monitor: Read<Option<HealthMonitor>>,
    pub(crate) members: Vec<Read<Member>>,
    pub(crate) status: Read<ProvisioningStatus>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct RoutePage {
    pub(crate) routes: Vec<Route>,
    pub(crate) next: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Route {
    pub(crate) id: String,
    pub(crate) table: String,
    pub(crate) destination: IpNet,
    pub(crate) next_hop_instance: Option<String>,
    pub(crate) next_hop_address: Option<IpAddr>,
    pub(crate) tags: Tags,
    pub(crate) status: Read<RouteStatus>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct RouteResults {
    pub(crate) added: Vec<RouteResult>,
    pub(crate) removed: Vec<RouteResult>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RouteResult {
    /// Success, with the created or the removed route.
    Ok(Box<Route>),
    /// The cloud refused the change of this route.
    Error(ItemError),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_value_does_not_fail_a_listing() {
        let page: InstancePage = serde_json::from_str(
            r#"{"instances": [{"id": "i-1", "name": "a", "status": "hibernating", "type": "s", "zone": "z", "region": "r",
                "addresses": [{"kind": "carrier_pigeon", "address": "coo"}], "created_at": "2026-01-01T00:00:00Z",
                "tags": {}, "colour": "red"}], "next": null}"#,
        )
        .expect("tolerant");
        let instance = &page.instances[0];
        assert_eq!((instance.status.known(), instance.status.word()), (None, "hibernating".to_owned()));
        assert_eq!(instance.addresses[0].kind.known(), None);
    }

    #[test]
    fn unknown_value_does_not_differ() {
        let read: Read<ListenerProtocol> = serde_json::from_str(r#""QUIC""#).expect("tolerant");
        assert!(!read.differs(&ListenerProtocol::Tcp));
        assert!(!read.is(&ListenerProtocol::Tcp));
    }
}
