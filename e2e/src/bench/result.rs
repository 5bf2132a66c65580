//! The measurements as data, from which the JSON and the page are rendered.

use std::collections::BTreeMap;
use std::time::Duration;

use adapter_sim::simcloud::counts::Counts;
use serde::{Deserialize, Serialize};

use super::machine::Machine;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Report {
    /// The host.
    pub(super) machine: Machine,
    pub(super) command: String,
    /// The default size of the cluster.
    pub(super) size: Size,
    /// The scenarios, in the order of the measurements.
    pub(super) rows: Vec<Row>,
}

/// The size of the cluster, and the duration of measurements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Size {
    pub(super) nodes: usize,
    pub(super) services: usize,
    /// The number of nodes behind load balancers.
    pub(super) members: usize,
    pub(super) seconds: u64,
}

/// The measured system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Who {
    #[default]
    Ours,
    /// The peer, a cloud controller manager in Go, with its default settings.
    Peer,
    /// The peer with ten workers instead of one.
    PeerConcurrent,
}

impl Who {
    pub(super) const fn words(self) -> &'static str {
        match self {
            Self::Ours => "ours",
            Self::Peer => "peer",
            Self::PeerConcurrent => "peer, 10 workers",
        }
    }
}

/// The result of a scenario.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Row {
    /// The name of the scenario on the command line.
    pub(super) scenario: String,
    pub(super) who: Who,
    /// A sentence that describes the scenario.
    pub(super) title: String,
    /// The size of the cluster, if it differs from the report's.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) size: Option<Size>,
    /// The load of the host when the scenario began, averaged over one minute.
    pub(super) load: f64,
    pub(super) spent: Spent,
    pub(super) waits: BTreeMap<String, Waits>,
    pub(super) targets: Vec<Target>,
    /// Further remarks.
    pub(super) notes: Vec<String>,
    /// The error, if the scenario could not be measured.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) failed: Option<String>,
}

impl Row {
    pub(super) fn is_met(&self) -> bool {
        self.failed.is_none() && self.targets.iter().all(|target| target.met)
    }
}

/// The cost of a scenario.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Spent {
    pub(super) seconds: f64,
    pub(super) vendor: Calls,
    /// Writes to the API server by process, then by verb and resource. Leases are left out.
    pub(super) api_writes: BTreeMap<String, BTreeMap<String, u64>>,
    pub(super) processes: BTreeMap<String, Usage>,
}

impl Spent {
    pub(super) fn api_total(&self) -> u64 {
        self.api_writes.values().flat_map(BTreeMap::values).sum()
    }
}

/// Vendor calls.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Calls {
    pub(super) reads: u64,
    pub(super) writes: u64,
    pub(super) throttled: u64,
    /// Calls by operation. Operations without calls are absent.
    pub(super) by_operation: BTreeMap<String, u64>,
    pub(super) by_family: BTreeMap<String, u64>,
}

impl Calls {
    /// The calls between two readings of the counters.
    pub(super) fn between(before: &Counts, after: &Counts) -> Self {
        let status = |counts: &Counts| counts.by_status.get("429").copied().unwrap_or_default();
        Self {
            reads: after.reads.saturating_sub(before.reads),
            writes: after.writes.saturating_sub(before.writes),
            throttled: status(after).saturating_sub(status(before)),
            by_operation: more(&before.by_operation, &after.by_operation),
            by_family: more(&before.by_family, &after.by_family),
        }
    }

    pub(super) fn total(&self) -> u64 {
        self.reads.saturating_add(self.writes)
    }

    pub(super) fn of(&self, operation: &str) -> u64 {
        self.by_operation.get(operation).copied().unwrap_or_default()
    }

    pub(super) fn families(&self, families: &[&str]) -> u64 {
        families.iter().filter_map(|family| self.by_family.get(*family)).sum()
    }
}

fn more<K: Ord + ToString>(before: &BTreeMap<K, u64>, after: &BTreeMap<K, u64>) -> BTreeMap<String, u64> {
    let more = |(key, n): (&K, &u64)| {
        (key.to_string(), n.saturating_sub(before.get(key).copied().unwrap_or_default()))
    };
    after.iter().map(more).filter(|&(_, n)| n > 0).collect()
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Usage {
    /// Resident memory at the end of the measurement.
    pub(super) rss_mib: f64,
    pub(super) peak_mib: f64,
    pub(super) cpu_seconds: f64,
}

/// How long users waited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Waits {
    pub(super) n: usize,
    pub(super) p50: f64,
    pub(super) p99: f64,
    pub(super) max: f64,
}

impl Waits {
    pub(super) fn of(mut all: Vec<Duration>) -> Self {
        all.sort_unstable();
        let at = |percent: usize| {
            let rank = all.len().saturating_mul(percent).div_ceil(100).saturating_sub(1);
            all.get(rank).map_or(0.0, Duration::as_secs_f64)
        };
        Self { n: all.len(), p50: at(50), p99: at(99), max: at(100) }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Target {
    /// The name of the figure.
    pub(super) what: String,
    /// The measured value.
    pub(super) figure: String,
    /// The bound.
    pub(super) bound: String,
    pub(super) met: bool,
}

impl Target {
    pub(super) fn at_most(what: impl Into<String>, figure: f64, bound: f64, unit: &str) -> Self {
        Self {
            what: what.into(),
            figure: quantity(figure, unit),
            bound: format!("<= {}", quantity(bound, unit)),
            met: figure <= bound,
        }
    }

    pub(super) fn at_least(what: impl Into<String>, figure: f64, bound: f64, unit: &str) -> Self {
        let bound_text = format!(">= {}", quantity(bound, unit));
        Self { what: what.into(), figure: quantity(figure, unit), bound: bound_text, met: figure >= bound }
    }

    pub(super) fn count(what: impl Into<String>, figure: u64, bound: u64) -> Self {
        let (what, met) = (what.into(), figure <= bound);
        let bound = if bound == 0 { "0".to_owned() } else { format!("<= {bound}") };
        Self { what, figure: figure.to_string(), bound, met }
    }
}

/// Formats a value: `12`, `1.25 s`, `38.5 MiB`.
pub(super) fn quantity(number: f64, unit: &str) -> String {
    let text = if number.abs() >= 100.0 { format!("{number:.0}") } else { format!("{number:.2}") };
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    if unit.is_empty() { text.to_owned() } else { format!("{text} {unit}") }
}

#[cfg(test)]
mod tests {
    use adapter_sim::simcloud::{Family, Operation};

    use super::{BTreeMap, Calls, Counts, Duration, Target, Waits, quantity};

    #[test]
    fn calls_between_two_readings_are_counted() {
        let before = Counts {
            reads: 2,
            by_operation: [(Operation::ListInstances, 2)].into(),
            by_family: [(Family::Compute, 2)].into(),
            ..Counts::default()
        };
        let mut after = before.clone();
        after.writes = 3;
        after.by_operation.insert(Operation::SetMembers, 3);
        after.by_family.insert(Family::Loadbalancer, 3);
        after.by_status.insert("429".to_owned(), 1);
        let calls = Calls::between(&before, &after);
        assert_eq!((calls.reads, calls.writes, calls.throttled, calls.total()), (0, 3, 1, 3));
        assert_eq!(calls.by_operation, BTreeMap::from([("SetMembers".to_owned(), 3)]));
        assert_eq!((calls.of("SetMembers"), calls.of("ListInstances")), (3, 0));
        assert_eq!((calls.families(&["loadbalancer", "compute"]), calls.families(&["compute"])), (3, 0));
    }

    #[test]
    fn waits_have_nearest_rank_percentiles() {
        let waits = Waits::of((1..=200).rev().map(Duration::from_secs).collect());
        assert_eq!(waits, Waits { n: 200, p50: 100.0, p99: 198.0, max: 200.0 });
        let one = Waits { n: 1, p50: 7.0, p99: 7.0, max: 7.0 };
        assert_eq!(Waits::of(vec![Duration::from_secs(7)]), one);
        assert_eq!(Waits::of(Vec::new()), Waits::default());
    }

    #[test]
    fn target_is_met_up_to_its_bound() {
        assert!(Target::at_most("memory", 40.0, 40.0, "MiB").met);
        let missed = Target::at_most("memory", 40.25, 40.0, "MiB");
        assert_eq!((missed.met, &*missed.figure, &*missed.bound), (false, "40.25 MiB", "<= 40 MiB"));
        assert!(Target::count("writes", 0, 0).met && !Target::count("writes", 1, 0).met);
        assert!(Target::at_least("used", 0.95, 0.95, "").met && !Target::at_least("used", 0.9, 0.95, "").met);
    }

    #[test]
    fn numbers_have_few_digits() {
        assert_eq!(
            [0.0, 12.0, 1.234, 1234.5].map(|it| quantity(it, "s")),
            ["0 s", "12 s", "1.23 s", "1234 s"]
        );
    }
}
