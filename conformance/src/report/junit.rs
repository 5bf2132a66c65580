//! A run as JUnit XML, for CI systems; each tier is a suite.

use quick_junit::{NonSuccessKind, TestCase, TestCaseStatus, TestSuite};

use super::{Entry, Outcome, Report, table};
use crate::check::Tier;

/// Formats a run as JUnit XML.
/// Returns an error for text that XML cannot represent.
pub fn junit(report: &Report) -> Result<String, quick_junit::SerializeError> {
    let mut xml = quick_junit::Report::new("adapter-conformance");
    xml.set_time(report.took);
    for tier in [Tier::T1, Tier::T2, Tier::T3] {
        let cases: Vec<TestCase> =
            report.entries.iter().filter(|entry| entry.check.tier == tier).map(case).collect();
        if !cases.is_empty() {
            let mut suite = TestSuite::new(tier.to_string());
            suite.add_property(("seed", report.seed.to_string().as_str()));
            suite.add_test_cases(cases);
            xml.add_test_suite(suite);
        }
    }
    xml.to_string()
}

fn case(entry: &Entry) -> TestCase {
    let status = match &entry.outcome {
        Outcome::Passed => TestCaseStatus::success(),
        Outcome::Skipped(why) => {
            let mut status = TestCaseStatus::skipped();
            status.set_message(why.as_str());
            status
        }
        Outcome::Failed(finding) => {
            let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
            status.set_message(finding.wants.as_str());
            status.set_description(table::failure(entry));
            status
        }
    };
    let mut case = TestCase::new(format!("{} {}", entry.check.id, entry.check.name), status);
    case.set_classname(entry.check.family());
    case.set_time(entry.took);
    if entry.outcome == Outcome::Passed && !entry.unseen.is_empty() {
        case.set_system_out(format!("passed in part: {}", entry.unseen.join(", ")));
    }
    case
}
