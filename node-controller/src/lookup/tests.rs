//! Tests for which node an answer is valid, and for how long.

use cloud_api_proto::v1alpha1::InstanceState;
use controller_core::testing::{NodeBuilder, instance, node};
use tokio::time::advance;

use super::*;
use crate::mirror::trim_node;

fn trimmed(node: NodeBuilder) -> Node {
    trim_node(&node.uninitialised().build())
}

fn answer_in(state: InstanceState, node: &Node) -> LookupResult {
    let instance = Some(instance("sim://north/i-1").named("a").state(state).build());
    answer(
        node,
        InstanceResult { existence: Existence::Exists.into(), instance, ..InstanceResult::default() },
    )
}

fn lookup_with(node: &Node) -> Lookup {
    let lookup = Lookup::default();
    let answer = answer_in(InstanceState::Running, node);
    lookup.state().answers.insert(asker(node), (Instant::now(), answer));
    lookup
}

#[tokio::test(start_paused = true)]
async fn answer_is_for_the_node_that_asked_and_not_for_its_name() {
    let (first, second) = (trimmed(node("a")), trimmed(node("a").uid("uid-a2")));
    let lookup = lookup_with(&first);
    assert!(lookup.answer(&second).is_none());
    assert!(matches!(lookup.answer(&first), Some(LookupResult::Seen(_))));
}

#[tokio::test(start_paused = true)]
async fn answer_expires() {
    let node = trimmed(node("a"));
    let lookup = lookup_with(&node);
    advance(KEEP / 2).await;
    assert!(lookup.answer(&node).is_some());
    advance(KEEP / 2).await;
    assert!(lookup.answer(&node).is_none());
}

#[tokio::test(start_paused = true)]
async fn initialised_node_drops_its_answer() {
    let node = trimmed(node("a"));
    let lookup = lookup_with(&node);
    lookup.forget(&node);
    assert!(lookup.answer(&node).is_none());
}

#[test]
fn ending_instance_is_not_found_by_name() {
    let (new, known) = (trimmed(node("a")), trimmed(node("a").provider_id("sim://north/i-1")));
    for state in [InstanceState::Terminating, InstanceState::Terminated] {
        assert!(matches!(answer_in(state, &new), LookupResult::NotVisible), "{state:?}");
        assert!(matches!(answer_in(state, &known), LookupResult::Seen(_)), "{state:?}");
    }
    assert!(matches!(answer_in(InstanceState::Stopped, &new), LookupResult::Seen(_)));
}

// Behaviour: W8
#[test]
fn existing_instance_without_its_fields_is_a_failure() {
    for existence in [Existence::Exists, Existence::Unknown, Existence::Unspecified] {
        let result = InstanceResult { existence: existence.into(), ..InstanceResult::default() };
        let answer = answer(&trimmed(node("a")), result);
        assert!(matches!(answer, LookupResult::Failed { again: Again::Backoff, .. }), "{answer:?}");
    }
}

#[test]
fn unknown_existence_is_a_failure() {
    let result = InstanceResult { existence: 99, ..InstanceResult::default() };
    assert!(matches!(answer(&trimmed(node("a")), result), LookupResult::Failed { .. }));
}
