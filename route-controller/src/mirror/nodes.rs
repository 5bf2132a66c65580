//! Trims Kubernetes Nodes to the fields that routes need.

use controller_core::cidr;
use controller_core::node::internal_ips;
use jiff::Timestamp;
use k8s_openapi::api::core::v1 as api;

use crate::plan::condition::{NETWORK_UNAVAILABLE, Network};
use crate::plan::node::{Condition, Node};

/// Keeps the fields that routes need. Returns `None` for a node without name or UID, which the API server never sends.
pub(crate) fn trim(node: &api::Node) -> Option<Node> {
    let mut trimmed = Node {
        name: node.metadata.name.clone()?,
        uid: node.metadata.uid.clone()?,
        created: node.metadata.creation_timestamp.as_ref().map_or(Timestamp::MAX, |time| time.0),
        provider_id: None,
        elsewhere: false,
        pod_cidrs: Vec::new(),
        unreadable_cidrs: Vec::new(),
        internal_ips: internal_ips(node),
        network_unavailable: network_unavailable(node),
    };
    if let Some(spec) = &node.spec {
        trimmed.provider_id = spec.provider_id.clone().filter(|id| !id.is_empty());
        for text in spec.pod_cidrs.iter().flatten() {
            read_cidr(&mut trimmed, text);
        }
    }
    Some(trimmed)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeChange {
    /// The change may affect the plan.
    Plan,
    /// Another controller wrote the condition.
    Condition,
    /// The change is irrelevant, such as a heartbeat or this controller's own write.
    Nothing,
}

/// Classifies a change. `judged` is the last pass's conclusion about the node. If it is `None`, a change of the condition is irrelevant.
pub(crate) fn classify(before: &Node, after: &Node, judged: Option<Network>) -> NodeChange {
    let Node {
        name,
        uid,
        created,
        provider_id,
        // The field `elsewhere` is not compared, since only a pass knows the scheme.
        elsewhere: _,
        pod_cidrs,
        unreadable_cidrs,
        internal_ips,
        network_unavailable,
    } = before;
    if (name, uid, created) != (&after.name, &after.uid, &after.created)
        || (provider_id, internal_ips) != (&after.provider_id, &after.internal_ips)
        || (pod_cidrs, unreadable_cidrs) != (&after.pod_cidrs, &after.unreadable_cidrs)
    {
        return NodeChange::Plan;
    }
    let is_right = judged.is_none_or(|judged| judged.stands_on(after));
    if *network_unavailable == after.network_unavailable || is_right {
        NodeChange::Nothing
    } else {
        NodeChange::Condition
    }
}

/// Adds a CIDR to the node, unless the node already has the CIDR. An invalid text is kept separately.
fn read_cidr(node: &mut Node, text: &str) {
    match cidr::parse(text) {
        Ok(cidr) if node.pod_cidrs.contains(&cidr) => (),
        Ok(cidr) => node.pod_cidrs.push(cidr),
        Err(_) => node.unreadable_cidrs.push(text.to_owned()),
    }
}

fn network_unavailable(node: &api::Node) -> Option<Condition> {
    let mut conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let condition = conditions.find(|condition| condition.type_ == NETWORK_UNAVAILABLE)?;
    let reason = condition.reason.clone().unwrap_or_default();
    Some(Condition { status: condition.status.clone(), reason })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn trimmed(patch: &Value) -> Node {
        let mut node = json!({
            "metadata": { "name": "a", "uid": "u-1", "creationTimestamp": "2026-01-01T00:00:00Z" },
        });
        for (key, value) in patch.as_object().expect("an object") {
            node[key] = value.clone();
        }
        trim(&serde_json::from_value(node).expect("a Node")).expect("it has name and UID")
    }

    // Behaviour: R5
    #[test]
    fn fields_for_routes_are_kept() {
        let node = trimmed(&json!({
            "spec": {
                "providerID": "sim://r/a",
                "podCIDRs": ["10.244.01.7/24", "fd00:244:0:1::/64", "10.244.1.0/24", "10.244.x"],
            },
            "status": {
                "addresses": [
                    { "type": "Hostname", "address": "a" },
                    { "type": "ExternalIP", "address": "198.51.100.1" },
                    { "type": "InternalIP", "address": "192.0.2.1" },
                    { "type": "InternalIP", "address": "2001:db8::1" },
                ],
                "conditions": [
                    { "type": "Ready", "status": "True", "reason": "KubeletReady" },
                    { "type": "NetworkUnavailable", "status": "False", "reason": "CalicoIsUp" },
                ],
            },
        }));
        let expected =
            crate::plan::tests::node("a").uid("u-1").born(1_767_225_600).says("False", "CalicoIsUp");
        let expected = expected.pods("10.244.1.0/24").pods("fd00:244:0:1::/64").unreadable("10.244.x");
        assert_eq!(node, expected.at("192.0.2.1").at("2001:db8::1"));
    }

    #[test]
    fn new_node_without_cidrs_has_no_claims() {
        let node = trimmed(&json!({ "spec": { "providerID": "" } }));
        assert_eq!(node.provider_id, None);
        assert!(node.asks_for_nothing());
    }

    // Behaviour: R17
    #[test]
    fn only_what_changes_a_plan_wakes_the_controller() {
        let node = || crate::plan::tests::node("a").pods("10.244.1.0/24");
        for (name, after, expected) in [
            ("nothing", node(), NodeChange::Nothing),
            ("a pod CIDR", node().pods("10.244.2.0/24"), NodeChange::Plan),
            ("the provider ID", node().uninitialised(), NodeChange::Plan),
            ("an address", node().at("192.0.2.1"), NodeChange::Plan),
            ("an address and the condition", node().at("192.0.2.1").says("True", "X"), NodeChange::Plan),
            ("another node of that name", node().uid("b"), NodeChange::Plan),
        ] {
            assert_eq!(classify(&node(), &after, Some(Network::Available)), expected, "{name}");
        }
    }

    #[test]
    fn foreign_condition_is_a_change_and_the_own_one_is_not() {
        let node = || crate::plan::tests::node("a").pods("10.244.1.0/24");
        let right = || node().says("False", "RouteCreated");
        let available = Some(Network::Available);
        for (name, before, after, judged, expected) in [
            ("own value", node(), right(), available, NodeChange::Nothing),
            (
                "own value over a foreign one",
                node().says("False", "CalicoIsUp"),
                right(),
                available,
                NodeChange::Nothing,
            ),
            ("another reason", right(), node().says("False", "CalicoIsUp"), available, NodeChange::Condition),
            (
                "another status",
                right(),
                node().says("True", "RouteCreated"),
                available,
                NodeChange::Condition,
            ),
            ("condition removed", right(), node(), available, NodeChange::Condition),
            (
                "own reason with the wrong status",
                right(),
                node().says("True", "NoRouteCreated"),
                available,
                NodeChange::Condition,
            ),
            ("no conclusion", right(), node().says("False", "CalicoIsUp"), None, NodeChange::Nothing),
            (
                "wrong, but unchanged",
                node().says("True", "X"),
                node().says("True", "X"),
                available,
                NodeChange::Nothing,
            ),
        ] {
            assert_eq!(classify(&before, &after, judged), expected, "{name}");
        }
    }
}
