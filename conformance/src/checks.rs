//! The registry of all checks. Each family has its own file.

mod budget;
mod budgets;
mod errors;
mod faults;
mod identity;
mod instances;
mod lifecycle;
mod load_balancers;
mod prelude;
mod routes;
mod security;

use crate::{
    check::{Check, Need},
    hooks::Hook,
};

const BALANCERS: Need = Need::Capability("loadbalancers");
const INSTANCES: Need = Need::Capability("instances");
const ROUTES: Need = Need::Capability("routes");
const CREATE: Need = Need::Hook(Hook::CreateInstances);
const DELETE: Need = Need::Hook(Hook::DeleteInstances);
const KILL: Need = Need::Hook(Hook::KillAdapter);
const START: Need = Need::Hook(Hook::StartAdapter);
const LIMITS: Need = Need::Param("limits.buckets");

/// Every check, in the order of families and numbers.
pub fn all() -> Vec<Check> {
    [
        identity::CHECKS,
        errors::CHECKS,
        instances::CHECKS,
        load_balancers::CHECKS,
        routes::CHECKS,
        budgets::CHECKS,
        faults::CHECKS,
        security::CHECKS,
        lifecycle::CHECKS,
    ]
    .concat()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::check::{Standing, Tier};

    #[test]
    fn every_check_is_complete() {
        let mut ids = BTreeSet::new();
        for check in all() {
            assert!(ids.insert(check.id), "{} twice", check.id);
            assert!(!check.section.is_empty(), "{} names no section of the contract", check.id);
            assert!(!check.name.contains(' ') && !check.name.is_empty(), "{}: {:?}", check.id, check.name);
            if check.tier == Tier::T2 {
                assert!(check.needs.contains(&Need::Proxy), "{} is a T2 check without a proxy", check.id);
            }
            let gated = check
                .needs
                .iter()
                .any(|need| matches!(need, Need::Capability(name) if !BASIC.contains(name)));
            assert!(
                !gated || check.standing == Standing::Capability,
                "{} needs a capability and is mandatory",
                check.id
            );
        }
    }

    /// The main capabilities. If the adapter lacks one of them, the checks that need this capability are skipped, and the verdict is
    /// incomplete.
    const BASIC: [&str; 3] = ["instances", "loadbalancers", "routes"];
}
