//! Decides which nodes get or lose the shutdown taint, and about which nodes the controller asks the cloud. The code is pure.

use std::time::Duration;

use controller_core::ProviderId;
use jiff::Timestamp;

use crate::{
    absence::Conclusion,
    plan::{Deletion, Instance, Life, Node, Ready, View},
};

#[derive(Clone, Copy, Debug)]
pub(super) struct Facts<'a> {
    pub(super) cloud: View,
    /// The cached instance with the node's provider ID. For a node without provider ID: the instance with the node's name, which is used
    /// only for the taint.
    pub(super) instance: Option<&'a Instance>,
    /// The conclusion from the cloud's answers about this node.
    pub(super) conclusion: Option<&'a Conclusion>,
    /// The provider ID scheme of this cloud, if it is known.
    pub(super) scheme: Option<&'a str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Add,
    Remove,
}

/// Plans the change of the taint. A ready node loses the taint; a node that is not ready gets it if its instance is switched off, unless a
/// label excludes the node. An existing taint stays until the node is ready.
pub(super) fn taint(node: &Node, facts: &Facts<'_>) -> Option<Change> {
    match (node.life.ready, node.life.shutdown) {
        _ if node.life.deleting => None,
        (Ready::True, true) => Some(Change::Remove),
        (Ready::True, false) | (Ready::NotTrue, true) => None,
        (Ready::NotTrue, false) => {
            (node.life.deletion == Deletion::Allowed && is_stopped(facts)).then_some(Change::Add)
        }
    }
}

/// Whether the instance is switched off. A live answer takes precedence over a fresh cache.
fn is_stopped(facts: &Facts<'_>) -> bool {
    match (facts.cloud, facts.instance, facts.conclusion) {
        (View::None, ..) => false,
        (_, _, Some(Conclusion::Exists { stopped })) => *stopped,
        (View::Fresh, Some(instance), _) => instance.stopped,
        (View::Fresh | View::Old, ..) => false,
    }
}

/// Whether to ask the cloud about the node's instance. That is so if the instance may be gone, or if the cache is too old to show that it
/// is switched off.
///
/// A node that a label excludes is neither deleted nor tainted, so the controller does not ask about it.
///
/// The controller asks only by provider ID, and only if the ID has this cloud's scheme, since names prove nothing. It does not ask about
/// very new uninitialised nodes, whose instances the vendor may not show yet.
pub(super) fn absence(node: &Node, facts: &Facts<'_>, now: Timestamp, minimum_age: Duration) -> bool {
    let Life { ready, deleting, deletion, .. } = node.life;
    let may_end = ready == Ready::NotTrue && !deleting && deletion == Deletion::Allowed;
    if !may_end || facts.cloud == View::None {
        return false;
    }
    if !is_of(node, facts.scheme) || (node.is_uninitialised() && !is_older(node, now, minimum_age)) {
        return false;
    }
    match facts.instance {
        None => true,
        Some(instance) if instance.ends => true,
        Some(instance) => instance.stopped && facts.cloud == View::Old && !node.life.shutdown,
    }
}

/// Whether a node that the brake held still shows no sign of life. An unavailable or old cache is not a sign of life. A node that is being
/// deleted, or that a label excludes from deletion, is no longer held.
pub(super) fn is_lifeless(node: &Node, facts: &Facts<'_>) -> bool {
    let is_listed = facts.cloud == View::Fresh && facts.instance.is_some_and(|instance| !instance.ends);
    let Life { ready, deleting, deletion, .. } = node.life;
    ready == Ready::NotTrue && !deleting && deletion == Deletion::Allowed && !is_listed
}

pub(super) fn is_of(node: &Node, scheme: Option<&str>) -> bool {
    let id = node.provider_id.as_deref().and_then(|id| id.parse::<ProviderId>().ok());
    id.is_some_and(|id| Some(id.scheme()) == scheme)
}

/// Whether the node is initialised and its provider ID has another scheme than the given one. Returns false for an invalid provider ID.
pub(super) fn is_of_another(node: &Node, scheme: &str) -> bool {
    let id = node.provider_id.as_deref().and_then(|id| id.parse::<ProviderId>().ok());
    id.is_some_and(|id| id.scheme() != scheme) && !node.is_uninitialised() && !node.life.deleting
}

/// Whether the node has at least this age. Compares the API server's clock with the local clock. A node without a creation time counts as
/// new.
fn is_older(node: &Node, now: Timestamp, minimum_age: Duration) -> bool {
    let age = node.created.and_then(|created| Duration::try_from(now.duration_since(created)).ok());
    age.is_some_and(|age| age >= minimum_age)
}

#[cfg(test)]
mod tests;
