//! How many members the load balancer of one Service may have: listeners times nodes; and how many entries in its lists of source ranges:
//! listeners times ranges. Pure.
//!
//! A user chooses the ports, and the operator the nodes. So the bound is about what a user newly asks for: a load balancer that exists
//! goes on following the nodes, however many come, as long as its ports and its node selector stay as they are.

use std::fmt;

use super::{
    Refusal,
    cloud::{Balancer, listeners},
    memory::Memory,
    service::Service,
    wanted::Wanted,
};

/// How many times the bound a load balancer may have whose members no listing shows.
const UNREAD: usize = 4;

/// The members that a Service asks for where they are more than the bound.
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
            "{listeners} listeners on {nodes} nodes are {} members, more than {most} (--max-members-per-service)",
            self.all()
        )
    }
}

/// What follows from the bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The members are within the bound.
    Fits,
    /// They are more, and of a load balancer that exists and follows the nodes.
    Grown(Members),
    /// They are more, and are newly asked for.
    Refused(Refusal),
    /// They are more, and the adapter has not listed yet whether the load balancer exists.
    Unlisted,
}

/// Judges a wish for the load balancer of a Service on this many nodes. `seen`: what the adapter's mirror shows of it, `None` if it is not
/// complete. Cost: no calls.
pub(super) fn verdict(
    service: &Service,
    wanted: &Wanted,
    (nodes, most): (usize, usize),
    (memory, seen): (&Memory, Option<&[Balancer]>),
) -> Verdict {
    let ports = listeners(&wanted.shape.spec);
    let members = Members { listeners: ports.len(), nodes, most };
    if members.all() <= most {
        return Verdict::Fits;
    }
    let exists = match (&memory.good, seen) {
        (Some(good), _) => good.selector == wanted.selector && holds(&listeners(&good.shape.spec), &ports),
        (None, Some(seen)) => seen.iter().any(|balancer| is_of(balancer, &ports, members)),
        // Only one that this controller has worked on can exist.
        (None, None) if service.finalizer => return Verdict::Unlisted,
        (None, None) => false,
    };
    if exists { Verdict::Grown(members) } else { Verdict::Refused(members.refusal()) }
}

/// Refuses more source ranges than the bound on members: clouds take them with each listener.
pub(super) fn check_ranges(ports: usize, ranges: usize, most: usize) -> Option<Refusal> {
    let all = ports.saturating_mul(ranges);
    (all > most).then(|| {
        let why = format!(
            "{ranges} source ranges for each of {ports} ports are {all}, more than {most} (--max-members-per-service): use fewer ranges, \
             or fewer ports"
        );
        Refusal::new("spec.loadBalancerSourceRanges", why)
    })
}

/// Whether a load balancer has these ports already, and was not small before. Nothing shows which nodes it selected: half of the members
/// are taken as proof that its node selector is the same, since nodes may have come while no controller worked. An adapter that reads
/// members only when it is asked for a load balancer shows none after its start: that is proof of a few times the bound, and not of more.
fn is_of(balancer: &Balancer, ports: &[String], members: Members) -> bool {
    let known = balancer.listeners.is_empty() || holds(&balancer.listeners, ports);
    let there = usize::try_from(balancer.backends).unwrap_or(usize::MAX);
    let unread = there == 0 && members.all() <= members.most.saturating_mul(UNREAD);
    known && (unread || there.saturating_mul(2) >= members.all())
}

/// Whether all these ports are among those that exist.
fn holds(existing: &[String], ports: &[String]) -> bool {
    ports.iter().all(|port| existing.contains(port))
}

#[cfg(test)]
mod tests;
