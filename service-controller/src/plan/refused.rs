//! Decides how the controller continues after the adapter refused the settings of a Service.

use std::collections::BTreeSet;

use super::{
    Ask, Facts,
    as_it_is::{Existing, FAMILIES, addresses_of},
    families::family_of,
    memory::Memory,
    service::Service,
    stale_id::noted,
    wanted::Wanted,
};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Refused {
    /// Fields of the contract that cannot change on the existing load balancer. All other fields can be applied.
    pub(crate) fixed: BTreeSet<String>,
    /// Whether the load balancer that the Service names does not exist, or the Service already has another load balancer.
    pub(crate) id: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reaction {
    /// Request only the address family of the existing load balancer, because the load balancer cannot get the preferred second family.
    /// Nothing is reported.
    Narrow,
    /// Ignore the ID recorded by another controller, because the Service cannot have that load balancer. Nothing is reported.
    IgnoreId(String),
    /// Report the refusal, and continue with other settings at once.
    FallBack,
    /// The adapter also refuses the settings that replace the refused ones. The first refusal was reported, and the previous settings are
    /// in force again.
    Restore,
    Report,
}

/// Decides what to do after a refusal of `ask`, and changes the settings in force accordingly.
pub(crate) fn react(
    service: &Service,
    memory: &mut Memory,
    facts: &Facts<'_>,
    ask: &Ask,
    refused: &Refused,
) -> Reaction {
    if ask.stands_in {
        return if memory.settings.restore() { Reaction::Restore } else { Reaction::Report };
    }
    if refused.fixed.contains(FAMILIES)
        && let Some(features) = facts.features
        && memory.narrow(ask, family_of(service, facts.cloud), service, features)
    {
        return Reaction::Narrow;
    }
    if let Some(id) = noted(service).filter(|_| refused.id) {
        memory.settings.ignored_id = Some(id.to_owned());
        return Reaction::IgnoreId(id.to_owned());
    }
    memory.refuse(ask);
    if replaces(service, memory, facts, ask, refused) || memory.settings.accepted.is_some() {
        Reaction::FallBack
    } else {
        Reaction::Report
    }
}

/// Whether the settings can be adapted to those attributes of the existing load balancer that cannot change.
fn replaces(service: &Service, memory: &mut Memory, facts: &Facts<'_>, ask: &Ask, refused: &Refused) -> bool {
    let Some(features) = facts.features.filter(|_| !refused.fixed.is_empty()) else { return false };
    let addresses = addresses_of(service, facts.cloud);
    memory.replace(&ask.wanted.shape, |memory| {
        let good = memory.settings.accepted.as_ref().map(|good| &good.shape.spec);
        let (fixed, only) = (&refused.fixed, memory.settings.family());
        let existing = Existing { fixed, addresses: &addresses, good, only };
        Wanted::as_it_is(service, facts.defaults, features, &existing)
    })
}
