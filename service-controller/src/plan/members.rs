//! Limits the number of members of a Service's load balancer, which is the number of listeners times the number of nodes.
//!
//! Users choose the ports, and the operator chooses the nodes. The limit therefore applies to new requests of users. An existing load
//! balancer with unchanged ports and node selector still follows the nodes, however many nodes are added.

use std::{fmt, sync::Arc};

use super::{
    Refusal,
    cloud::{Balancer, listeners},
    service::Service,
    wanted::Wanted,
};

/// Factor by which a load balancer may exceed the limit if no listing shows its members.
const UNREAD: usize = 4;

/// A number of members that exceeds the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Members {
    pub(crate) listeners: usize,
    pub(crate) nodes: usize,
    pub(crate) most: usize,
}

impl Members {
    fn all(self) -> usize {
        self.listeners.saturating_mul(self.nodes)
    }

    fn refusal(self) -> Refusal {
        Refusal::new("spec.ports", format!("{self}: use fewer ports, or fewer nodes by node-selector"))
    }
}

impl fmt::Display for Members {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { listeners, nodes, most } = self;
        write!(
            f,
            "{listeners} listeners on {nodes} nodes make {} members, more than {most} (serviceController.maxMembersPerService)",
            self.all()
        )
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Fits,
    /// An existing load balancer that follows the nodes exceeds the limit.
    Grown(Members),
    /// A new request exceeds the limit.
    Refused(Refusal),
    /// The limit is exceeded, and the adapter has not listed yet whether the load balancer exists.
    Unlisted,
}

/// The nodes of a Service, and what is known about its load balancer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Present<'a> {
    /// Number of nodes that the selector of the Service matches.
    pub(crate) nodes: usize,
    /// The last settings that the adapter accepted.
    pub(crate) accepted: Option<&'a Arc<Wanted>>,
    /// The load balancers in the cache. `None`: the cache is not synced.
    pub(crate) seen: Option<&'a [Balancer]>,
}

/// Checks the settings of a Service against the limit `most`. Cost: no calls.
pub(super) fn verdict(service: &Service, wanted: &Wanted, most: usize, present: &Present<'_>) -> Verdict {
    let Present { nodes, accepted, seen } = *present;
    let ports = listeners(&wanted.shape.spec);
    let members = Members { listeners: ports.len(), nodes, most };
    if members.all() <= most {
        return Verdict::Fits;
    }
    let exists = match (accepted, seen) {
        (Some(good), _) => good.selector == wanted.selector && holds(&listeners(&good.shape.spec), &ports),
        (None, Some(seen)) => seen.iter().any(|balancer| is_of(balancer, &ports, members)),
        // The load balancer can exist only if this controller set its finalizer.
        (None, None) if service.finalizer => return Verdict::Unlisted,
        (None, None) => false,
    };
    if exists { Verdict::Grown(members) } else { Verdict::Refused(members.refusal()) }
}

/// Whether a load balancer has these ports and already had many members. Half of the members are sufficient proof, because the cache does
/// not show the load balancer's node selector. Nodes may also have been added while no controller ran. After its start, an adapter may
/// report no members until an ensure reads them. In that case, up to four times the limit is accepted.
fn is_of(balancer: &Balancer, ports: &[String], members: Members) -> bool {
    let known = balancer.listeners.is_empty() || holds(&balancer.listeners, ports);
    let there = usize::try_from(balancer.backends).unwrap_or(usize::MAX);
    let unread = there == 0 && members.all() <= members.most.saturating_mul(UNREAD);
    known && (unread || there.saturating_mul(2) >= members.all())
}

fn holds(existing: &[String], ports: &[String]) -> bool {
    ports.iter().all(|port| existing.contains(port))
}

#[cfg(test)]
mod tests;
