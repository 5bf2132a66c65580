//! Checks that docs/troubleshoot.md explains each reason of the controllers' Events and each reason of the adapter. Also checks that
//! docs/reference/events.md, which tests write, contains each of these Events.

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context, ensure};

use crate::{cargo, git};

const PAGE: &str = "docs/troubleshoot.md";
/// The headings of the page's tables, whose first columns contain the reasons.
const EVENTS: &str = "## Events";
const ERRORS: &str = "## Reasons of the adapter";
const SOURCES: [&str; 4] =
    ["controller-core/src", "node-controller/src", "route-controller/src", "service-controller/src"];
/// A text that every file that emits Events contains.
const MADE_OF: &str = "Notice";
/// Strings that look like a reason but are a kind, a type or an action, in files that emit Events. A new string must be added here or to
/// the page.
const OTHERS: [&str; 17] = [
    "Compare",
    "Delete",
    "Ensure",
    "Initialise",
    "LayRoute",
    "Lease",
    "Namespace",
    "Node",
    "Normal",
    "Read",
    "RemoveRoute",
    "Service",
    "Sweep",
    "Sync",
    "Update",
    "Warning",
    "Writer",
];
/// The page of Events, which unit tests of the controllers write.
const REFERENCE: &str = "docs/reference/events.md";
const CONTRACT: &str = "cloud-api-proto/proto/cloudadapter/v1alpha1/common.proto";
const ENUM: &str = "enum Reason {";
const PREFIX: &str = "REASON_";

/// Fails if the page does not explain a reason, or explains a reason that does not exist. The error lists these reasons.
pub(crate) fn are_explained() -> anyhow::Result<()> {
    let root = cargo::root();
    let read =
        |path: &str| fs::read_to_string(root.join(path)).with_context(|| format!("cannot read {path}"));
    let page = read(PAGE)?;
    let sources = git::texts(&SOURCES)?;
    let said: BTreeSet<String> = sources
        .iter()
        .filter(|(path, _)| is_product(path))
        .flat_map(|(_, source)| of_events(source))
        .collect();
    let listed: BTreeSet<String> = first_cells(read(REFERENCE)?.lines()).collect();
    let unlisted = differences("Events", &said, &listed);
    let cure = "add an example to the test `events_are_in_the_reference`, then run `cargo xtask metrics`";
    ensure!(unlisted.is_empty(), "{REFERENCE}: {cure}:\n  {}", unlisted.join("\n  "));
    let mut faults = differences("Events", &said, &explained(&page, EVENTS));
    faults.extend(differences("the contract", &of_contract(&read(CONTRACT)?), &explained(&page, ERRORS)));
    ensure!(faults.is_empty(), "{PAGE}:\n  {}", faults.join("\n  "));
    Ok(())
}

fn is_product(path: &str) -> bool {
    path.ends_with(".rs")
        && !path.ends_with("tests.rs")
        && !path.contains("/tests/")
        && !path.contains("/testing")
}

/// Returns the reasons that a file's Events can have: all strings in the file that look like a reason.
fn of_events(source: &str) -> BTreeSet<String> {
    let product = source.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    if !product.contains(MADE_OF) {
        return BTreeSet::new();
    }
    let code = product.lines().filter(|line| !line.trim_start().starts_with("//"));
    let strings = code.flat_map(|line| line.split('"').skip(1).step_by(2));
    strings.filter(|text| is_reason(text) && !OTHERS.contains(text)).map(str::to_owned).collect()
}

fn is_reason(text: &str) -> bool {
    text.len() > 3
        && text.starts_with(|c: char| c.is_ascii_uppercase())
        && text.chars().all(|c| c.is_ascii_alphabetic())
        && text.contains(|c: char| c.is_ascii_lowercase())
}

fn of_contract(proto: &str) -> BTreeSet<String> {
    let body = proto.split_once(ENUM).map_or("", |(_, rest)| rest);
    let values = body.lines().take_while(|line| line.trim() != "}");
    values.filter_map(|line| line.trim().strip_prefix(PREFIX)?.split(' ').next()).map(str::to_owned).collect()
}

/// Returns the code spans in the first column of the tables below a heading.
fn explained(page: &str, heading: &str) -> BTreeSet<String> {
    let below = page.lines().skip_while(|line| line.trim() != heading).skip(1);
    first_cells(below.take_while(|line| !line.starts_with("## "))).collect()
}

/// Returns the code spans in the first column of all tables.
fn first_cells<'a>(lines: impl Iterator<Item = &'a str>) -> impl Iterator<Item = String> {
    let cells = lines.filter_map(|line| line.strip_prefix('|')?.split('|').next());
    cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).map(str::to_owned)
}

fn differences(whose: &str, said: &BTreeSet<String>, explained: &BTreeSet<String>) -> Vec<String> {
    let missing =
        said.difference(explained).map(|reason| format!("does not explain {reason}, a reason of {whose}"));
    let gone =
        explained.difference(said).map(|reason| format!("explains {reason}, which is unknown to {whose}"));
    missing.chain(gone).collect()
}

#[cfg(test)]
mod tests {
    use super::{differences, explained, is_product, of_contract, of_events};

    #[test]
    fn reasons_are_found_where_events_are_made() {
        let source = "use Notice;\n// \"Commented\"\nconst A: &str = \"FailedTo\";\nreason: \"Synced\", action: \"Delete\", note: \"Not one\",\n\
                      #[cfg(test)]\nmod tests { \"InTests\" }\n";
        assert!(of_events(source).iter().eq(["FailedTo", "Synced"]), "{:?}", of_events(source));
        assert!(of_events("\"Synced\"").is_empty(), "emits no Events");
        assert!(
            is_product("a/src/b.rs") && !is_product("a/src/b/tests.rs") && !is_product("a/src/testing/c.rs")
        );
    }

    #[test]
    fn unexplained_and_obsolete_reasons_are_reported() {
        let proto = "enum Other {\n  REASON_X = 1;\n}\nenum Reason {\n  // REASON_NO\n  REASON_A_B = 0;\n  REASON_C = 1;\n}\nREASON_D = 1;\n";
        let page = "## Events\n| `X` | |\n## Reasons of the adapter\n| reason | |\n| --- | --- |\n| `C`, `OLD` | `not this` |\ntext `nor this`\n## End\n| `E` | |\n";
        let explained = explained(page, "## Reasons of the adapter");
        let expected = ["does not explain A_B, a reason of it", "explains OLD, which is unknown to it"];
        assert_eq!(differences("it", &of_contract(proto), &explained), expected);
    }
}
