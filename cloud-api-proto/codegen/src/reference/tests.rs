//! The page of the contract itself, and of a small one.

use std::{collections::BTreeSet, path::Path};

use super::*;

fn contract() -> String {
    let proto = Path::new(env!("CARGO_MANIFEST_DIR")).join("../proto");
    page(&protox::compile(crate::FILES, [proto]).expect("the contract compiles"))
}

#[test]
fn each_thing_has_its_place_its_type_and_its_comment() {
    let page = contract();
    for wanted in [
        "\n## common.proto\n\nWhat all services of the contract share",
        "\n#### InstanceService.BatchGetInstances\n\n[BatchGetInstancesRequest](#batchgetinstancesrequest) → ",
        "[WatchRoutesRequest](#watchroutesrequest) → stream of [WatchRoutesResponse](#watchroutesresponse)\n",
        "\n### Evidence.Method\n\nHow absence was seen.\n",
        "\n| 4 | `max_staleness` | optional Duration | The oldest answer that will do. Unset: whatever",
        "\n| 2 | `calls_by_family` | map of string to uint32 | The same by family",
        "\n| 5 | `listeners` | repeated [Listener](#listener) | What it listens on.",
        "\n| 1 | `provider_id` | string | *One of `ref`.* By what the Node says. At most 512 bytes. |",
        "\n| 2 | `EXISTENCE_GONE` | Proven gone, with evidence.",
    ] {
        assert!(page.contains(wanted), "{wanted:?} is missing in:\n{page}");
    }
}

#[test]
fn every_link_leads_somewhere_and_nothing_is_without_words() {
    let page = contract();
    let headings = page.lines().filter_map(|line| line.trim_start_matches('#').strip_prefix(' '));
    let anchors: BTreeSet<String> =
        headings.map(|heading| heading.replace('.', "").to_ascii_lowercase()).collect();
    for link in page.split("](#").skip(1) {
        let anchor = link.split(')').next().unwrap_or_default();
        assert!(anchors.contains(anchor), "#{anchor}");
    }
    for line in page.lines() {
        assert!(!line.ends_with("|  |"), "no comment: {line}");
    }
}
