//! A run as text: one line for each check, all details of a failure, and a table of tiers.

use std::fmt::Write as _;

use anstyle::AnsiColor;

use super::{Entry, Outcome, Report};
use crate::check::{Check, Standing, Tier};

/// Number of check IDs per line, for checks that were skipped for the same reason.
const IDS: usize = 12;

/// Formats one line for one check.
pub fn line(entry: &Entry, colour: bool) -> String {
    let (word, color, more) = match &entry.outcome {
        Outcome::Passed if entry.unseen.is_empty() => {
            ("ok", AnsiColor::Green, format!("{:.1} s", entry.took.as_secs_f64()))
        }
        Outcome::Passed => {
            let without = entry.unseen.join(", ");
            (
                "ok",
                AnsiColor::Green,
                format!("{:.1} s, in part; not tested: {without}", entry.took.as_secs_f64()),
            )
        }
        Outcome::Failed(_) => {
            ("FAILED", AnsiColor::Red, format!("{:.1} s on {}", entry.took.as_secs_f64(), entry.lane))
        }
        Outcome::Skipped(why) => ("skipped", AnsiColor::Yellow, why.clone()),
    };
    let padded = format!("{word:8}");
    let style = color.on_default();
    let word = if colour { format!("{style}{padded}{style:#}") } else { padded };
    let repetition = if entry.repetition > 1 { format!(" #{}", entry.repetition) } else { String::new() };
    format!("{word} {:7} {}{repetition} ({more})", entry.check.id, entry.check.name)
}

/// Formats all details of a failed check: requests and responses, the requirement of the contract, the observation, and the vendor calls.
pub fn failure(entry: &Entry) -> String {
    let Outcome::Failed(finding) = &entry.outcome else { return String::new() };
    let Entry { check, transcript, vendor_calls, left, .. } = entry;
    let mut parts = vec![
        ("requests and responses", transcript.join("\n")),
        ("the contract demands", format!("{}\n({})", finding.wants, check.section)),
        ("what was observed instead", finding.came.clone()),
    ];
    if !vendor_calls.is_empty() {
        let whose = if check.exclusive {
            "vendor calls during the check"
        } else {
            "vendor calls during the check, including those of other checks on the lane"
        };
        parts.push((whose, vendor_calls.clone()));
    }
    if !left.is_empty() {
        parts.push(("not deleted", left.join("\n")));
    }
    let parts =
        parts.into_iter().map(|(title, text)| format!("  {title}:\n    {}", text.replace('\n', "\n    ")));
    parts.collect::<Vec<_>>().join("\n")
}

/// Formats the whole run: the table of tiers with their verdicts, failed checks, skipped checks with reasons, and objects that were not
/// deleted.
pub fn table(report: &Report, all: &[Check]) -> String {
    let mut text =
        format!("\n{}, {:.0} s, --seed {}\n\n", report.adapter, report.took.as_secs_f64(), report.seed);
    writeln!(text, "tier  passed  failed  skipped  verdict").unwrap_or_default();
    for tier in [Tier::T1, Tier::T2, Tier::T3] {
        text.push_str(&row(report, all, tier));
    }
    text.push_str(&failed(report));
    let skipped = report.entries.iter().filter_map(|entry| match &entry.outcome {
        Outcome::Skipped(why) if entry.check.standing == Standing::Mandatory => {
            Some((why, format!("{}*", entry.check.id)))
        }
        Outcome::Skipped(why) => Some((why, entry.check.id.to_owned())),
        Outcome::Passed | Outcome::Failed(_) => None,
    });
    text.push_str(&grouped("skipped (* mandatory: without it its tier is incomplete)", skipped));
    let passed = report.entries.iter().filter(|entry| entry.outcome == Outcome::Passed);
    let in_part = passed.flat_map(|entry| entry.unseen.iter().map(|why| (why, entry.check.id.to_owned())));
    text.push_str(&grouped("passed in part; not tested", in_part));
    let left: Vec<&str> =
        report.entries.iter().flat_map(|entry| &entry.left).chain(&report.left).map(String::as_str).collect();
    if !left.is_empty() {
        writeln!(text, "\nnot deleted:\n  {}", left.join("\n  ")).unwrap_or_default();
    }
    if report.interrupted {
        text.push_str("\nended early\n");
    }
    text
}

/// Lists each failed check, with the number of failures if it was repeated.
fn failed(report: &Report) -> String {
    let lines = report.failed().into_iter().map(|id| {
        let of_check: Vec<&Entry> = report.entries.iter().filter(|entry| entry.check.id == id).collect();
        let failed = of_check.iter().filter(|entry| matches!(entry.outcome, Outcome::Failed(_))).count();
        let often =
            if of_check.len() > 1 { format!(" ({failed} of {})", of_check.len()) } else { String::new() };
        let name = of_check.first().map_or("", |entry| entry.check.name);
        format!("  {id:7} {name}{often}\n")
    });
    let lines: String = lines.collect();
    if lines.is_empty() { lines } else { format!("\nfailed:\n{lines}") }
}

/// Lists each reason with the checks that it applies to.
fn grouped<'a>(title: &str, checks: impl Iterator<Item = (&'a String, String)>) -> String {
    let mut groups: Vec<(&String, Vec<String>)> = Vec::new();
    for (why, id) in checks {
        match groups.iter_mut().find(|(reason, _ids)| *reason == why) {
            // Other repetitions of the check are skipped for the same reason.
            Some((_reason, ids)) if ids.contains(&id) => (),
            Some((_reason, ids)) => ids.push(id),
            None => groups.push((why, vec![id])),
        }
    }
    if groups.is_empty() {
        return String::new();
    }
    let lines = groups.iter().map(|(why, ids)| {
        let rows: Vec<String> = ids.chunks(IDS).map(|row| row.join(" ")).collect();
        format!("  {why}:\n    {}\n", rows.join("\n    "))
    });
    format!("\n{title}:\n{}", lines.collect::<String>())
}

fn row(report: &Report, all: &[Check], tier: Tier) -> String {
    let of_tier = || report.entries.iter().filter(|entry| entry.check.tier == tier);
    let count = |is: fn(&Outcome) -> bool| of_tier().filter(|entry| is(&entry.outcome)).count();
    let passed = count(|outcome| *outcome == Outcome::Passed);
    let failed = count(|outcome| matches!(outcome, Outcome::Failed(_)));
    let skipped = count(|outcome| matches!(outcome, Outcome::Skipped(_)));
    let mut verdict = report.verdict(tier, all).to_string();
    if failed > 0 {
        verdict.make_ascii_uppercase();
    }
    format!("{tier:<4}  {passed:>6}  {failed:>6}  {skipped:>7}  {verdict}\n")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{check::Finding, checks, report::json::json};

    fn entry(id: &str, outcome: Outcome, unseen: &[&str]) -> Entry {
        Entry {
            check: checks::all().into_iter().find(|check| check.id == id).expect("a check"),
            repetition: 1,
            lane: "lane-0".to_owned(),
            outcome,
            took: Duration::from_secs(1),
            transcript: Vec::new(),
            vendor_calls: String::new(),
            unseen: unseen.iter().map(|&why| why.to_owned()).collect(),
            left: Vec::new(),
        }
    }

    fn report() -> Report {
        let skipped = |why: &str| Outcome::Skipped(why.to_owned());
        Report {
            seed: 1,
            adapter: "fake 1".to_owned(),
            took: Duration::from_secs(2),
            entries: vec![
                entry("LB-17", skipped("hooks.createInstances is not set"), &[]),
                entry("LB-01", skipped("hooks.createInstances is not set"), &[]),
                entry("LB-08", skipped("samples say no"), &[]),
                entry("SEC-01", Outcome::Passed, &["lanes[].http is not set"]),
            ],
            left: Vec::new(),
            interrupted: false,
        }
    }

    #[test]
    fn reasons_are_grouped_and_untested_parts_listed() {
        let reported = "
skipped (* mandatory: without it its tier is incomplete):
  hooks.createInstances is not set:
    LB-17 LB-01*
  samples say no:
    LB-08*

passed in part; not tested:
  lanes[].http is not set:
    SEC-01
";
        let table = table(&report(), &checks::all());
        assert!(table.ends_with(reported), "{table}");
        let passed = entry("SEC-01", Outcome::Passed, &["lanes[].http is not set"]);
        assert!(line(&passed, false).ends_with("(1.0 s, in part; not tested: lanes[].http is not set)"));
    }

    #[test]
    fn repeated_failures_are_listed_once_with_count() {
        let failed = || Outcome::Failed(Finding { wants: "this".to_owned(), came: "that".to_owned() });
        let again = |repetition, outcome| Entry { repetition, ..entry("LB-04", outcome, &[]) };
        let entries = vec![
            entry("LB-01", failed(), &[]),
            again(1, failed()),
            again(2, Outcome::Passed),
            again(3, failed()),
        ];
        let reported = "
failed:
  LB-01   ensure-reaches-active-and-returns-address
  LB-04   identical-concurrent-ensures-join (2 of 3)
";
        let table = table(&Report { entries, ..report() }, &checks::all());
        assert!(table.ends_with(reported), "{table}");
    }

    #[test]
    fn table_and_json_have_the_same_verdicts() {
        let (report, all) = (report(), checks::all());
        let (table, verdicts) = (table(&report, &all), json(&report, &all)["verdicts"].clone());
        for (tier, word) in [("T1", "incomplete"), ("T2", "not tested"), ("T3", "not tested")] {
            assert_eq!(verdicts[tier], word);
            let row = table.lines().find(|line| line.starts_with(tier)).expect("a row");
            assert!(row.ends_with(word), "{row}");
        }
    }
}
