//! Parses nextest's JUnit report: the duration of each test, and which tests failed. Reads line by line, because nextest writes one element
//! per line.

use std::fmt::Write as _;

/// All tests of a run.
#[derive(Debug, Default)]
pub(super) struct Report {
    cases: Vec<Case>,
}

/// A test that was run.
#[derive(Debug, PartialEq)]
struct Case {
    /// The package, followed by the test program unless the test is in the library, such as `e2e::scenarios`.
    binary: String,
    name: String,
    seconds: f64,
    passed: bool,
}

impl Report {
    pub(super) fn read(text: &str) -> Self {
        let mut cases: Vec<Case> = Vec::new();
        for line in text.lines().map(str::trim) {
            if let Some(rest) = line.strip_prefix("<testcase ") {
                cases.extend(Case::read(rest));
            } else if (line.starts_with("<failure") || line.starts_with("<error"))
                && let Some(case) = cases.last_mut()
            {
                case.passed = false;
            }
        }
        Self { cases }
    }

    /// Returns the slowest tests, one per line, with the number of all tests.
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

impl Case {
    fn read(attributes: &str) -> Option<Self> {
        let value = |name: &str| {
            let (_, rest) = attributes.split_once(&format!("{name}=\""))?;
            rest.split_once('"').map(|(value, _)| value)
        };
        // The first `name`, since `classname` ends with the same word.
        let name = attributes.strip_prefix("name=\"")?.split_once('"')?.0.to_owned();
        let seconds = value(" time").and_then(|text| text.parse().ok()).unwrap_or_default();
        Some(Self { binary: value("classname")?.to_owned(), name, seconds, passed: true })
    }
}

#[cfg(test)]
mod tests {
    use super::Report;

    const TEXT: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<testsuites name="nextest-run" tests="2" failures="1" errors="0" uuid="x" timestamp="x" time="1.5">
    <testsuite name="e2e::scenarios" tests="2" disabled="0" errors="0" failures="1">
        <testcase name="a::good" classname="e2e::scenarios" timestamp="x" time="1.500">
        </testcase>
        <testcase name="a::bad" classname="e2e::scenarios" timestamp="x" time="2.250">
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
