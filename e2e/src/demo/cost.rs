//! The cost of a step: the calls that the cloud, or the proxy in front of it, has counted.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use adapter_sim::simcloud::{Access, Family};
use anyhow::ensure;
use serde::{Serialize, Serializer};

/// An operation of the cloud's API. Serialised as its name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Operation {
    /// The family of the operation, by its purpose.
    pub(super) family: Family,
    pub(super) access: Access,
    /// The name in the cloud's documentation.
    pub(super) name: Cow<'static, str>,
}

/// The number of calls of each operation.
pub(super) type Counts = BTreeMap<Operation, u64>;

/// Vendor calls.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Cost {
    pub(super) reads: u64,
    pub(super) writes: u64,
    /// Numbers by operation. Operations without calls are absent.
    pub(super) by_operation: BTreeMap<Operation, u64>,
}

impl Cost {
    /// The calls between two counts.
    pub(super) fn between(before: &Counts, after: &Counts) -> Self {
        let calls = |(operation, n): (&Operation, &u64)| {
            let earlier = before.get(operation).copied().unwrap_or_default();
            (operation.clone(), n.saturating_sub(earlier))
        };
        after.iter().map(calls).collect()
    }

    /// The calls of these families only.
    pub(super) fn of(&self, families: &[Family]) -> Self {
        let of = |operation: &Operation| families.contains(&operation.family);
        let calls = self.by_operation.iter().filter(|(operation, _)| of(operation));
        calls.map(|(operation, &n)| (operation.clone(), n)).collect()
    }

    pub(super) fn calls(&self) -> u64 {
        self.reads.saturating_add(self.writes)
    }

    /// The number of calls of an operation.
    pub(super) fn calls_of(&self, name: &str) -> u64 {
        self.by_operation.iter().filter(|(operation, _)| operation.name == name).map(|(_, n)| n).sum()
    }

    /// Formats the operations: `ListInstances 1, BatchRoutes 2`.
    pub(super) fn each(&self) -> String {
        let each = self.by_operation.iter().map(|(operation, n)| format!("{} {n}", operation.name));
        each.collect::<Vec<_>>().join(", ")
    }
}

impl Serialize for Operation {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.name)
    }
}

impl FromIterator<(Operation, u64)> for Cost {
    fn from_iter<I: IntoIterator<Item = (Operation, u64)>>(calls: I) -> Self {
        let mut cost = Self::default();
        for (operation, n) in calls.into_iter().filter(|&(_, n)| n > 0) {
            match operation.access {
                Access::Read => cost.reads = cost.reads.saturating_add(n),
                Access::Write => cost.writes = cost.writes.saturating_add(n),
            }
            cost.by_operation.insert(operation, n);
        }
        cost
    }
}

/// Formats the cost: `3 vendor calls: 1 read, 2 writes (ListInstances 1, BatchRoutes 2)`.
impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.calls() == 0 {
            return f.write_str("0 vendor calls");
        }
        let (calls, reads, writes) =
            (count(self.calls(), "vendor call"), count(self.reads, "read"), count(self.writes, "write"));
        write!(f, "{calls}: {reads}, {writes} ({})", self.each())
    }
}

/// Formats a count: `1 read`, `2 reads`.
pub(super) fn count(n: u64, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// Checks the cost of initialising nodes. Route calls, which begin at the same time, are counted in their own step.
pub(super) fn check_initialisation(all: &Cost, max: u64) -> anyhow::Result<Cost> {
    let initialisation = all.of(&[Family::Compute, Family::Identity]);
    let writes = all.of(&[Family::Compute, Family::Identity, Family::Loadbalancer]).writes;
    ensure!(
        initialisation.calls() <= max && writes == 0,
        "initialising the nodes should cost at most {max} vendor calls and no writes, but cost \
         {initialisation}; all calls during it: {all}"
    );
    Ok(initialisation)
}

#[cfg(test)]
pub(super) mod tests {
    use adapter_sim::simcloud::{Access, Family};

    use super::{Cost, Counts, Operation, check_initialisation};

    const LIST: Operation = operation(Family::Compute, Access::Read, "ListInstances");
    const LAY: Operation = operation(Family::Network, Access::Write, "BatchRoutes");

    const fn operation(family: Family, access: Access, name: &'static str) -> Operation {
        Operation { family, access, name: std::borrow::Cow::Borrowed(name) }
    }

    /// One read and two writes.
    pub(in super::super) fn some() -> Cost {
        [(LIST, 1), (LAY, 2)].into_iter().collect()
    }

    #[test]
    fn cost_is_the_difference_of_two_counts() {
        let project = operation(Family::Identity, Access::Read, "GetProject");
        let before = Counts::from([(LIST, 2), (project.clone(), 1)]);
        let after = Counts::from([(LIST, 3), (project, 1), (LAY, 2)]);
        let cost = Cost::between(&before, &after);
        assert_eq!(cost.to_string(), "3 vendor calls: 1 read, 2 writes (ListInstances 1, BatchRoutes 2)");
        assert_eq!((cost.calls_of("BatchRoutes"), cost.calls_of("GetProject")), (2, 0));
        assert_eq!(
            cost.of(&[Family::Compute]).to_string(),
            "1 vendor call: 1 read, 0 writes (ListInstances 1)"
        );
        assert_eq!(Cost::between(&after, &after).to_string(), "0 vendor calls");
    }

    #[test]
    fn initialisation_limit_does_not_include_routes() {
        let good: Cost = [(LIST, 5), (LAY, 1)].into_iter().collect();
        assert_eq!(check_initialisation(&good, 5).unwrap().calls(), 5);
        let write = operation(Family::Loadbalancer, Access::Write, "UpdateMembers");
        for bad in [(LIST, 6), (write, 1)] {
            let error = check_initialisation(&[bad].into_iter().collect(), 5).unwrap_err().to_string();
            assert!(error.contains("at most 5 vendor calls and no writes"), "{error}");
        }
    }
}
