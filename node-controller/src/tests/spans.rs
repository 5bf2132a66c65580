//! Tests that work for many nodes at once has its own trace, linked to the reconciles that need the work.

use std::time::Duration;

use controller_core::testing::{eventually, instance, node};
use k8s_openapi::api::core::v1::Node;
use telemetry::traces::testing::{Recorder, SpanData, attribute};
use tokio::time::sleep;

use super::world::{World, id, known};

/// Returns the parent of the first span of this name.
fn root<'a>(ended: &'a [SpanData], name: &str) -> &'a SpanData {
    let span = ended.iter().find(|span| span.name == name).expect(name);
    let trace = span.span_context.trace_id();
    let mut of_trace = ended.iter().filter(|other| other.span_context.trace_id() == trace);
    of_trace.find(|other| other.span_context.span_id() == span.parent_span_id).expect("its parent")
}

fn links_to<'a>(ended: &'a [SpanData], from: &SpanData) -> Vec<&'a SpanData> {
    let ids: Vec<_> = from.links.iter().map(|link| link.span_context.span_id()).collect();
    ended.iter().filter(|span| ids.contains(&span.span_context.span_id())).collect()
}

// Behaviour: P23
#[tokio::test(start_paused = true)]
async fn look_up_trace_is_linked_to_its_reconciles() {
    let recorder = Recorder::start();
    let mut world = World::new();
    world.start();
    world.put_unlisted(&id("a"), "a");
    world.kube.put::<Node>(node("a").uninitialised());
    eventually("the node is initialised", || world.is_initialised("a")).await;
    world.stop().await;

    let ended = recorder.ended();
    let asked = root(&ended, "BatchGetInstances");
    assert_eq!((asked.name.as_ref(), attribute(asked, "nodes").as_str()), ("look up instances", "1"));
    let reconciles = links_to(&ended, asked);
    let reconciles: Vec<_> = reconciles
        .iter()
        .map(|reconcile| (reconcile.name.as_ref(), attribute(reconcile, "reconcile.key")))
        .collect();
    assert_eq!(reconciles, [("reconcile Nodes", "a".to_owned())]);
}

// Behaviour: P23
#[tokio::test(start_paused = true)]
async fn deletion_trace_is_linked_to_its_request() {
    let recorder = Recorder::start();
    let mut world = World::new();
    world.cloud.put(instance(&id("a")).named("a"));
    world.kube.put::<Node>(known("a").ready("True"));
    world.start();
    sleep(Duration::from_secs(601)).await;
    world.lose("a");
    eventually("the node is deleted", || !world.exists("a")).await;
    world.stop().await;

    let ended = recorder.ended();
    let deleted = ended.iter().find(|span| span.name == "delete nodes").expect("the deletion");
    assert_eq!(attribute(deleted, "nodes"), "1");
    let [asked] = links_to(&ended, deleted).try_into().expect("one request");
    assert_eq!(asked.name, "ask about absent nodes");
    let call = ended.iter().rev().find(|span| span.name == "BatchGetInstances").expect("the call");
    assert_eq!(call.parent_span_id, asked.span_context.span_id());
}
