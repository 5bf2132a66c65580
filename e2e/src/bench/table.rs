//! The results as a table for terminals.

use bench_table::Row as Line;

use super::result::{Report, Row, Target, Who, quantity};

/// Formats all figures of all scenarios, one per line.
pub(super) fn table(report: &Report) -> String {
    let beside = report.beside.iter().map(|it| {
        let (who, figure) = (it.who.words(), format!("{} / {}, {}", it.peer, it.ours, it.ratio));
        Line::told(&it.scenario, format!("{}: {who} / ours", it.what), figure)
    });
    bench_table::table(&report.rows.iter().flat_map(of_row).chain(beside).collect::<Vec<_>>())
}

/// A summary of one scenario, printed while the next one runs.
pub(super) fn lines(row: &Row) -> String {
    let notes: String = row.notes.iter().map(|note| format!("  {note}\n")).collect();
    format!("{}\n{}{notes}", row.title, bench_table::table(&of_row(row)))
}

fn of_row(row: &Row) -> Vec<Line> {
    let id = match row.who {
        Who::Ours => row.scenario.clone(),
        Who::Peer | Who::PeerConcurrent => format!("{} ({})", row.scenario, row.who.words()),
    };
    let id = &id;
    if let Some(failed) = &row.failed {
        return vec![Line::told(id, "could not be measured", failed.clone()).promised("measured", false)];
    }
    let target = |it: &Target| Line::told(id, &it.what, &it.figure).promised(&it.bound, it.met);
    let mut lines: Vec<_> = row.targets.iter().map(target).collect();
    for (what, waits) in &row.waits {
        let figure = format!("{} / {}", quantity(waits.p50, "s"), quantity(waits.p99, "s"));
        lines.push(Line::told(id, format!("{what}, p50 / p99 of {}", waits.n), figure));
    }
    let vendor = &row.spent.vendor;
    let calls = format!("{} reads, {} writes, {} throttled", vendor.reads, vendor.writes, vendor.throttled);
    lines.push(Line::told(id, format!("vendor calls in {}", quantity(row.spent.seconds, "s")), calls));
    for (operation, n) in &vendor.by_operation {
        lines.push(Line::told(id, format!("  {operation}"), n.to_string()));
    }
    for (process, writes) in &row.spent.api_writes {
        let each = writes.iter().map(|(what, n)| format!("{what} {n}")).collect::<Vec<_>>();
        lines.push(Line::told(id, format!("API-server writes of {process}"), each.join(", ")));
    }
    for (process, usage) in &row.spent.processes {
        let figure = format!(
            "{} / {} / {}",
            quantity(usage.rss_mib, "MiB"),
            quantity(usage.peak_mib, "MiB"),
            quantity(usage.cpu_seconds, "s")
        );
        lines.push(Line::told(id, format!("{process}: memory / peak / CPU time"), figure));
    }
    for (process, profile) in &row.profiles {
        for (group, share) in &profile.groups {
            let what = format!("CPU time of {process}: {group}");
            lines.push(Line::told(id, what, format!("{:.1} %", share * 100.0)));
        }
    }
    lines.push(Line::told(id, "load of the host at the beginning", quantity(row.load, "")));
    lines
}

#[cfg(test)]
mod tests {
    use super::super::result::{Report, Row, Target};
    use super::table;

    #[test]
    fn missed_targets_and_failures_are_shown() {
        let missed = Row {
            scenario: "steady".into(),
            targets: vec![Target::count("vendor writes", 1, 0)],
            ..Row::default()
        };
        let failed = Row { scenario: "leave".into(), failed: Some("no nodes".into()), ..Row::default() };
        assert!(!missed.is_met() && !failed.is_met());
        let table = table(&Report { rows: vec![missed, failed], ..Report::default() });
        let seen = |words: &[&str]| table.lines().any(|line| words.iter().all(|word| line.contains(word)));
        assert!(
            seen(&["steady", "vendor writes", "MISSED"]) && seen(&["leave", "no nodes", "MISSED"]),
            "{table}"
        );
    }
}
