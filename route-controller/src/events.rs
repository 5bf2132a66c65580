//! Defines the Events on Nodes, with a constructor for each. The recorder also logs their notes.

use std::time::Duration;

use controller_core::events::{Kind, Notice, Recorder};
use k8s_openapi::api::core::v1::ObjectReference;

use crate::error::guard::Held;
use crate::plan::Creation;
use crate::plan::node::Node;
use crate::plan::refusal::{Refusal, Why};

/// A route could not be created. Reason and note are those of the route controller of k8s.io/cloud-provider.
const FAILED_TO_CREATE_ROUTE: &str = "FailedToCreateRoute";
/// The pod CIDR of a node is invalid or belongs to another node, so no route is created.
const POD_CIDR_REFUSED: &str = "PodCIDRRefused";
/// The pod CIDR of a node is outside of the cluster's CIDRs. The route is created and never removed.
const POD_CIDR_OUTSIDE: &str = "PodCIDROutside";
/// The adapter or the cloud is unavailable, so no route can be created.
const WAITS_FOR_CLOUD: &str = "WaitsForCloud";

/// More removals are due than the limits allow, so no route is removed.
const ROUTE_REMOVAL_HELD: &str = "RouteRemovalHeld";

/// The action of Events about the creation of a route.
const ACTION: &str = "LayRoute";
/// The action of Events about held removals.
const REMOVAL: &str = "RemoveRoute";

#[derive(Clone, Debug)]
pub(crate) struct Events(Recorder);

impl Events {
    pub(crate) const fn new(recorder: Recorder) -> Self {
        Self(recorder)
    }

    pub(crate) fn failed_to_create(&self, creation: &Creation, after: Duration, why: &str) {
        self.emit(
            &creation.node_name,
            &creation.claim.node_uid,
            FAILED_TO_CREATE_ROUTE,
            not_created(creation, after, why),
        );
    }

    pub(crate) fn refused(&self, refusal: &Refusal) {
        let (reason, note) = refused(refusal);
        self.emit(&refusal.node_name, &refusal.node_uid, reason, note);
    }

    pub(crate) fn waits(&self, node: &Node, why: &str) {
        self.emit(&node.name, &node.uid, WAITS_FOR_CLOUD, waits(why));
    }

    /// Emits the Event for removals that are held until an operator allows them. The Event is on the object that represents the cluster,
    /// since the nodes are gone.
    pub(crate) fn held(&self, about: &ObjectReference, held: &Held) {
        let note = held.note();
        self.0.emit(about, Notice { kind: Kind::Warning, reason: ROUTE_REMOVAL_HELD, action: REMOVAL, note });
    }

    fn emit(&self, name: &str, uid: &str, reason: &'static str, note: String) {
        let about = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Node".to_owned()),
            name: Some(name.to_owned()),
            uid: Some(uid.to_owned()),
            ..ObjectReference::default()
        };
        self.0.emit(&about, Notice { kind: Kind::Warning, reason, action: ACTION, note });
    }
}

pub(crate) fn not_created(creation: &Creation, after: Duration, why: &str) -> String {
    let Creation { claim, node_name, .. } = creation;
    could_not_create(&claim.node_uid, &claim.to.to_string(), node_name, after, why)
}

pub(crate) fn refused(refusal: &Refusal) -> (&'static str, String) {
    let Refusal { node_name, node_uid, cidr, why } = refusal;
    match why {
        Why::Conflict { .. } => {
            let note = could_not_create(node_uid, cidr, node_name, Duration::ZERO, &why.to_string());
            (FAILED_TO_CREATE_ROUTE, note)
        }
        Why::OutsideCluster { .. } => (POD_CIDR_OUTSIDE, format!("Pod CIDR {cidr} is {why}")),
        Why::Unreadable | Why::Claimed { .. } => {
            (POD_CIDR_REFUSED, format!("No route to pod CIDR {cidr}: {why}"))
        }
    }
}

pub(crate) fn waits(why: &str) -> String {
    format!("Waiting to create the route to this node's pods: {why}")
}

/// Returns the note of the route controller of k8s.io/cloud-provider. The `hint` in the route's name is the node's UID.
fn could_not_create(hint: &str, cidr: &str, node: &str, after: Duration, why: &str) -> String {
    format!("Could not create route {hint} {cidr} for node {node} after {after:.1?}: {why}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::guard;
    use crate::plan::{Cause, Removal};

    #[test]
    fn text_of_a_failed_route_is_that_of_cloud_provider() {
        let after = Duration::from_millis(1234);
        let note = could_not_create("u-1", "10.244.1.0/24", "a", after, "VENDOR_QUOTA: 50 routes");
        assert_eq!(
            note,
            "Could not create route u-1 10.244.1.0/24 for node a after 1.2s: VENDOR_QUOTA: 50 routes"
        );
    }

    #[test]
    fn events_are_in_the_reference() {
        let after = Duration::from_millis(1234);
        let quota = "VENDOR_QUOTA: route quota reached (50)";
        let refusal = |why| Refusal {
            node_name: "worker-1".to_owned(),
            node_uid: "67e08cc1".to_owned(),
            cidr: "10.244.1.0/24".to_owned(),
            why,
        };
        let removal = Removal {
            cause: Cause::Unasked,
            vendor_id: "rt-1".to_owned(),
            to: "10.244.1.0/24".parse().unwrap(),
            node_uid: None,
            via: None,
        };
        let held = Held {
            removals: vec![removal; 40],
            why: guard::Why::Missing { allowance: 30, window: Duration::from_mins(5) },
        };
        let all = [
            (FAILED_TO_CREATE_ROUTE, could_not_create("67e08cc1", "10.244.1.0/24", "worker-1", after, quota)),
            refused(&refusal(Why::Claimed { by: "worker-0".to_owned() })),
            refused(&refusal(Why::OutsideCluster { cluster: "10.0.0.0/16".to_owned() })),
            (
                WAITS_FOR_CLOUD,
                waits("the cloud adapter has been unavailable since 12:00:00 (connection refused)"),
            ),
            (ROUTE_REMOVAL_HELD, held.note()),
        ];
        let event =
            |(reason, words)| test_support::reference::Event { reason, kind: Kind::Warning.word(), words };
        test_support::reference::assert_events_up_to_date("route-controller", &all.map(event));
    }
}
