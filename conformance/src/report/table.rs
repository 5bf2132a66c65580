//! A run in words: a line a check, all of a failure, a table a tier.

use std::fmt::Write as _;

use super::{Entry, Outcome, Report, Verdict};
use crate::check::{Check, Standing, Tier};

/// One line for one check.
#[must_use]
pub fn line(entry: &Entry, colour: bool) -> String {
    let (word, code, more) = match &entry.outcome {
        Outcome::Passed => ("ok", "32", format!("{:.1} s", entry.took.as_secs_f64())),
        Outcome::Failed(_) => {
            ("FAILED", "31", format!("{:.1} s on {}", entry.took.as_secs_f64(), entry.lane))
        }
        Outcome::Skipped(why) => ("skipped", "33", why.clone()),
    };
    let padded = format!("{word:8}");
    let word = if colour { format!("\u{1b}[{code}m{padded}\u{1b}[0m") } else { padded };
    let repetition = if entry.repetition > 1 { format!(" #{}", entry.repetition) } else { String::new() };
    format!("{word} {:7} {}{repetition} ({more})", entry.check.id, entry.check.name)
}

/// All that a failed check tells: what was sent, what the contract wants, what came, and the vendor calls meanwhile.
#[must_use]
pub fn failure(entry: &Entry) -> String {
    let Outcome::Failed(finding) = &entry.outcome else { return String::new() };
    let Entry { check, transcript, vendor_calls, left, .. } = entry;
    let mut parts = vec![
        ("what was sent and what came", transcript.join("\n")),
        ("the contract wants", format!("{}\n({})", finding.wants, check.section)),
        ("what came instead", finding.came.clone()),
    ];
    if !vendor_calls.is_empty() {
        let whose = if check.exclusive {
            "vendor calls meanwhile"
        } else {
            "vendor calls meanwhile, of all checks on the lane"
        };
        parts.push((whose, vendor_calls.clone()));
    }
    if !left.is_empty() {
        parts.push(("what could not be removed", left.join("\n")));
    }
    let parts =
        parts.into_iter().map(|(title, text)| format!("  {title}:\n    {}", text.replace('\n', "\n    ")));
    parts.collect::<Vec<_>>().join("\n")
}

/// The whole run: a table a tier, what failed, what was skipped and why, what is left, the verdicts.
#[must_use]
pub fn table(report: &Report, all: &[Check]) -> String {
    let mut text =
        format!("\n{}, {:.0} s, --seed {}\n\n", report.adapter, report.took.as_secs_f64(), report.seed);
    writeln!(text, "tier  passed  failed  skipped  verdict").unwrap_or_default();
    for tier in [Tier::T1, Tier::T2, Tier::T3] {
        text.push_str(&row(report, all, tier));
    }
    let failed: Vec<&Entry> =
        report.entries.iter().filter(|one| matches!(one.outcome, Outcome::Failed(_))).collect();
    if !failed.is_empty() {
        text.push_str("\nfailed:\n");
        for entry in failed {
            writeln!(text, "  {:7} {}", entry.check.id, entry.check.name).unwrap_or_default();
        }
    }
    let skips: Vec<_> = report.entries.iter().filter_map(skip).collect();
    if !skips.is_empty() {
        writeln!(text, "\nskipped:\n{}", skips.join("\n")).unwrap_or_default();
    }
    let left: Vec<&str> =
        report.entries.iter().flat_map(|entry| &entry.left).chain(&report.left).map(String::as_str).collect();
    if !left.is_empty() {
        writeln!(text, "\nwhat could not be removed:\n  {}", left.join("\n  ")).unwrap_or_default();
    }
    if report.interrupted {
        text.push_str("\nended early\n");
    }
    text
}

fn skip(entry: &Entry) -> Option<String> {
    let Outcome::Skipped(why) = &entry.outcome else { return None };
    let gated = if entry.check.standing == Standing::Capability { "" } else { ", mandatory" };
    Some(format!("  {:7} {}{gated}: {why}", entry.check.id, entry.check.name))
}

fn row(report: &Report, all: &[Check], tier: Tier) -> String {
    let of_tier = || report.entries.iter().filter(|entry| entry.check.tier == tier);
    let count = |is: fn(&Outcome) -> bool| of_tier().filter(|entry| is(&entry.outcome)).count();
    let passed = count(|outcome| *outcome == Outcome::Passed);
    let failed = count(|outcome| matches!(outcome, Outcome::Failed(_)));
    let skipped = count(|outcome| matches!(outcome, Outcome::Skipped(_)));
    let verdict = match report.verdict(tier, all) {
        _ if of_tier().count() == 0 => "not tested",
        Verdict::Conformant => "conformant",
        Verdict::Incomplete => "incomplete",
        Verdict::Failed => "FAILED",
    };
    format!("{tier:<4}  {passed:>6}  {failed:>6}  {skipped:>7}  {verdict}\n")
}
