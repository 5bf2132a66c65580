//! The fields of a Node that several controllers read, and their well-known names.

mod trimmed;

use std::net::IpAddr;

use k8s_openapi::api::core::v1::{Node, NodeAddress, Taint};

pub use self::trimmed::TrimmedNode;
use crate::provider_id::{self, ProviderId};

/// The taint that the kubelet sets, and that the node-controller removes when the node is initialised. The value and the effect of the
/// taint do not matter.
pub const UNINITIALISED: &str = "node.cloudprovider.kubernetes.io/uninitialized";
/// The taint for a node whose instance is switched off, with the effect `NoSchedule`. The node-controller sets and removes this taint.
pub const SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";
/// The taint for a node that the autoscaler is about to remove.
pub const TO_BE_DELETED: &str = "ToBeDeletedByClusterAutoscaler";
/// The label that excludes a node from the targets of load balancers.
pub const EXCLUDED_FROM_LOAD_BALANCERS: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
/// The address type of the instance's host name.
pub const HOSTNAME: &str = "Hostname";
/// The annotation with the addresses that the kubelet was configured to use.
pub const PROVIDED_NODE_IP: &str = "alpha.kubernetes.io/provided-node-ip";
/// The annotation by which the operator confirms that this node may be deleted although many nodes are due for deletion. The value is the
/// node's UID.
pub const DELETE_DESPITE_BRAKE: &str = "cloudadapter.dev/delete-despite-brake";
/// The label with the node's zone.
pub const ZONE: &str = "topology.kubernetes.io/zone";

/// Returns the node's taints in their original sequence.
#[must_use]
pub fn taints(node: &Node) -> &[Taint] {
    node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default()
}

/// Whether any taint has this key, whatever its value and effect.
#[must_use]
pub fn has_taint(node: &Node, key: &str) -> bool {
    taints(node).iter().any(|taint| taint.key == key)
}

/// Whether any taint has this key and this effect, whatever its value.
#[must_use]
pub fn has_taint_with(node: &Node, key: &str, effect: &str) -> bool {
    taints(node).iter().any(|taint| taint.key == key && taint.effect == effect)
}

/// Returns whether the condition `Ready` is `True`, by which the kubelet reports that the node can run pods. Any other status counts as not
/// ready, and so does a missing condition.
#[must_use]
pub fn is_ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// Returns `status.addresses` in the original sequence.
#[must_use]
pub fn addresses(node: &Node) -> &[NodeAddress] {
    node.status.as_ref().and_then(|status| status.addresses.as_deref()).unwrap_or_default()
}

/// Returns the addresses of type `InternalIP` in their original sequence. Values that are not IP addresses are left out.
#[must_use]
pub fn internal_ips(node: &Node) -> Vec<IpAddr> {
    let internal = addresses(node).iter().filter(|address| address.type_ == "InternalIP");
    internal.filter_map(|address| address.address.parse().ok()).collect()
}

/// Returns `spec.providerID`, or `None` if the field is not set yet.
#[must_use]
pub fn provider_id(node: &Node) -> Option<Result<ProviderId, provider_id::Error>> {
    let text = node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref()).unwrap_or_default();
    (!text.is_empty()).then(|| text.parse())
}

/// Returns the value of a label.
#[must_use]
pub fn label<'a>(node: &'a Node, key: &str) -> Option<&'a str> {
    node.metadata.labels.as_ref()?.get(key).map(String::as_str)
}
