//! What a step cost, in calls that the cloud counted itself.

use std::collections::BTreeMap;
use std::fmt;

use adapter_sim::simcloud::counts::Counts;
use adapter_sim::simcloud::{Access, Family, Operation};
use anyhow::ensure;
use serde::Serialize;

/// Initialising any number of nodes at once costs no more calls than this, as long as they fit on a few pages.
pub(super) const INITIALISATION_MAX: u64 = 5;

/// Vendor calls.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Cost {
    pub(super) reads: u64,
    pub(super) writes: u64,
    /// Operations without calls are absent.
    pub(super) by_operation: BTreeMap<Operation, u64>,
}

impl Cost {
    /// What came in between.
    pub(super) fn between(before: &Counts, after: &Counts) -> Self {
        let calls =
            |(&operation, &n): (&Operation, &u64)| (operation, n.saturating_sub(before.of(operation)));
        after.by_operation.iter().map(calls).collect()
    }

    /// Only the calls of these families.
    pub(super) fn of(&self, families: &[Family]) -> Self {
        let of = |operation: &Operation| families.contains(&operation.family());
        self.by_operation.iter().filter(|(operation, _)| of(operation)).map(|(&it, &n)| (it, n)).collect()
    }

    pub(super) fn calls(&self) -> u64 {
        self.reads.saturating_add(self.writes)
    }

    pub(super) fn calls_of(&self, operation: Operation) -> u64 {
        self.by_operation.get(&operation).copied().unwrap_or_default()
    }
}

impl FromIterator<(Operation, u64)> for Cost {
    fn from_iter<I: IntoIterator<Item = (Operation, u64)>>(calls: I) -> Self {
        let mut cost = Self::default();
        for (operation, n) in calls.into_iter().filter(|&(_, n)| n > 0) {
            match operation.access() {
                Access::Read => cost.reads = cost.reads.saturating_add(n),
                Access::Write => cost.writes = cost.writes.saturating_add(n),
            }
            cost.by_operation.insert(operation, n);
        }
        cost
    }
}

/// `3 vendor calls: 1 read, 2 writes (ListInstances 1, BatchRoutes 2)`.
impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.calls() == 0 {
            return f.write_str("0 vendor calls");
        }
        let (calls, reads, writes) =
            (count(self.calls(), "vendor call"), count(self.reads, "read"), count(self.writes, "write"));
        let each: Vec<_> =
            self.by_operation.iter().map(|(operation, n)| format!("{operation} {n}")).collect();
        write!(f, "{calls}: {reads}, {writes} ({})", each.join(", "))
    }
}

/// `1 read`, `2 reads`.
pub(super) fn count(n: u64, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// Whether the nodes' initialisation kept its promise. Routes, which begin meanwhile, are counted with their own step.
pub(super) fn check_initialisation(all: &Cost) -> anyhow::Result<Cost> {
    let initialisation = all.of(&[Family::Compute, Family::Identity]);
    let writes = all.of(&[Family::Compute, Family::Identity, Family::Loadbalancer]).writes;
    ensure!(
        initialisation.calls() <= INITIALISATION_MAX && writes == 0,
        "the nodes should cost at most {INITIALISATION_MAX} vendor calls and no writes, and cost {initialisation}; \
         everything meanwhile: {all}"
    );
    Ok(initialisation)
}

#[cfg(test)]
mod tests {
    use adapter_sim::simcloud::counts::Counts;
    use adapter_sim::simcloud::{Family, Operation};

    use super::{Cost, check_initialisation};

    fn counts(calls: &[(Operation, u64)]) -> Counts {
        Counts { by_operation: calls.iter().copied().collect(), ..Counts::default() }
    }

    #[test]
    fn a_cost_is_what_came_between_two_looks() {
        let before = counts(&[(Operation::ListInstances, 2), (Operation::GetProject, 1)]);
        let after =
            counts(&[(Operation::ListInstances, 3), (Operation::GetProject, 1), (Operation::BatchRoutes, 2)]);
        let cost = Cost::between(&before, &after);
        assert_eq!(cost.to_string(), "3 vendor calls: 1 read, 2 writes (ListInstances 1, BatchRoutes 2)");
        assert_eq!(
            cost.of(&[Family::Compute]).to_string(),
            "1 vendor call: 1 read, 0 writes (ListInstances 1)"
        );
        assert_eq!(Cost::between(&after, &after).to_string(), "0 vendor calls");
    }

    #[test]
    fn initialisation_may_cost_five_reads_and_the_routes_are_not_its_own() {
        let cost = |calls: &[(Operation, u64)]| calls.iter().copied().collect::<Cost>();
        let good = cost(&[(Operation::ListInstances, 5), (Operation::BatchRoutes, 1)]);
        assert_eq!(check_initialisation(&good).unwrap().calls(), 5);
        for bad in [cost(&[(Operation::GetInstance, 6)]), cost(&[(Operation::UpdateMembers, 1)])] {
            let error = check_initialisation(&bad).unwrap_err().to_string();
            assert!(error.contains("at most 5 vendor calls and no writes"), "{error}");
        }
    }
}
