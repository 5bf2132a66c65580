//! Pure: which node gets or loses the shutdown taint, and about which the cloud is asked whether its machine is gone.

use std::time::Duration;

use controller_core::ProviderId;
use jiff::Timestamp;

use super::absence::Heard;
use crate::plan::{Instance, Node, Ready};

/// What is known about a node's machine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts<'a> {
    pub(super) cloud: View,
    /// What the mirror of the cloud shows under the node's provider ID; for the taint alone, that of a node without one under its name.
    pub(super) instance: Option<&'a Instance>,
    /// What the cloud answered when it was asked about this very node.
    pub(super) heard: Option<&'a Heard>,
    /// The scheme of this cloud's provider IDs, if it is known.
    pub(super) scheme: Option<&'a str>,
}

/// How good the mirror of the cloud is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum View {
    /// Not complete, or the adapter is not there: nothing is concluded.
    None,
    /// Complete, but the vendor has answered no listing for a while: what it shows has been there, and may be otherwise by now.
    Old,
    /// Complete and young.
    Fresh,
}

/// What becomes of the shutdown taint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Add,
    Remove,
}

/// A ready node loses the taint, one whose machine is switched off gets it. An old taint stays until the node is ready.
pub(super) fn taint(node: &Node, facts: &Facts<'_>) -> Option<Change> {
    match (node.life.ready, node.life.shutdown) {
        _ if node.life.deleting => None,
        (Ready::True, true) => Some(Change::Remove),
        (Ready::True, false) | (Ready::NotTrue, true) => None,
        (Ready::NotTrue, false) => is_stopped(facts).then_some(Change::Add),
    }
}

/// A live answer counts as much as a young mirror.
fn is_stopped(facts: &Facts<'_>) -> bool {
    match (facts.cloud, facts.instance, facts.heard) {
        (View::None, ..) => false,
        (_, _, Some(Heard::Exists { stopped })) => *stopped,
        (View::Fresh, Some(instance), _) => instance.stopped,
        (View::Fresh | View::Old, ..) => false,
    }
}

/// Whether the cloud is to be asked what became of the node's machine: it may be gone, or the mirror is too old to tell that it is
/// switched off.
///
/// By the node's provider ID alone, and only if that is this cloud's own: names prove nothing. A machine whose node is not initialised
/// may be so new that the vendor does not show it yet.
pub(super) fn absence(node: &Node, facts: &Facts<'_>, now: Timestamp, minimum_age: Duration) -> bool {
    if node.life.ready == Ready::True || node.life.deleting || facts.cloud == View::None {
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

/// Whether there is still no sign of life of a node that the brake held. That nothing can be seen, or that the mirror is too old to say
/// it, is none; and whom somebody deletes is not held any more.
pub(super) fn is_lifeless(node: &Node, facts: &Facts<'_>) -> bool {
    let is_listed = facts.cloud == View::Fresh && facts.instance.is_some_and(|instance| !instance.ends);
    node.life.ready == Ready::NotTrue && !node.life.deleting && !is_listed
}

/// Whether the node says that it runs on a machine of the cloud with this scheme.
pub(super) fn is_of(node: &Node, scheme: Option<&str>) -> bool {
    let id = node.provider_id.as_deref().and_then(|id| id.parse::<ProviderId>().ok());
    id.is_some_and(|id| Some(id.scheme()) == scheme)
}

/// Whether the node, which is initialised, says that it runs on a machine of another cloud than that with this scheme. What is no provider
/// ID says nothing.
pub(super) fn is_of_another(node: &Node, scheme: &str) -> bool {
    let id = node.provider_id.as_deref().and_then(|id| id.parse::<ProviderId>().ok());
    id.is_some_and(|id| id.scheme() != scheme) && !node.is_uninitialised() && !node.life.deleting
}

/// By the API server's clock, which wrote the creation time, and ours. A node without a creation time is as young as can be.
fn is_older(node: &Node, now: Timestamp, minimum_age: Duration) -> bool {
    let age = node.created.and_then(|created| Duration::try_from(now.duration_since(created)).ok());
    age.is_some_and(|age| age >= minimum_age)
}

#[cfg(test)]
mod tests;
