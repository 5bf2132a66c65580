//! Writes `docs/benchmarks.md` from the results of runs. This module contains only pure functions.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::ops::RangeInclusive;

use clap::ValueEnum as _;
use e2e_tools::bench::Scenario;

use super::causes::cause;
use super::numbers::of_count;
use super::result::{Report, Row, Size, Target, Usage, Who, quantity};

const HEAD: &str = "\
# Benchmarks

<!-- Written by `cargo xtask bench scale --write-docs FILE...` from the results of runs. -->

This page shows what the controllers and the adapter use on a large cluster.

- The simulated cloud counts vendor calls, the audit log of the API server counts writes (without Leases), and the kernel measures memory and CPU time.
- etcd, kube-apiserver, the cloud, the four processes and the benchmark share one host. Each answer of the cloud takes 50 ms. The adapter may send
  20 calls/s to each API family (its default).
- There are no kubelets. The benchmark reports the status of each node every 5 minutes, as kubelets do when nothing changes, but renews no node Leases,
  which none of the processes reads. Each node has 50 images and two pod networks, and no address before a controller writes one, as with kubelets
  without `--node-ip`.
- Each Service has one port, with all member nodes as backends. The other nodes have the label
  `node.kubernetes.io/exclude-from-external-load-balancers`: 5,000 members in each of 1,000 load balancers would be five million.
- Instances are listed in pages of 500, load balancers in pages of 100.
- In `join` the nodes join an empty cluster. All other scenarios run at full size.

[Limits](limits.md#what-is-promised-and-where-it-is-tested) lists the guarantees of the adapter's budget, with tests in virtual time.

To repeat: `cargo xtask bench scale --json FILE` (`--help` lists sizes and scenarios; `--peer` adds the peer).
";

const MACHINES: &str = "\nMeasured on:\n\n";

const TARGETS: &str = "
## Targets

| scenario | target | bound | measured | |
| --- | --- | --- | --- | --- |
";

const MISSED: &str = "\n## Missed targets\n\n";

const RESULTS: &str = "
## Results

Memory and CPU time are those of cloud-adapter, node-controller, service-controller, route-controller; of several replicas, those of the largest.

| scenario | nodes/members/Services | time | vendor reads/writes | API-server writes | peak memory, MiB | CPU time, s |
| --- | --- | --- | --- | --- | --- | --- |
";

const FURTHER: &str = "\nWaits and further figures:\n\n";

const PEER: &str = "
## Comparison with the peer

The peer is [a cloud controller manager in Go](../e2e/peer/README.md) on the same control plane and cloud, with its defaults and with ten workers. It has no
budget: its workers call the cloud as fast as they can, while the adapter keeps to 20 calls/s per family. In parentheses is the ratio of the peer's figure to
the controllers'. Rows in which both differ by less than a quarter are left out.
";

const COMPARED: &str = "\
| scenario | figure | this project | peer (ratio) | peer, 10 workers (ratio) |
| --- | --- | --- | --- | --- |
";

/// The programs, in the order in which the results list them.
const PROGRAMS: [&str; 4] = [crate::ADAPTER, "node-controller", "service-controller", "route-controller"];
/// Scenarios whose notes contain figures that appear in no table.
const WITH_NOTES: [Scenario; 3] = [Scenario::Growth, Scenario::Crowd, Scenario::Replicas];
/// Scenarios whose notes explain the figures of the peer.
const WITH_NOTES_OF_PEER: [Scenario; 1] = [Scenario::OneMore];
/// Figures are omitted if the ratio is within these bounds, because the peer's figure is then close to that of the controllers.
const ALIKE: RangeInclusive<f64> = 0.8..=1.25;

type Found<'a> = (&'a Report, &'a Row);

pub(super) fn page(reports: &[Report]) -> String {
    [HEAD.to_owned(), machines(reports), tables(reports)].concat()
}

/// All tables, without the introduction.
pub(super) fn tables(reports: &[Report]) -> String {
    let rows = latest(reports);
    let full = |of: &Found<'_>| {
        let others = rows.iter().filter(|it| it.1.who == Who::Ours && it.1.scenario == of.1.scenario);
        others.map(extent_of).max()
    };
    // Smaller runs of the controllers are used only for the comparison with the peer.
    let ours: Vec<Found<'_>> =
        rows.iter().filter(|it| it.1.who == Who::Ours && Some(extent_of(it)) == full(it)).copied().collect();
    [targets(&ours), missed(&ours), results(&ours), compared(&rows)].concat()
}

/// The targets and notes of one scenario, printed when the scenario ends.
pub(super) fn summary(row: &Row) -> String {
    let notes: String = row.notes.iter().map(|note| format!("  {note}\n")).collect();
    format!("{} (load of the host {})\n{}{notes}", row.title, quantity(row.load, ""), targets_of(row))
}

/// The last run of each scenario, by size and by measured system.
fn latest(reports: &[Report]) -> Vec<Found<'_>> {
    let mut last = BTreeMap::<(String, u8, Extent), Found<'_>>::new();
    for report in reports {
        for row in &report.rows {
            let key = (row.scenario.clone(), order(row.who), extent_of(&(report, row)));
            last.insert(key, (report, row));
        }
    }
    let order_of = |name: &str| Scenario::value_variants().iter().position(|it| it.name() == name);
    let mut rows: Vec<Found<'_>> = last.into_values().collect();
    rows.sort_by_key(|(_, row)| (order_of(&row.scenario), order(row.who)));
    rows
}

fn size_of((report, row): &Found<'_>) -> Size {
    row.size.unwrap_or(report.size)
}

/// The numbers of nodes, Services and members. Two clusters with the same numbers can be compared, even if the durations differ.
type Extent = (usize, usize, usize);

fn extent_of(found: &Found<'_>) -> Extent {
    let Size { nodes, services, members, .. } = size_of(found);
    (nodes, services, members)
}

fn order(who: Who) -> u8 {
    match who {
        Who::Ours => 0,
        Who::Peer => 1,
        Who::PeerConcurrent => 2,
    }
}

/// Lists each host once.
fn machines(reports: &[Report]) -> String {
    let mut text = MACHINES.to_owned();
    let mut seen = BTreeSet::new();
    for machine in reports.iter().map(|report| &report.machine) {
        let line = format!("- {} cores ({}), {} MiB\n", machine.cores, machine.cpu, machine.memory_mib);
        if seen.insert(line.clone()) {
            text.push_str(&line);
        }
    }
    text
}

fn targets(ours: &[Found<'_>]) -> String {
    let mut text = TARGETS.to_owned();
    text.extend(ours.iter().map(|(_, row)| targets_of(row)));
    for scenario in Scenario::value_variants() {
        let name = scenario.name();
        if !ours.iter().any(|(_, row)| row.scenario == name) {
            writeln!(text, "| {name} | not measured yet | | | |").ok();
        }
    }
    text
}

fn targets_of(row: &Row) -> String {
    let name = &row.scenario;
    if let Some(failed) = &row.failed {
        return format!("| {name} | {} | | could not be measured: {failed} | **missed** |\n", row.title);
    }
    let line = |it: &Target| {
        let verdict = if it.met { "met" } else { "**missed**" };
        format!("| {name} | {} | {} | {} | {verdict} |\n", it.what, it.bound, it.figure)
    };
    row.targets.iter().map(line).collect()
}

/// The section about missed targets; empty if all targets are met.
fn missed(ours: &[Found<'_>]) -> String {
    let failed = ours
        .iter()
        .filter_map(|(_, row)| Some(format!("- **{}**: {}\n", row.scenario, row.failed.as_ref()?)));
    let missed =
        ours.iter().flat_map(|(_, row)| row.targets.iter().filter(|it| !it.met).map(move |it| (row, it)));
    let missed = missed.map(|(row, it)| {
        let why = cause(&row.scenario, &it.what);
        format!("- **{}, {}** ({}, not {}): {why}\n", row.scenario, it.what, it.figure, it.bound)
    });
    let text: String = failed.chain(missed).collect();
    if text.is_empty() { text } else { format!("{MISSED}{text}") }
}

fn results(ours: &[Found<'_>]) -> String {
    let mut text = RESULTS.to_owned();
    let measured = || ours.iter().filter(|(_, row)| row.failed.is_none());
    for found in measured() {
        let (Size { nodes, services, members, .. }, (_, row)) = (size_of(found), found);
        let (spent, vendor) = (&row.spent, &row.spent.vendor);
        let (memory, cpu) = (largest(row, |it| it.peak_mib), largest(row, |it| it.cpu_seconds));
        writeln!(
            text,
            "| {}: {} | {nodes}/{members}/{services} | {} | {}/{} | {} | {memory} | {cpu} |",
            row.scenario,
            row.title,
            quantity(spent.seconds, "s"),
            vendor.reads,
            vendor.writes,
            spent.api_total(),
        )
        .ok();
    }
    let further: String = measured().map(|(_, row)| further(row)).collect();
    if further.is_empty() { text } else { format!("{text}{FURTHER}{further}") }
}

/// Formats a figure of each program. Of several replicas of a program, the largest figure counts.
fn largest(row: &Row, of: fn(&Usage) -> f64) -> String {
    let most = |program: &str| {
        let is_replica = |name: &str| {
            let number = name.strip_prefix(program).map(|rest| rest.strip_prefix('-').unwrap_or(rest));
            number.is_some_and(|it| it.bytes().all(|byte| byte.is_ascii_digit()))
        };
        let all = row.spent.processes.iter().filter(|(name, _)| is_replica(name)).map(|(_, usage)| of(usage));
        all.reduce(f64::max).map_or_else(|| "-".to_owned(), |it| quantity(it, ""))
    };
    PROGRAMS.map(most).join(", ")
}

/// Formats the notes, and the waiting times that do not already appear as targets. Waiting times with a condition in parentheses in their
/// name appear only in the JSON.
fn further(row: &Row) -> String {
    let mut text = String::new();
    for (what, waits) in &row.waits {
        let [p50, p99, max] = [waits.p50, waits.p99, waits.max].map(|it| quantity(it, "s"));
        if what.contains('(') || (waits.n == 1 && row.targets.iter().any(|it| it.figure == max)) {
            continue;
        }
        let figures = if waits.n == 1 { max } else { format!("p50 {p50}, p99 {p99}") };
        writeln!(text, "- {}: {what}: {figures}", row.scenario).ok();
    }
    text + &notes(row, &WITH_NOTES, &row.scenario)
}

/// The comparison with the peer; empty if no peer was measured.
fn compared(rows: &[Found<'_>]) -> String {
    let mut tables = BTreeMap::<Extent, String>::new();
    for found in rows.iter().filter(|(_, row)| row.who == Who::Ours && row.failed.is_none()) {
        // Figures of clusters of different sizes cannot be compared.
        let of = |who: Who| {
            let same = |it: &&Found<'_>| {
                it.1.who == who && it.1.scenario == found.1.scenario && extent_of(it) == extent_of(found)
            };
            let peer = rows.iter().find(same).filter(|(_, row)| row.failed.is_none());
            peer.map(|(_, peer)| figures(found.1, peer)).unwrap_or_default()
        };
        let lines = lines(&found.1.scenario, &[of(Who::Peer), of(Who::PeerConcurrent)]);
        if !lines.is_empty() {
            tables.entry(extent_of(found)).or_default().push_str(&lines);
        }
    }
    let misses: String = rows.iter().map(|found| misses_of_peer(found, rows)).collect();
    if tables.is_empty() && misses.is_empty() {
        return String::new();
    }
    let mut text = PEER.to_owned();
    for ((nodes, services, members), lines) in tables {
        let cluster = format!("Cluster: {nodes} nodes, {members} of them members, {services} Services.");
        write!(text, "\n{cluster}\n\n{COMPARED}{lines}").ok();
    }
    if !misses.is_empty() {
        write!(text, "\n{misses}").ok();
    }
    text
}

#[derive(Clone, Debug)]
struct Compared {
    what: String,
    ours: f64,
    peer: f64,
    unit: &'static str,
}

impl Compared {
    /// The ratio of both figures. `None` if the controllers' figure is 0.
    fn ratio(&self) -> Option<f64> {
        (self.ours > 0.0).then(|| self.peer / self.ours)
    }

    fn is_alike(&self) -> bool {
        self.ratio().map_or(self.peer <= 0.0, |ratio| ALIKE.contains(&ratio))
    }

    fn cell(&self) -> String {
        let peer = quantity(self.peer, self.unit);
        self.ratio().map_or_else(|| peer.clone(), |ratio| format!("{peer} ({}x)", quantity(ratio, "")))
    }
}

/// The figures that occur in both measurements.
fn figures(ours: &Row, peer: &Row) -> Vec<Compared> {
    let figure = |what: &str, of: fn(&Row) -> f64, unit: &'static str| Compared {
        what: what.to_owned(),
        ours: of(ours),
        peer: of(peer),
        unit,
    };
    let mut all = vec![
        figure("time", |it| it.spent.seconds, "s"),
        figure("vendor reads", |it| of_count(it.spent.vendor.reads), ""),
        figure("vendor writes", |it| of_count(it.spent.vendor.writes), ""),
        figure("throttled calls", |it| of_count(it.spent.vendor.throttled), ""),
        figure("API-server writes", |it| of_count(it.spent.api_total()), ""),
        figure("peak memory of all", |it| it.spent.processes.values().map(|it| it.peak_mib).sum(), "MiB"),
        figure("CPU time of all", |it| it.spent.processes.values().map(|it| it.cpu_seconds).sum(), "s"),
    ];
    for (what, waits) in &ours.waits {
        if let Some(theirs) = peer.waits.get(what) {
            all.push(Compared { what: format!("{what}, p99"), ours: waits.p99, peer: theirs.p99, unit: "s" });
        }
    }
    all
}

/// Formats one scenario: a line for each figure that differs.
fn lines(scenario: &str, peers: &[Vec<Compared>; 2]) -> String {
    let mut names: Vec<&str> = Vec::new();
    for it in peers.iter().flatten() {
        if !names.contains(&&*it.what) {
            names.push(&it.what);
        }
    }
    let mut text = String::new();
    for what in names {
        let both = peers.each_ref().map(|peer| peer.iter().find(|it| it.what == what));
        let Some(any) = both.iter().flatten().find(|it| !it.is_alike()) else { continue };
        let [peer, concurrent] = both.map(|it| it.map_or_else(|| "-".to_owned(), Compared::cell));
        let ours = quantity(any.ours, any.unit);
        writeln!(text, "| {scenario} | {what} | {ours} | {peer} | {concurrent} |").ok();
    }
    text
}

/// Lists failures of the peer, runs of the peer without a comparable run of the controllers, and notes that explain the peer's figures.
fn misses_of_peer(found: &Found<'_>, rows: &[Found<'_>]) -> String {
    let (_, row) = found;
    let (name, who) = (&row.scenario, row.who.words());
    if row.who == Who::Ours {
        return String::new();
    }
    if let Some(failed) = &row.failed {
        return format!("- {name} ({who}): could not be measured: {failed}\n");
    }
    let same =
        |it: &Found<'_>| it.1.who == Who::Ours && it.1.scenario == *name && extent_of(it) == extent_of(found);
    if !rows.iter().any(same) {
        return format!("- {name} ({who}): not compared, no run of the controllers has this size\n");
    }
    notes(row, &WITH_NOTES_OF_PEER, &format!("{name} ({who})"))
}

/// The notes of a scenario as items of a list. Empty if `of` does not contain the scenario.
fn notes(row: &Row, of: &[Scenario], name: &str) -> String {
    let listed = of.iter().any(|it| it.name() == row.scenario);
    row.notes.iter().filter(|_| listed).map(|note| format!("- {name}: {note}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::super::result::{Calls, Report, Row, Size, Spent, Target, Usage, Waits, Who};
    use super::page;

    #[test]
    fn missed_target_is_listed_with_its_cause() {
        let targets = vec![
            Target::at_most("new Service during the change, p99", 4.0, 3.0, "s"),
            Target::count("vendor calls", 0, 0),
            Target::count("vendor writes", 1, 0),
        ];
        let row = Row { scenario: "one-more".into(), targets, ..Row::default() };
        let page = page(&[Report { rows: vec![row], ..Report::default() }]);
        assert!(
            page.contains(
                "- **one-more, new Service during the change, p99** (4 s, not <= 3 s): A new Service takes"
            ),
            "{page}"
        );
        assert!(page.contains("- **one-more, vendor writes** (1, not 0): Not investigated"), "{page}");
        assert!(!page.contains("**one-more, vendor calls**"), "{page}");
    }

    #[test]
    fn clusters_of_two_sizes_are_neither_mixed_nor_compared() {
        let run = |nodes, figure, who| {
            let targets = vec![Target::count("vendor writes", figure, 0)];
            let spent = Spent { vendor: Calls { reads: figure, ..Calls::default() }, ..Spent::default() };
            let row = Row { scenario: "steady".into(), who, targets, spent, ..Row::default() };
            Report { rows: vec![row], size: Size { nodes, ..Size::default() }, ..Report::default() }
        };
        let [large, small] = [run(5000, 4, Who::Ours), run(500, 2, Who::Ours)];
        let peer = run(500, 8, Who::Peer);
        for reports in [[large.clone(), small.clone(), peer.clone()], [small, peer.clone(), large.clone()]] {
            let page = page(&reports);
            assert!(page.contains("| steady | vendor writes | 0 | 4 | **missed** |"), "{page}");
            assert!(!page.contains("| steady | vendor writes | 0 | 2 |"), "{page}");
            assert!(!page.contains("| steady | vendor writes | 0 | 8 |"), "{page}");
            assert!(page.contains("| steady:  | 5000/0/0 | 0 s | 4/0 | 0 |"), "{page}");
            assert!(!page.contains("| 500/0/0 |"), "{page}");
            assert!(page.contains("Cluster: 500 nodes, 0 of them members, 0 Services."), "{page}");
            assert!(page.contains("| steady | vendor reads | 2 | 8 (4x) | - |"), "{page}");
            assert!(!page.contains("8 (2x)") && !page.contains("not compared"), "{page}");
        }
        let page = page(&[large, peer]);
        assert!(
            page.contains("- steady (peer): not compared, no run of the controllers has this size"),
            "{page}"
        );
        assert!(!page.contains("8 ("), "{page}");
    }

    #[test]
    fn figures_that_hardly_differ_are_left_out() {
        let run = |who, [reads, writes, throttled]: [u64; 3]| {
            let vendor = Calls { reads, writes, throttled, ..Calls::default() };
            let notes = vec!["its note".to_owned()];
            let spent = Spent { vendor, ..Spent::default() };
            Row { scenario: "one-more".into(), who, spent, notes, ..Row::default() }
        };
        let rows = vec![
            run(Who::Ours, [100, 100, 0]),
            run(Who::Peer, [125, 80, 0]),
            run(Who::PeerConcurrent, [125, 79, 3]),
        ];
        let page = page(&[Report { rows, ..Report::default() }]);
        assert!(!page.contains("| one-more | vendor reads |"), "{page}");
        assert!(page.contains("| one-more | vendor writes | 100 | 80 (0.8x) | 79 (0.79x) |"), "{page}");
        assert!(page.contains("| one-more | throttled calls | 0 | 0 | 3 |"), "{page}");
        assert!(page.contains("- one-more (peer, 10 workers): its note"), "{page}");
        assert!(!page.contains("- one-more: its note"), "{page}");
    }

    #[test]
    fn results_have_the_largest_replica_and_further_figures() {
        let usage = |mib| Usage { peak_mib: mib, cpu_seconds: mib / 10.0, ..Usage::default() };
        let processes = [
            ("cloud-adapter", 90.5),
            ("node-controller", 20.0),
            ("node-controller-1", 30.0),
            ("node-controllers", 99.0),
            ("service-controller", 40.0),
        ];
        let processes = processes.map(|(name, mib)| (name.to_owned(), usage(mib))).into();
        let once = |seconds| Waits { n: 1, p50: seconds, p99: seconds, max: seconds };
        let waits = [
            ("ready again".to_owned(), once(2.0)),
            ("restarted".to_owned(), once(3.0)),
            ("created".to_owned(), Waits { n: 9, p50: 1.0, p99: 4.0, max: 5.0 }),
            ("created (2 replicas)".to_owned(), once(6.0)),
        ];
        let row = Row {
            scenario: "crowd".into(),
            title: "3 Services".into(),
            spent: Spent { seconds: 7.0, processes, ..Spent::default() },
            waits: waits.into(),
            targets: vec![Target::at_most("restarted", 3.0, 5.0, "s")],
            notes: vec!["4 calls per Service.".into()],
            ..Row::default()
        };
        let page = page(&[Report { rows: vec![row], ..Report::default() }]);
        let line = "| crowd: 3 Services | 0/0/0 | 7 s | 0/0 | 0 | 90.5, 30, 40, - | 9.05, 3, 4, - |";
        assert!(page.contains(line), "{page}");
        for line in ["ready again: 2 s", "created: p50 1 s, p99 4 s", "4 calls per Service."] {
            assert!(page.contains(&format!("- crowd: {line}\n")), "{page}");
        }
        assert!(!page.contains("- crowd: restarted") && !page.contains("created (2 replicas)"), "{page}");
    }

    #[test]
    fn failed_scenario_is_listed_with_what_is_missed() {
        let row =
            |who| Row { scenario: "steady".into(), who, failed: Some("no etcd".into()), ..Row::default() };
        let page = page(&[Report { rows: vec![row(Who::Ours), row(Who::Peer)], ..Report::default() }]);
        assert!(page.contains("- **steady**: no etcd"), "{page}");
        assert!(page.contains("| steady |  | | could not be measured: no etcd | **missed** |"), "{page}");
        assert!(page.contains("- steady (peer): could not be measured: no etcd"), "{page}");
    }

    #[test]
    fn the_last_run_counts_and_missing_scenarios_are_listed() {
        let run = |figure, who| {
            let targets = vec![Target::count("vendor writes", figure, 0)];
            let row = Row { scenario: "steady".into(), who, targets, ..Row::default() };
            Report { rows: vec![row], ..Report::default() }
        };
        let page = page(&[run(7, Who::Ours), run(0, Who::Ours), run(9, Who::Peer)]);
        assert!(page.contains("| steady | vendor writes | 0 | 0 | met |"), "{page}");
        assert!(!page.contains("| 7 |") && !page.contains("| 9 |"), "{page}");
        assert!(page.contains("| throttled | not measured yet | | | |"), "{page}");
        assert!(!page.contains("| steady | not measured yet |"), "{page}");
    }
}
