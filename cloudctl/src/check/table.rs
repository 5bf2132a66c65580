//! The human-readable report.

use super::{Check, CheckReport, CheckResult, causes};
use crate::{
    missing::Missing,
    output::{Report, TextOutput, TextStyle},
    pods::cut,
    words::many,
};

impl Report for CheckReport {
    fn show(&self, paper: &mut TextOutput) {
        paper.line(match &self.release {
            None => {
                format!("The chart is not installed: checks before an installation in {}", self.namespace)
            }
            Some(name) if name.is_empty() => "Checks of the processes at the given URLs".to_owned(),
            Some(name) => format!("Checks of release {name} in {}", self.namespace),
        });
        for check in &self.checks {
            let (tone, text) = line(check);
            paper.toned(tone, &text);
        }
        let count = |result| self.checks.iter().filter(|it| it.result == result).count();
        let (failed, warned) = (count(CheckResult::Failed), count(CheckResult::Warning));
        let waiting = count(CheckResult::Waiting);
        let [all, failed, warned] =
            [self.checks.len(), failed, warned].map(|it| u64::try_from(it).unwrap_or(u64::MAX));
        paper.gap();
        let causes = causes::causes(&self.checks);
        if !causes.is_empty() {
            paper.line(format!("{}:", many(u64::try_from(causes.len()).unwrap_or(u64::MAX), "cause")));
        }
        for (check, following) in causes {
            paper.line(format!("  {}", cause(check, following)));
        }
        let waiting = if waiting == 0 { String::new() } else { format!("{waiting} waiting, ") };
        let text = format!("{}: {failed} failed, {waiting}{}", many(all, "check"), many(warned, "warning"));
        paper.toned(if failed == 0 { TextStyle::Good } else { TextStyle::Bad }, &text);
    }

    fn missing(&self) -> &[Missing] {
        &self.missing
    }

    fn is_well(&self) -> bool {
        self.is_fine()
    }
}

/// A failed check, without its hint and the end of a long text, which its own line has.
fn cause(check: &Check, following: usize) -> String {
    let found = if check.found.is_empty() { String::new() } else { format!(": {}", cut(&check.found)) };
    let others = match following {
        0 => String::new(),
        1 => " (1 other check fails because of it)".to_owned(),
        more => format!(" ({more} other checks fail because of it)"),
    };
    format!("FAILED  {}{found}{others}", check.name)
}

/// One line: the result, what should be the case, what was found, what to do, and where to read more.
fn line(check: &Check) -> (TextStyle, String) {
    let (tone, word) = match check.result {
        CheckResult::Ok => (TextStyle::Good, "ok      "),
        CheckResult::Waiting => (TextStyle::Warn, "waits   "),
        CheckResult::Warning => (TextStyle::Warn, "warning "),
        CheckResult::Failed => (TextStyle::Bad, "FAILED  "),
        CheckResult::Unknown => (TextStyle::Dim, "unknown "),
        CheckResult::Skipped => (TextStyle::Dim, "skipped "),
    };
    let found = if check.found.is_empty() { String::new() } else { format!(": {}", check.found) };
    let hint = check.hint.as_ref().map(|it| format!("; {it}")).unwrap_or_default();
    let link = check.link.as_ref().map(|it| format!(" ({it})")).unwrap_or_default();
    (tone, format!("{word}{}{found}{hint}{link}", check.name))
}
