//! Tests with tables to which release a node belongs.

use controller_core::testing::{BEGIN, NodeBuilder, node};
use jiff::ToSpan as _;

use super::*;
use crate::mirror::{trim_instance, trim_node_by};

const REGION: &str = "topology.kubernetes.io/region";

fn shared() -> LabelRules {
    LabelRules {
        selector: Some(Selector::read("topology.kubernetes.io/region=eu,!example.com/metal").unwrap()),
        owner: Some(OwnerLabel { key: OWNER_LABEL.to_owned(), cloud: "eu".to_owned() }),
        ..LabelRules::default()
    }
}

fn why(node: NodeBuilder, rules: &LabelRules, scheme: Option<&str>) -> String {
    let node = trim_node_by(rules, &node.build());
    apart(&node, rules, scheme).map_or_else(String::new, |apart| apart.to_string())
}

// Behaviour: NI21, NI22, NI23
#[test]
fn label_provider_id_and_selector_decide_whose_a_node_is() {
    let id = |id: &str| node("a").provider_id(id);
    let eu = || node("a").label(REGION, "eu");
    let cases = [
        ("selected", eu(), ""),
        ("not selected", node("a"), "do not match nodeController.nodes.selector"),
        ("selected, but for one label", eu().label("example.com/metal", ""), "do not match"),
        ("our label without the selector", node("a").label(OWNER_LABEL, "eu"), ""),
        (
            "another label, selected",
            eu().label(OWNER_LABEL, "us"),
            "it has the label cloudadapter.dev/cloud=us",
        ),
        ("an empty label", eu().label(OWNER_LABEL, ""), "the cloud of this release is eu"),
        ("our scheme, not selected", id("sim://north/i-1"), ""),
        ("our scheme, another label", id("sim://north/i-1").label(OWNER_LABEL, "us"), "it has the label"),
        (
            "another scheme, our label",
            id("aws:///z/i").label(OWNER_LABEL, "eu"),
            "does not belong to cloud sim://",
        ),
        ("another scheme, new", id("aws:///z/i").uninitialised(), "its provider ID aws:///z/i does not"),
        ("an invalid ID", id("test-provider-id"), ""),
    ];
    for (name, node, words) in cases {
        for node in [node.clone(), node.ready("True")] {
            let why = why(node, &shared(), Some("sim"));
            assert_eq!(why.is_empty(), words.is_empty(), "{name}: {why}");
            let starts = why.is_empty() || why.starts_with("not this release's node: ");
            assert!(starts && why.contains(words), "{name}: {why}");
        }
    }
}

// Behaviour: NI10, NI21
#[test]
fn release_that_shares_no_nodes_has_all_nodes_but_those_of_another_scheme() {
    let rules = LabelRules::default();
    let foreign = || node("a").provider_id("aws:///z/i");
    for node in [node("a"), node("a").label(OWNER_LABEL, "us"), foreign().uninitialised()] {
        assert_eq!(why(node, &rules, Some("sim")), "");
    }
    assert_eq!(why(foreign(), &rules, None), "", "the scheme is not known yet");
    assert!(why(foreign(), &rules, Some("sim")).contains("aws:///z/i does not belong to cloud sim://"));
}

#[test]
fn node_waits_until_the_scheme_of_a_shared_cluster_is_known() {
    let known = || node("a").provider_id("sim://north/i-1");
    assert!(why(known(), &shared(), None).contains("has not reported yet"));
    assert_eq!(why(node("a").label(REGION, "eu"), &shared(), None), "");
}

// Behaviour: NI23
#[test]
fn owner_label_replaces_that_of_the_vendor() {
    let instance = controller_core::testing::instance("sim://north/i-1").label(OWNER_LABEL, "vendor");
    let instance = Arc::new(trim_instance(instance.label("example.com/rack", "r1").build()));
    let labelled = shared().label(Arc::clone(&instance));
    let labels: Vec<_> = labelled.extra_labels.iter().collect();
    assert_eq!(labels, [("example.com/rack", "r1"), (OWNER_LABEL, "eu")]);
    assert_eq!(LabelRules::default().label(Arc::clone(&instance)), instance);
}

// Behaviour: NI24
#[test]
fn new_node_has_a_grace_period() {
    let rules = LabelRules::default();
    let new = trim_node_by(&rules, &node("a").created(BEGIN).build());
    assert_eq!(grace(&new, BEGIN), Some(GRACE));
    assert_eq!(grace(&new, BEGIN - 1.hours()), Some(GRACE), "the API server's clock is ahead");
    assert_eq!(grace(&new, BEGIN + 119.seconds()), Some(Duration::from_secs(1)));
    assert_eq!(grace(&new, BEGIN + 2.minutes()), None);
}
