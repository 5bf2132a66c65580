//! The registry: every check, one file a family.

mod bud;
mod budget;
mod err;
mod flt;
mod id;
mod ins;
mod lb;
mod lif;
mod rt;
mod sec;

use crate::check::Check;

/// Every check, in the order of families and numbers.
#[must_use]
pub fn all() -> Vec<Check> {
    [
        id::CHECKS,
        err::CHECKS,
        ins::CHECKS,
        lb::CHECKS,
        rt::CHECKS,
        bud::CHECKS,
        flt::CHECKS,
        sec::CHECKS,
        lif::CHECKS,
    ]
    .concat()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::check::{Need, Standing, Tier};

    #[test]
    fn every_check_is_whole() {
        let mut ids = BTreeSet::new();
        for check in all() {
            assert!(ids.insert(check.id), "{} twice", check.id);
            assert!(!check.section.is_empty(), "{} names no section of the contract", check.id);
            assert!(!check.name.contains(' ') && !check.name.is_empty(), "{}: {:?}", check.id, check.name);
            if check.tier == Tier::T2 {
                assert!(check.needs.contains(&Need::Proxy), "{} is of T2 and needs no proxy", check.id);
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

    /// What an adapter is for: who lacks one of these is not tested for it, and that shows as incomplete.
    const BASIC: [&str; 3] = ["instances", "loadbalancers", "routes"];
}
