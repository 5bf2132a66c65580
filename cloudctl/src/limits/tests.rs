//! Tests of `cloudctl limits simulate`: its figures, its page in the documentation, and the effect of following its advice.

mod figures;
mod page;
mod properties;

use super::{Cloud, Question, simulate};
use crate::output::{Format, written};

#[test]
fn a_simulation_is_printed_as_text_and_json() {
    let question = Question::new(3, 1, "{}", Cloud::Sim).expect("valid");
    let report = simulate(&question);
    let shown = written(&report, Format::Table, true).expect("UTF-8");
    assert!(shown.contains("\u{1b}[1m3 nodes, 1 Service, 3 routes\u{1b}[0m\n"), "{shown}");
    assert!(shown.contains("\n  converged after "), "{shown}");
    for format in [Format::Json, Format::Yaml] {
        let text = written(&report, format, false).expect("printed");
        assert!(text.contains("convergedSeconds") && text.contains("callsPerHour"), "{text}");
    }
}
