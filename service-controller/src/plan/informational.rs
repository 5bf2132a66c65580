//! Decides which informational Events a reconcile emits. This module is pure.

use super::{
    Fact, Facts, has_load_balancers,
    memory::Memory,
    service::{Role, Service},
};

/// Returns the informational Events that are due, for a Service that this adapter serves. `builds`: whether the plan creates or changes a
/// load balancer.
pub(crate) fn informational_facts(
    service: &Service,
    memory: &mut Memory,
    facts: &Facts<'_>,
    builds: bool,
) -> Vec<Fact> {
    if service.role() != Role::Wanted || !has_load_balancers(facts) {
        return Vec::new();
    }
    let unnamed = facts.validated.wanted.as_ref().map(|wanted| wanted.unnamed);
    let mut facts_to_emit = memory.reported.informational_facts(&service.foreign, unnamed, builds);
    facts_to_emit.extend(memory.reported.report_members(facts.validated.grown, facts.now));
    facts_to_emit
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::plan::{
        annotations::settings::Defaults,
        features::{Features, name},
        foreign::Foreign,
        service::{Class, Kind},
        targets::Targets,
        validated::Validated,
    };

    #[test]
    fn only_served_services_get_informational_events() {
        let ignored = vec!["metallb.io/address-pool".to_owned()];
        let foreign = Foreign { ignored: ignored.clone(), ..Foreign::default() };
        let served = Service { kind: Kind::LoadBalancer, foreign, ..Service::default() };
        let other = Service { class: Class::Others, ..served.clone() };
        let (able, unable) = (Features::from([name::LOAD_BALANCERS]), Features::default());
        for (case, service, features, want) in [
            ("served", &served, Some(&able), vec![Fact::Ignored(ignored)]),
            ("another class", &other, Some(&able), vec![]),
            ("an adapter without load balancers", &served, Some(&unable), vec![]),
            ("an unreachable adapter", &served, None, vec![]),
        ] {
            let facts = Facts {
                validated: &Validated::default(),
                targets: &Targets::default(),
                defaults: &Defaults::default(),
                features,
                cloud: None,
                now: Duration::ZERO,
            };
            assert_eq!(informational_facts(service, &mut Memory::default(), &facts, true), want, "{case}");
        }
    }
}
