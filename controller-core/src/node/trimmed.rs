//! Decodes only those fields of watched Nodes that the controllers read. All other fields, such as images and managed fields, make up the
//! greater part of a Node, and thousands of Nodes arrive at once.

use std::{borrow::Cow, collections::BTreeMap};

use k8s_openapi::{
    api::core::v1::{Node, NodeAddress, NodeCondition, NodeSpec, NodeStatus, Taint},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use kube::Resource;
use serde::{Deserialize, Deserializer};

/// A Node in which only the decoded fields are set.
#[derive(Clone, Debug, PartialEq)]
pub struct TrimmedNode(pub Node);

#[derive(Deserialize)]
struct Wire {
    #[serde(default)]
    metadata: Metadata,
    spec: Option<Spec>,
    status: Option<Status>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    #[serde(rename = "providerID")]
    provider_id: Option<String>,
    #[serde(rename = "podCIDRs")]
    pod_cidrs: Option<Vec<String>>,
    taints: Option<Vec<Taint>>,
}

#[derive(Deserialize)]
struct Status {
    addresses: Option<Vec<NodeAddress>>,
    conditions: Option<Vec<Condition>>,
}

#[derive(Deserialize)]
struct Condition {
    #[serde(rename = "type")]
    type_: String,
    status: String,
    reason: Option<String>,
}

impl<'de> Deserialize<'de> for TrimmedNode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Wire { metadata, spec, status } = Wire::deserialize(deserializer)?;
        let Metadata {
            name,
            uid,
            resource_version,
            creation_timestamp,
            deletion_timestamp,
            labels,
            annotations,
        } = metadata;
        Ok(Self(Node {
            metadata: ObjectMeta {
                name,
                uid,
                resource_version,
                creation_timestamp,
                deletion_timestamp,
                labels,
                annotations,
                ..ObjectMeta::default()
            },
            spec: spec.map(|Spec { provider_id, pod_cidrs, taints }| NodeSpec {
                provider_id,
                pod_cidrs,
                taints,
                ..NodeSpec::default()
            }),
            status: status.map(|Status { addresses, conditions }| NodeStatus {
                addresses,
                conditions: conditions.map(|all| all.into_iter().map(NodeCondition::from).collect()),
                ..NodeStatus::default()
            }),
        }))
    }
}

impl From<Condition> for NodeCondition {
    fn from(Condition { type_, status, reason }: Condition) -> Self {
        Self { type_, status, reason, ..Self::default() }
    }
}

impl Resource for TrimmedNode {
    type DynamicType = ();
    type Scope = <Node as Resource>::Scope;

    fn kind(dt: &()) -> Cow<'_, str> {
        Node::kind(dt)
    }

    fn group(dt: &()) -> Cow<'_, str> {
        <Node as Resource>::group(dt)
    }

    fn version(dt: &()) -> Cow<'_, str> {
        <Node as Resource>::version(dt)
    }

    fn plural(dt: &()) -> Cow<'_, str> {
        Node::plural(dt)
    }

    fn meta(&self) -> &ObjectMeta {
        &self.0.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.0.metadata
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::node;

    #[test]
    fn only_the_fields_that_controllers_read_are_decoded() {
        let object = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {
                "name": "a", "uid": "u-1", "resourceVersion": "7", "creationTimestamp": "2026-01-01T00:00:00Z",
                "deletionTimestamp": "2026-01-02T00:00:00Z",
                "labels": { node::ZONE: "z" }, "annotations": { node::PROVIDED_NODE_IP: "10.0.0.1" },
                "managedFields": [{ "manager": "kubelet", "operation": "Update" }],
            },
            "spec": {
                "providerID": "sim://r/a", "podCIDR": "10.244.1.0/24", "podCIDRs": ["10.244.1.0/24"],
                "taints": [{ "key": node::SHUTDOWN, "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z" }],
            },
            "status": {
                "addresses": [{ "type": "InternalIP", "address": "10.0.0.1" }],
                "conditions": [{ "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "a \
                                                                                                          valid Node" }],
                "images": [{ "names": ["a", "b"], "sizeBytes": 7 }],
            },
        });
        let TrimmedNode(trimmed) = serde_json::from_value(object.clone()).expect("a Node");
        let whole: Node = serde_json::from_value(object).expect("a Node");
        assert!(node::is_ready(&trimmed));
        assert_eq!(node::internal_ips(&trimmed), node::internal_ips(&whole));
        assert_eq!(node::taints(&trimmed), node::taints(&whole));
        assert_eq!(node::provider_id(&trimmed), node::provider_id(&whole));
        let kept = |meta: &ObjectMeta| ObjectMeta { managed_fields: None, ..meta.clone() };
        assert_eq!(trimmed.metadata, kept(&whole.metadata));
        assert_eq!(trimmed.spec.and_then(|spec| spec.pod_cidrs), whole.spec.and_then(|spec| spec.pod_cidrs));
        let status = trimmed.status.expect("a status");
        assert_eq!((status.images, status.conditions.map(|all| all[0].message.clone())), (None, Some(None)));
    }

    #[test]
    fn a_node_without_expected_fields_is_valid() {
        for odd in [
            json!({}),
            json!({ "metadata": {} }),
            json!({ "metadata": { "name": "a" }, "spec": {}, "status": {} }),
        ] {
            serde_json::from_value::<TrimmedNode>(odd).expect("a Node");
        }
    }
}
