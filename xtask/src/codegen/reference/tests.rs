//! Tests with the page of the whole contract and the page of a small contract.

use std::{collections::BTreeSet, path::Path};

use super::*;

fn contract() -> String {
    let proto = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cloud-api-proto/proto");
    page(&protox::compile(crate::codegen::FILES, [proto]).expect("the contract compiles"))
}

#[test]
fn elements_have_number_type_and_comment() {
    let page = contract();
    for wanted in [
        "\n## common.proto\n\nTypes that all services share",
        "\n#### InstanceService.BatchGetInstances\n\n[BatchGetInstancesRequest](#batchgetinstancesrequest) → ",
        "[WatchRoutesRequest](#watchroutesrequest) → stream of [WatchRoutesResponse](#watchroutesresponse)\n",
        "\n### InstanceAddress.Type\n\nAs in `Node.status.addresses`.\n",
        "\n| 4 | `max_staleness` | optional Duration | Maximum age of the answer. Unset: any age.",
        "\n| 2 | `calls_by_family` | map of string to uint32 | By family: ",
        "\n| 5 | `listeners` | repeated [Listener](#listener) | At least one, ",
        "\n### InstanceRef\n\nOne of `provider_id`, `node_name`.\n\n| | field | type | |\n",
        "\n| 1 | `provider_id` | string | |\n| 2 | `node_name` | string | A name can find",
        "\n| 2 | `EXISTENCE_GONE` | Proven gone.",
        "\n| 1 | `INSTANCE_STATE_RUNNING` | |\n",
    ] {
        assert!(page.contains(wanted), "{wanted:?} is missing in:\n{page}");
    }
}

#[test]
fn links_resolve() {
    let page = contract();
    let headings = page.lines().filter_map(|line| line.trim_start_matches('#').strip_prefix(' '));
    let anchors: BTreeSet<String> =
        headings.map(|heading| heading.replace('.', "").to_ascii_lowercase()).collect();
    for link in page.split("](#").skip(1) {
        let anchor = link.split(')').next().unwrap_or_default();
        assert!(anchors.contains(anchor), "#{anchor}");
    }
}
