//! `docs/benchmarks.md`, from the results of runs. Pure.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use clap::ValueEnum as _;
use e2e_tools::bench::Scenario;

use super::beside::{Compared, beside};
use super::causes::cause;
use super::result::{Calls, Report, Row, Size, Target, Who, quantity};

const HEAD: &str = "\
# Benchmarks

<!-- Written by `cargo xtask bench scale --write-docs FILE...` from what runs have measured: run that again. -->

What the controllers and the adapter take on a large cluster: vendor calls, as the simulated cloud counts them; writes to the API
server, by its audit log, Leases left out; memory and CPU time, as the kernel tells. etcd, kube-apiserver, the cloud, the four processes and the
benchmark share one machine. Each answer of the cloud takes 50 ms; the adapter may send each family of its API 20 calls a second, its default.

There are no kubelets: the benchmark reports each node's status every 5 minutes, as they do where nothing changes, and leaves out the
Leases, which none of the processes reads. Each node has 50 images and two pod networks.

Each Service has one port, with all member nodes behind it; the other nodes have
`node.kubernetes.io/exclude-from-external-load-balancers`: 5,000 members in each of 1,000 load balancers would be five million.

Nodes are those of kubelets without `--node-ip`: they have no address before a controller writes it.

Where the CPU time goes is told by runs with `--profile DIR`: `perf` samples the processes 997 times a second of CPU time. A sample counts for the
innermost of its functions that belongs to a group; helpers that all use count for who called them. Times of such runs are not those of others.

Machines are listed in pages of 500, load balancers in pages of 100. Routes, listed page by page as well, have rows and bounds of their own. Nodes join
a cluster that is empty before; everything else is measured at the size that its row names.

A missed target is told as missed. [Limits](limits.md#what-is-promised-and-where-it-is-tested) has what is promised of the adapter's
budgets, with the tests in virtual time.
";

/// A row with the report that it is from.
type Found<'a> = (&'a Report, &'a Row);

pub(super) fn page(reports: &[Report]) -> String {
    let mut last = BTreeMap::<(String, u8, Extent), Found<'_>>::new();
    let mut profiles = BTreeMap::<&str, Found<'_>>::new();
    for report in reports {
        for row in &report.rows {
            let key = (row.scenario.clone(), order(row.who), extent_of(&(report, row)));
            if row.profiles.is_empty() {
                last.insert(key, (report, row));
                continue;
            }
            profiles.insert(&row.scenario, (report, row));
            // Who is watched is slower: its figures count where there are no others.
            last.entry(key).or_insert((report, row));
        }
    }
    let mut page = HEAD.to_owned();
    page.push_str("\n## The machine\n\n");
    for report in reports {
        let machine = &report.machine;
        writeln!(
            page,
            "- {} cores ({}), {} MiB{}: `{}`",
            machine.cores,
            machine.cpu,
            machine.memory_mib,
            if machine.nice == 0 { String::new() } else { format!(", nice {}", machine.nice) },
            report.command
        )
        .ok();
    }
    page.push_str("\n## Targets\n\n| scenario | nodes, Services | measured | who | figure | target | |\n| --- | --- | --- | --- | --- | --- | --- |\n");
    let order_of = |name: &str| Scenario::value_variants().iter().position(|it| it.name() == name);
    let mut rows: Vec<Found<'_>> = last.into_values().collect();
    rows.sort_by_key(|(_, row)| (order_of(&row.scenario), order(row.who)));
    let compared = compared(&rows);
    // Smaller ones of ours were measured for the peer's sake.
    let largest = |of: &Found<'_>| {
        let others = rows.iter().filter(|it| it.1.who == Who::Ours && it.1.scenario == of.1.scenario);
        others.map(extent_of).max()
    };
    let rows: Vec<Found<'_>> = rows
        .iter()
        .filter(|it| it.1.who != Who::Ours || Some(extent_of(it)) == largest(it))
        .copied()
        .collect();
    for it in &rows {
        page.push_str(&targets(it.1, size_of(it)));
    }
    for scenario in Scenario::value_variants() {
        let name = scenario.name();
        if !rows.iter().any(|(_, row)| row.scenario == name) {
            writeln!(page, "| {name} | | not measured yet | | | | |").ok();
        }
    }
    page.push_str(&missed(&rows));
    page.push_str(&compared);
    page.extend(profiles.values().map(cpu_time));
    for (report, row) in &rows {
        page.push_str(&details(report, row));
    }
    page
}

fn size_of((report, row): &Found<'_>) -> Size {
    row.size.unwrap_or(report.size)
}

/// Nodes, Services, members: what makes two clusters as large as each other, however long they were watched.
type Extent = (usize, usize, usize);

fn extent_of(found: &Found<'_>) -> Extent {
    let Size { nodes, services, members, .. } = size_of(found);
    (nodes, services, members)
}

/// Nothing, if all targets of ours are met.
fn missed(rows: &[Found<'_>]) -> String {
    let ours = || rows.iter().filter(|(_, row)| row.who == Who::Ours);
    let failed =
        ours().filter_map(|(_, row)| Some(format!("- **{}**: {}\n", row.scenario, row.failed.as_ref()?)));
    let missed = ours().flat_map(|(_, row)| row.targets.iter().filter(|it| !it.met).map(move |it| (row, it)));
    let missed = missed.map(|(row, it)| {
        let why = cause(&row.scenario, &it.what);
        format!("- **{}, {}** ({}, not {}): {why}\n", row.scenario, it.what, it.figure, it.bound)
    });
    let text: String = failed.chain(missed).collect();
    if text.is_empty() { text } else { format!("\n## What is missed, and why\n\n{text}") }
}

/// Nothing, if no peer was measured.
fn compared(rows: &[Found<'_>]) -> String {
    let mut text = String::new();
    for found in rows.iter().filter(|(_, row)| row.who == Who::Ours) {
        let (size, ours) = (size_of(found), found.1);
        // On clusters of two sizes the larger one takes more whoever works.
        let same = |it: &&Found<'_>| {
            it.1.who != Who::Ours && it.1.scenario == ours.scenario && extent_of(it) == extent_of(found)
        };
        for (_, peer) in rows.iter().filter(same) {
            let line = |Compared { what, ours: a, peer: b, ratio, .. }: Compared| {
                let (name, Size { nodes, services, .. }) = (&ours.scenario, size);
                format!(
                    "| {name} | {nodes}, {services} | {} | {what} | {a} | {b} | {ratio} |\n",
                    peer.who.words()
                )
            };
            text.extend(beside(ours, peer).into_iter().map(line));
        }
    }
    if text.is_empty() {
        return text;
    }
    format!(
        "\n## Beside the peer\n\nThe peer is [a cloud controller manager in Go](../e2e/peer/README.md) on the same control plane and cloud.\n\
         It has no budget: it asks as often as its workers come to it, where ours keeps to 20 calls a second a family.\n\n\
         | scenario | nodes, Services | | | ours | peer | ratio |\n| --- | --- | --- | --- | --- | --- | --- |\n{text}"
    )
}

fn cpu_time(found: &Found<'_>) -> String {
    let (Size { nodes, services, .. }, row) = (size_of(found), found.1);
    let mut text = format!("\n## Where the CPU time goes: {} ({})\n", row.scenario, row.title);
    writeln!(text, "\nCluster: {nodes} nodes, {services} Services.").ok();
    for (process, profile) in &row.profiles {
        let head = "| functions | share |\n| --- | --- |";
        writeln!(text, "\n{process}, {} samples:\n\n{head}", profile.samples).ok();
        for (group, share) in &profile.groups {
            writeln!(text, "| {group} | {:.1} % |", share * 100.0).ok();
        }
    }
    text
}

fn order(who: Who) -> u8 {
    match who {
        Who::Ours => 0,
        Who::Peer => 1,
        Who::PeerConcurrent => 2,
    }
}

fn targets(row: &Row, size: Size) -> String {
    let name = format!("{} | {}, {}", row.scenario, size.nodes, size.services);
    let who = row.who.words();
    if let Some(failed) = &row.failed {
        return format!(
            "| {name} | {} | {who} | could not be measured: {failed} | | **missed** |\n",
            row.title
        );
    }
    let line = |it: &Target| {
        let verdict = if it.met { "met" } else { "**missed**" };
        format!("| {name} | {} | {who} | {} | {} | {verdict} |\n", it.what, it.figure, it.bound)
    };
    row.targets.iter().map(line).collect()
}

fn details(report: &Report, row: &Row) -> String {
    let mut text = format!("\n## {}: {} ({})\n\n", row.scenario, row.title, row.who.words());
    let size = size_of(&(report, row));
    writeln!(
        text,
        "Cluster: {} nodes, {} of them members, {} Services. {}. Load of the machine at the beginning: {}.\n",
        size.nodes,
        size.members,
        size.services,
        calls(&row.spent.vendor, row.spent.seconds),
        quantity(row.load, "")
    )
    .ok();
    for (process, writes) in &row.spent.api_writes {
        let each = writes.iter().map(|(what, n)| format!("{what} {n}")).collect::<Vec<_>>();
        writeln!(text, "- API-server writes of {process}: {}", each.join(", ")).ok();
    }
    for (what, waits) in &row.waits {
        let [p50, p99, max] = [waits.p50, waits.p99, waits.max].map(|it| quantity(it, "s"));
        writeln!(text, "- {what}: p50 {p50}, p99 {p99}, the longest {max} (of {})", waits.n).ok();
    }
    for note in &row.notes {
        writeln!(text, "- {note}").ok();
    }
    if !row.spent.processes.is_empty() {
        text.push_str("\n| process | memory, MiB | peak, MiB | CPU time, s |\n| --- | --- | --- | --- |\n");
    }
    for (process, usage) in &row.spent.processes {
        let [rss, peak, cpu] = [usage.rss_mib, usage.peak_mib, usage.cpu_seconds].map(|it| quantity(it, ""));
        writeln!(text, "| {process} | {rss} | {peak} | {cpu} |").ok();
    }
    text
}

fn calls(calls: &Calls, seconds: f64) -> String {
    let each = calls.by_operation.iter().map(|(operation, n)| format!("{operation} {n}")).collect::<Vec<_>>();
    let each = if each.is_empty() { String::new() } else { format!(" ({})", each.join(", ")) };
    format!("In {}: {} vendor reads and {} writes{each}", quantity(seconds, "s"), calls.reads, calls.writes)
}

#[cfg(test)]
mod tests {
    use super::super::profile::Profile;
    use super::super::result::{Calls, Report, Row, Size, Spent, Target, Who};
    use super::page;

    #[test]
    fn a_run_that_was_watched_tells_where_the_time_went_and_no_other_figures() {
        let run = |figure, profiles: &[(&str, Profile)]| {
            let profiles = profiles.iter().map(|(name, it)| ((*name).to_owned(), it.clone())).collect();
            let targets = vec![Target::count("vendor calls", figure, 0)];
            let row = Row { scenario: "restart".into(), targets, profiles, ..Row::default() };
            Report { rows: vec![row], ..Report::default() }
        };
        let profile = Profile { samples: 500, groups: vec![("JSON".to_owned(), 0.625)] };
        let watched = run(7, &[("node-controller", profile)]);
        for reports in [[run(0, &[]), watched.clone()], [watched.clone(), run(0, &[])]] {
            let page = page(&reports);
            assert!(
                page.contains("node-controller, 500 samples:") && page.contains("| JSON | 62.5 % |"),
                "{page}"
            );
            assert!(page.contains("| 0 | 0 | met |") && !page.contains("| 7 |"), "{page}");
        }
        assert!(page(&[watched]).contains("| 7 | 0 | **missed** |"));
    }

    #[test]
    fn what_is_missed_is_told_with_its_cause() {
        let targets = vec![
            Target::at_most("a new Service meanwhile, p99", 4.0, 3.0, "s"),
            Target::count("vendor calls", 0, 0),
            Target::count("vendor writes", 1, 0),
        ];
        let row = Row { scenario: "one-more".into(), targets, ..Row::default() };
        let page = page(&[Report { rows: vec![row], ..Report::default() }]);
        assert!(
            page.contains("- **one-more, a new Service meanwhile, p99** (4 s, not <= 3 s): Each takes"),
            "{page}"
        );
        assert!(page.contains("- **one-more, vendor writes** (1, not 0): Not looked into"), "{page}");
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
        for reports in [[large.clone(), small.clone(), peer.clone()], [small, peer, large]] {
            let page = page(&reports);
            assert!(page.contains("| steady | 5000, 0 | vendor writes | ours | 4 |"), "{page}");
            assert!(!page.contains("| steady | 500, 0 | vendor writes | ours |"), "{page}");
            assert!(page.contains("| steady | 500, 0 | vendor writes | peer | 8 |"), "{page}");
            assert!(page.contains("| steady | 500, 0 | peer | vendor reads | 2 | 8 | 4x |"), "{page}");
            assert!(!page.contains("| 4 | 8 | 2x |"), "{page}");
        }
    }

    #[test]
    fn what_could_not_be_measured_is_told_with_what_is_missed() {
        let row = Row { scenario: "steady".into(), failed: Some("no etcd".into()), ..Row::default() };
        let page = page(&[Report { rows: vec![row], ..Report::default() }]);
        assert!(page.contains("- **steady**: no etcd"), "{page}");
    }

    #[test]
    fn a_later_run_counts_and_what_was_never_measured_is_told() {
        let run = |figure, who| {
            let targets = vec![Target::count("vendor writes", figure, 0)];
            let row = Row { scenario: "steady".into(), who, targets, ..Row::default() };
            Report { rows: vec![row], ..Report::default() }
        };
        let page = page(&[run(7, Who::Ours), run(0, Who::Ours), run(9, Who::Peer)]);
        assert!(page.contains("| steady | 0, 0 | vendor writes | ours | 0 | 0 | met |"), "{page}");
        assert!(page.contains("| steady | 0, 0 | vendor writes | peer | 9 | 0 | **missed** |"), "{page}");
        assert!(page.contains("| steady | 0, 0 | peer | vendor writes | 0 | 0 | - |"), "{page}");
        assert!(!page.contains("| 7 |") && page.contains("| throttled | | not measured yet |"), "{page}");
    }
}
