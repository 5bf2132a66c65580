//! The memory targets of each process.

use super::result::{Spent, Target};

/// The targets in MiB, at 5,000 nodes and 1,000 Services.
const BOUNDS: [(&str, f64); 4] = [
    ("node-controller", 40.0),
    ("service-controller", 60.0),
    ("route-controller", 40.0),
    (crate::ADAPTER, 150.0),
];

pub(super) fn targets(spent: &Spent) -> Vec<Target> {
    let target = |(name, bound): (&str, f64)| {
        let peak = spent.processes.get(name)?.peak_mib;
        Some(Target::at_most(format!("peak memory of {name}"), peak, bound, "MiB"))
    };
    BOUNDS.into_iter().filter_map(target).collect()
}

#[cfg(test)]
mod tests {
    use super::super::result::{Spent, Usage};
    use super::targets;

    #[test]
    fn known_processes_have_memory_targets() {
        let usage = Usage { peak_mib: 50.0, ..Usage::default() };
        let names = ["node-controller", "service-controller", "cloud-controller-manager"];
        let spent = Spent { processes: names.map(|it| (it.to_owned(), usage)).into(), ..Spent::default() };
        assert_eq!(targets(&spent).iter().map(|it| it.met).collect::<Vec<_>>(), [false, true]);
    }
}
