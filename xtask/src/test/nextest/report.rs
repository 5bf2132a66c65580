//! Parses nextest's JUnit report: the duration of each test, and which tests failed.

use std::fmt::Write as _;

use quick_junit::TestCaseStatus;

#[derive(Debug, Default)]
pub(super) struct Report {
    cases: Vec<Case>,
}

#[derive(Debug, PartialEq)]
struct Case {
    /// The package, followed by the test program unless the test is in the library, such as `e2e::scenarios`.
    binary: String,
    name: String,
    seconds: f64,
    passed: bool,
}

impl Report {
    /// Parses the report. An invalid report counts as a report without tests.
    pub(super) fn read(text: &str) -> Self {
        let suites =
            quick_junit::Report::deserialize_from_str(text).map(|it| it.test_suites).unwrap_or_default();
        let case = |case: quick_junit::TestCase| Case {
            binary: case.classname.map(|it| it.to_string()).unwrap_or_default(),
            name: case.name.to_string(),
            seconds: case.time.unwrap_or_default().as_secs_f64(),
            passed: !matches!(case.status, TestCaseStatus::NonSuccess { .. }),
        };
        Self { cases: suites.into_iter().flat_map(|it| it.test_cases).map(case).collect() }
    }

    /// Returns the `n` slowest tests, one per line, and the total number of tests.
    pub(super) fn slowest(&self, n: usize) -> String {
        let mut cases: Vec<&Case> = self.cases.iter().collect();
        cases.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
        let sum: f64 = cases.iter().map(|case| case.seconds).sum();
        let mut text = format!("{} tests, {sum:.0} s in total; the slowest:\n", cases.len());
        for case in cases.into_iter().take(n) {
            // Writing into a String cannot fail.
            writeln!(text, "  {:6.1} s  {} {}", case.seconds, case.binary, case.name).ok();
        }
        text
    }

    /// Returns the commands that repeat the failed tests, one per line, with these variables and nextest flags.
    pub(super) fn failed(&self, variables: &str, flags: &str) -> String {
        let failed = self.cases.iter().filter(|case| !case.passed);
        let command = |case: &Case| {
            let Case { binary, name, .. } = case;
            format!("    {variables}cargo xtask test -- {flags}-E 'binary_id(={binary}) & test(={name})'\n")
        };
        failed.map(command).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::Report;

    const TEXT: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<testsuites name="nextest-run" tests="2" failures="1" errors="0" uuid="8d5a4a3b-3f0b-4d43-9a55-0a6a6f6f6c2e" timestamp="2026-01-02T03:04:05.000+00:00" time="1.5">
    <testsuite name="e2e::scenarios" tests="2" disabled="0" errors="0" failures="1">
        <testcase name="a::good" classname="e2e::scenarios" timestamp="2026-01-02T03:04:05.000+00:00" time="1.500">
        </testcase>
        <testcase name="a::bad" classname="e2e::scenarios" timestamp="2026-01-02T03:04:05.000+00:00" time="2.250">
            <failure message="thread 'a::bad' panicked at x" type="test failure with exit code 101">text</failure>
            <system-out>&lt;testcase name=&quot;no&quot;</system-out>
        </testcase>
    </testsuite>
</testsuites>"#;

    #[test]
    fn failures_are_listed_with_the_command_that_repeats_each() {
        let report = Report::read(TEXT);
        let again = report.failed("A=1 ", "--all ");
        assert_eq!(
            again,
            "    A=1 cargo xtask test -- --all -E 'binary_id(=e2e::scenarios) & test(=a::bad)'\n"
        );
        let slowest = report.slowest(1);
        assert!(slowest.starts_with("2 tests, 4 s in total"), "{slowest}");
        assert!(
            slowest.contains("2.2 s  e2e::scenarios a::bad") && !slowest.contains("a::good"),
            "{slowest}"
        );
        assert_eq!(Report::read("").failed("", ""), "");
    }
}
