//! Checks that the documentation shows the output of the program.

use crate::{
    limits::{Cloud, Question, simulate},
    output::{Format, written},
};

const PAGE: &str = include_str!("../../../../docs/limits.md");
const COMMAND: &str = "$ cloudctl limits simulate --nodes 1000 --services 300 --limits limits.yaml\n";

fn between<'a>(text: &'a str, before: &str, after: &str) -> &'a str {
    let (_, rest) = text.split_once(before).expect("the page has the begin");
    rest.split_once(after).expect("the page has the end").0
}

#[test]
fn the_page_shows_what_a_simulation_prints() {
    let section = between(PAGE, "\n## Trying a limit out\n", "\n## ");
    let file = between(section, "```yaml\n", "```");
    let shown = between(section, COMMAND, "```");
    let question = Question::new(1_000, 300, file, Cloud::Sim).expect("valid");
    assert_eq!(
        written(&simulate(&question), Format::Table, false).expect("written"),
        shown,
        "copy the printed text into docs/limits.md"
    );
}
