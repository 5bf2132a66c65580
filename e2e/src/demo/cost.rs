//! The cost of a step: the calls that the cloud, or the proxy in front of the cloud, has counted.

use std::collections::BTreeMap;
use std::fmt;

use adapter_sim::simcloud::{Access, Family};
use serde::Serialize;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Operation {
    /// The family of the operation, by its purpose.
    pub(super) family: Family,
    pub(super) access: Access,
    /// The name in the cloud's documentation.
    pub(super) name: String,
}

pub(super) type Counts = BTreeMap<Operation, u64>;

/// Vendor calls.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Cost {
    pub(super) reads: u64,
    pub(super) writes: u64,
    /// Numbers by operation. Operations without calls are absent.
    pub(super) by_operation: BTreeMap<String, u64>,
}

impl Cost {
    /// The calls of these families between two counts.
    pub(super) fn between(before: &Counts, after: &Counts, families: &[Family]) -> Self {
        let mut cost = Self::default();
        for (operation, n) in after.iter().filter(|(it, _)| families.contains(&it.family)) {
            let n = n.saturating_sub(before.get(operation).copied().unwrap_or_default());
            match operation.access {
                _ if n == 0 => continue,
                Access::Read => cost.reads += n,
                Access::Write => cost.writes += n,
            }
            *cost.by_operation.entry(operation.name.clone()).or_default() += n;
        }
        cost
    }

    pub(super) fn calls_of(&self, name: &str) -> u64 {
        self.by_operation.get(name).copied().unwrap_or_default()
    }

    /// Formats the operations: `ListInstances 1, BatchRoutes 2`.
    pub(super) fn each(&self) -> String {
        let each: Vec<_> = self.by_operation.iter().map(|(name, n)| format!("{name} {n}")).collect();
        each.join(", ")
    }
}

/// Formats the cost: `reads 1, writes 2 (ListInstances 1, BatchRoutes 2)`.
impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.by_operation.is_empty() {
            return f.write_str("no vendor calls");
        }
        write!(f, "vendor reads {}, writes {} ({})", self.reads, self.writes, self.each())
    }
}

#[cfg(test)]
mod tests {
    use adapter_sim::simcloud::{Access, Family};

    use super::{Cost, Counts, Operation};

    #[test]
    fn cost_is_the_difference_of_two_counts() {
        let operation = |family, access, name: &str| Operation { family, access, name: name.to_owned() };
        let list = operation(Family::Compute, Access::Read, "ListInstances");
        let create = operation(Family::Network, Access::Write, "BatchRoutes");
        let project = operation(Family::Identity, Access::Read, "GetProject");
        let before = Counts::from([(list.clone(), 2), (project.clone(), 1)]);
        let after = Counts::from([(list, 3), (project, 1), (create, 2)]);
        let all = [Family::Compute, Family::Identity, Family::Network];
        let cost = Cost::between(&before, &after, &all);
        assert_eq!(cost.to_string(), "vendor reads 1, writes 2 (BatchRoutes 2, ListInstances 1)");
        assert_eq!((cost.calls_of("BatchRoutes"), cost.calls_of("GetProject")), (2, 0));
        let compute = Cost::between(&before, &after, &[Family::Compute]);
        assert_eq!(compute.to_string(), "vendor reads 1, writes 0 (ListInstances 1)");
        assert_eq!(Cost::between(&after, &after, &all).to_string(), "no vendor calls");
    }
}
