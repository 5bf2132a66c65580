//! Builds Nodes, for example `node("a").uninitialised().provider_id("sim://north/i-1")`

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Node, NodeAddress, NodeCondition, NodeSpec, NodeStatus, Taint},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};

use super::BEGIN;
use crate::node::UNINITIALISED;

/// Starts to build an initialised, empty Node with this name. The UID of the Node is `uid-<name>`.
pub fn node(name: &str) -> NodeBuilder {
    let metadata = ObjectMeta {
        name: Some(name.to_owned()),
        uid: Some(format!("uid-{name}")),
        creation_timestamp: Some(Time(BEGIN)),
        ..ObjectMeta::default()
    };
    let (spec, status) = (Some(NodeSpec::default()), Some(NodeStatus::default()));
    NodeBuilder(Node { metadata, spec, status })
}

/// Builds a Node.
#[derive(Clone, Debug)]
#[must_use]
pub struct NodeBuilder(Node);

impl NodeBuilder {
    /// Makes the Node look as if a kubelet with an external cloud provider had just registered it.
    pub fn uninitialised(self) -> Self {
        self.tainted(UNINITIALISED, Some("true"), "NoSchedule")
    }

    /// Adds a taint.
    pub fn tainted(mut self, key: &str, value: Option<&str>, effect: &str) -> Self {
        let taint = Taint {
            key: key.to_owned(),
            value: value.map(str::to_owned),
            effect: effect.to_owned(),
            time_added: None,
        };
        self.spec().taints.get_or_insert_default().push(taint);
        self
    }

    /// Sets `spec.providerID`.
    pub fn provider_id(mut self, id: &str) -> Self {
        self.spec().provider_id = Some(id.to_owned());
        self
    }

    /// Adds a pod CIDR.
    pub fn pods(mut self, cidr: &str) -> Self {
        let spec = self.spec();
        spec.pod_cidr.get_or_insert_with(|| cidr.to_owned());
        spec.pod_cidrs.get_or_insert_default().push(cidr.to_owned());
        self
    }

    /// Adds an address of a type, such as `InternalIP`.
    pub fn address(mut self, type_: &str, address: &str) -> Self {
        let address = NodeAddress { type_: type_.to_owned(), address: address.to_owned() };
        self.0.status.get_or_insert_default().addresses.get_or_insert_default().push(address);
        self
    }

    /// Adds an internal address.
    pub fn at(self, ip: &str) -> Self {
        self.address("InternalIP", ip)
    }

    /// Sets the status of the condition `Ready`: `True`, `False` or `Unknown`.
    pub fn ready(mut self, status: &str) -> Self {
        let conditions = self.0.status.get_or_insert_default().conditions.get_or_insert_default();
        conditions.retain(|condition| condition.type_ != "Ready");
        let (type_, status) = ("Ready".to_owned(), status.to_owned());
        conditions.push(NodeCondition { type_, status, ..NodeCondition::default() });
        self
    }

    /// Adds a label.
    pub fn label(mut self, key: &str, value: &str) -> Self {
        insert(&mut self.0.metadata.labels, key, value);
        self
    }

    /// Adds an annotation.
    pub fn annotation(mut self, key: &str, value: &str) -> Self {
        insert(&mut self.0.metadata.annotations, key, value);
        self
    }

    /// Sets another UID. This simulates a node that was recreated under its old name.
    pub fn uid(mut self, uid: &str) -> Self {
        self.0.metadata.uid = Some(uid.to_owned());
        self
    }

    /// Sets the creation time.
    pub fn created(mut self, at: Timestamp) -> Self {
        self.0.metadata.creation_timestamp = Some(Time(at));
        self
    }

    /// Marks the Node for deletion, and adds a finalizer.
    pub fn deleted(mut self) -> Self {
        self.0.metadata.deletion_timestamp = Some(Time(BEGIN));
        self.0.metadata.finalizers.get_or_insert_default().push("example.com/held".to_owned());
        self
    }

    /// Returns the Node.
    #[must_use]
    pub fn build(self) -> Node {
        self.0
    }

    fn spec(&mut self) -> &mut NodeSpec {
        self.0.spec.get_or_insert_default()
    }
}

impl From<NodeBuilder> for Node {
    fn from(builder: NodeBuilder) -> Self {
        builder.0
    }
}

pub(super) fn insert(map: &mut Option<BTreeMap<String, String>>, key: &str, value: &str) {
    map.get_or_insert_default().insert(key.to_owned(), value.to_owned());
}
