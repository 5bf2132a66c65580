//! What people read at a node: one constructor an Event. The recorder writes the log line with the same words.

pub(crate) mod told;

use std::time::Duration;

use controller_core::events::{Kind, Notice, Recorder};
use k8s_openapi::api::core::v1::ObjectReference;

use crate::plan::Lay;
use crate::plan::node::Node;
use crate::plan::refusal::{Refusal, Why};
use crate::requeue::guard::Held;

/// A route could not be laid. Name and words are those of the reference controller.
const FAILED_TO_CREATE_ROUTE: &str = "FailedToCreateRoute";
/// What a node asks for cannot be right, so nothing was tried.
const POD_CIDR_REFUSED: &str = "PodCIDRRefused";
/// What a node asks for is done, and will not be undone.
const POD_CIDR_OUTSIDE: &str = "PodCIDROutside";
/// Nothing can be tried, because the adapter or what is behind it is away.
const WAITS_FOR_CLOUD: &str = "WaitsForCloud";

/// More routes than may are to go at once, so none goes.
const ROUTE_REMOVAL_HELD: &str = "RouteRemovalHeld";

/// What was being done.
const ACTION: &str = "LayRoute";
/// What was not done.
const REMOVAL: &str = "RemoveRoute";

/// Tells of routes, at nodes.
#[derive(Clone, Debug)]
pub(crate) struct Events(Recorder);

impl Events {
    pub(crate) const fn new(recorder: Recorder) -> Self {
        Self(recorder)
    }

    /// The route of a node could not be laid.
    pub(crate) fn failed_to_create(&self, lay: &Lay, after: Duration, why: &str) {
        self.tell(&lay.node_name, &lay.claim.node_uid, FAILED_TO_CREATE_ROUTE, not_laid(lay, after, why));
    }

    /// A node asks for what it cannot have, or cannot give back.
    pub(crate) fn refused(&self, refusal: &Refusal) {
        let (reason, note) = refused(refusal);
        self.tell(&refusal.node_name, &refusal.node_uid, reason, note);
    }

    /// A node has no route yet, and nothing can be done about it now.
    pub(crate) fn waits(&self, node: &Node, why: &str) {
        self.tell(&node.name, &node.uid, WAITS_FOR_CLOUD, waits(why));
    }

    /// Routes stay until a person says that they may go. Told at what stands for the cluster: their nodes are gone.
    pub(crate) fn held(&self, about: &ObjectReference, held: &Held) {
        let note = held.to_string();
        self.0.tell(about, Notice { kind: Kind::Warning, reason: ROUTE_REMOVAL_HELD, action: REMOVAL, note });
    }

    fn tell(&self, name: &str, uid: &str, reason: &'static str, note: String) {
        let about = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Node".to_owned()),
            name: Some(name.to_owned()),
            uid: Some(uid.to_owned()),
            ..ObjectReference::default()
        };
        self.0.tell(&about, Notice { kind: Kind::Warning, reason, action: ACTION, note });
    }
}

/// The words for a route that could not be laid.
pub(crate) fn not_laid(lay: &Lay, after: Duration, why: &str) -> String {
    let Lay { claim, node_name, .. } = lay;
    could_not_create(&claim.node_uid, &claim.to.to_string(), node_name, after, why)
}

/// Reason and words for what a node cannot have, or cannot give back.
pub(crate) fn refused(refusal: &Refusal) -> (&'static str, String) {
    let Refusal { node_name, node_uid, cidr, why } = refusal;
    match why {
        Why::Conflict { .. } => {
            let note = could_not_create(node_uid, cidr, node_name, Duration::ZERO, &why.to_string());
            (FAILED_TO_CREATE_ROUTE, note)
        }
        Why::OutsideCluster { .. } => (POD_CIDR_OUTSIDE, format!("Pod CIDR {cidr}: {why}")),
        Why::Unreadable | Why::Claimed { .. } => {
            (POD_CIDR_REFUSED, format!("No route to pod CIDR {cidr}: {why}"))
        }
    }
}

/// The words for a node that waits for the cloud.
pub(crate) fn waits(why: &str) -> String {
    format!("Route to this node's pods waits for the cloud: {why}; goes on by itself")
}

/// The reference controller's words. Its hint for the name of the route is the node's UID.
fn could_not_create(hint: &str, cidr: &str, node: &str, after: Duration, why: &str) -> String {
    format!("Could not create route {hint} {cidr} for node {node} after {after:.1?}: {why}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Cause, Removal};
    use crate::requeue::guard;

    #[test]
    fn the_words_of_a_failure_are_those_that_people_look_for() {
        let after = Duration::from_millis(1234);
        let note = could_not_create("u-1", "10.244.1.0/24", "a", after, "VENDOR_QUOTA: 50 routes");
        assert_eq!(
            note,
            "Could not create route u-1 10.244.1.0/24 for node a after 1.2s: VENDOR_QUOTA: 50 routes"
        );
    }

    #[test]
    fn what_is_told_is_in_the_reference() {
        let after = Duration::from_millis(1234);
        let quota = "VENDOR_QUOTA: 50 routes are there, and no more may be";
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
                waits("the cloud adapter is not reachable since 12:00:00 (connection refused)"),
            ),
            (ROUTE_REMOVAL_HELD, held.to_string()),
        ];
        let event = |(reason, words)| metrics_reference::Event { reason, kind: Kind::Warning.word(), words };
        metrics_reference::assert_events_up_to_date("route-controller", &all.map(event));
    }
}
