//! Builds what the status pages show for a node's routes: the findings of the last pass, with the notes of its Events, and lines made from
//! the current caches.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cloud_api_proto::Reason;
use controller_core::explain::{Describe, Finding, Object, Seen, Waits};
use controller_core::mirror::ObjectName;
use tokio::time::Instant;

use crate::error::attempts::{Attempts, Try};
use crate::events::{not_created, refused, waits};
use crate::mirror::Mirrors;
use crate::mirror::ability::Ability;
use crate::plan::claims::RouteState;
use crate::plan::condition::{Change, NETWORK_UNAVAILABLE};
use crate::plan::node::Node;
use crate::plan::route::{Route, State};
use crate::plan::{Creation, Plan};

/// Returns the nodes whose routes are not in sync after a pass. The function is pure.
pub(crate) fn findings(
    nodes: &[Arc<Node>],
    plan: &Plan,
    attempts: &Attempts,
    now: Instant,
) -> BTreeMap<Object, Finding> {
    let mut found: BTreeMap<&str, Finding> = BTreeMap::new();
    for (claim, _) in plan.route_states.iter().filter(|(_, state)| **state != RouteState::Ready) {
        let finding = found.entry(&claim.node_uid).or_default();
        finding.plan.push(format!("wait until the cloud reports route {} as active", claim.to));
    }
    for creation in &plan.creations {
        let finding = found.entry(creation.shard_key()).or_default();
        finding.plan.push(creation.to_string());
        let Some(Try { n_tries, not_before, failed }) = attempts.last(creation) else { continue };
        finding.attempts = finding.attempts.max(n_tries);
        let next = Some(not_before).filter(|at| *at > now);
        finding.next = finding.next.into_iter().chain(next).min();
        if let Some((reason, why, took)) = failed {
            // Each failed attempt emits an Event.
            finding
                .waits
                .get_or_insert_with(|| waits_for(not_created(creation, took, &why), Some(reason), true));
        }
    }
    for removal in &plan.removals {
        // Removals for deleted nodes belong to no listed node.
        let uid = removal.node_uid.as_deref().unwrap_or_default();
        found.entry(uid).or_default().plan.push(removal.to_string());
    }
    for refusal in &plan.refusals {
        let finding = found.entry(&refusal.node_uid).or_default();
        finding.plan.push(format!("refuse {}", refusal.cidr));
        finding.waits.get_or_insert_with(|| waits_for(refused(refusal).1, None, true));
    }
    let of = |node: &Arc<Node>| {
        let finding = found.remove(node.uid.as_str()).or_else(|| uninitialised(node))?;
        Some((Object::node(&node.name, &node.uid), finding))
    };
    nodes.iter().filter_map(of).collect()
}

/// Explains that a node without a provider ID waits, because its instance is not known yet.
fn uninitialised(node: &Node) -> Option<Finding> {
    let text = "The route to this node's pods waits until node-controller writes the node's provider ID";
    let waits = || Finding { waits: Some(waits_for(text.to_owned(), None, false)), ..Finding::default() };
    (node.provider_id.is_none() && !node.pod_cidrs.is_empty()).then(waits)
}

/// Describes the failure that this answer would cause. Without `creation`, the answer is about a removal.
pub(crate) fn would_fail(creation: Option<&Creation>, why: &str, reason: Reason) -> Waits {
    let text = match creation {
        Some(creation) => not_created(creation, Duration::ZERO, why),
        None => format!("Cannot remove the route: {why}"),
    };
    waits_for(text, Some(reason), false)
}

pub(crate) fn not_tried(text: String) -> Waits {
    waits_for(text, None, false)
}

pub(crate) fn would_say(Change { network, .. }: &Change) -> String {
    format!("set the condition {NETWORK_UNAVAILABLE} to {} ({})", network.status(), network.reason())
}

/// Adds the nodes whose condition a dry run leaves unwritten, since these nodes are not in sync either.
pub(crate) fn rest(found: &mut BTreeMap<Object, Finding>, changes: &[Change]) {
    for change in changes {
        let finding = found.entry(Object::node(&change.node_name, &change.node_uid)).or_default();
        finding.plan.push(would_say(change));
    }
    for finding in found.values_mut().filter(|finding| !finding.plan.is_empty()) {
        finding.waits.get_or_insert_with(Waits::dry_run);
    }
}

pub(crate) fn waiting(why: &str, reason: Option<Reason>, reported: bool) -> Waits {
    Waits { topic: "cloud".to_owned(), ..waits_for(waits(why), reason, reported) }
}

fn waits_for(text: String, reason: Option<Reason>, reported: bool) -> Waits {
    let reason = reason.filter(|reason| *reason != Reason::Unspecified).map(Reason::word);
    Waits { topic: text.clone(), text, reason, reported }
}

impl Describe for Mirrors {
    fn uid(&self, name: &ObjectName) -> Option<String> {
        self.nodes.get(name).map(|node| node.uid.clone())
    }

    fn all(&self) -> Vec<Object> {
        self.nodes.read(|all| all.values().map(|node| Object::node(&node.name, &node.uid)).collect())
    }

    /// Whether the caches are complete. An adapter without routes lists none, so the cache of nodes is enough.
    fn listed(&self) -> bool {
        self.nodes.is_synced() && (self.ability() == Some(Ability::None) || self.routes.is_synced())
    }

    fn describe(&self, object: &Object) -> Seen {
        let Some(node) = self.nodes.get(&object.name).filter(|node| node.uid == object.uid) else {
            return Seen::default();
        };
        let node = self.seen(node);
        let wanted = if node.elsewhere {
            vec!["no route: the node's instance belongs to another cloud".to_owned()]
        } else if node.pod_cidrs.is_empty() {
            vec!["no route: the node has no spec.podCIDRs".to_owned()]
        } else {
            node.pod_cidrs.iter().map(|to| wanted(&node, to)).collect()
        };
        let cloud = if self.routes.is_synced() {
            let all = self.routes();
            let own =
                all.iter().filter_map(|route| Option::as_ref(route)).filter(|route| is_about(&node, route));
            own.map(shown).collect()
        } else {
            vec!["not listed yet".to_owned()]
        };
        let unseen = !node.pod_cidrs.is_empty() && !node.elsewhere && self.judged(&node.uid).is_none();
        Seen { wanted, cloud, unseen, apart: false }
    }
}

fn wanted(node: &Node, to: &ipnet::IpNet) -> String {
    match node.next_hop(to) {
        Some(via) => format!("route to {to} via {via}"),
        None => format!("route to {to}, once the node's instance is known"),
    }
}

/// Whether a route leads to the node or to one of its pod CIDRs, or was created for the node.
fn is_about(node: &Node, route: &Route) -> bool {
    let machine = route.next_hop.provider_id.is_some() && route.next_hop.provider_id == node.provider_id;
    machine || route.node_uid.as_deref() == Some(&node.uid) || node.pod_cidrs.contains(&route.destination)
}

fn shown(route: &Route) -> String {
    let state = match route.state {
        State::Active => "ACTIVE",
        State::Pending => "PENDING",
        State::Blackhole => "BLACKHOLE",
    };
    format!("{} to {} via {} {state}, {}", route.vendor_id, route.destination, route.next_hop, route.owner)
}
