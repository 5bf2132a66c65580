//! Tests of traces: the parent of each span, and the variables that enable traces.

use serde_json::json;
use telemetry::traces::testing::{Collector, Recorder};

use crate::{
    adapter::bench::bench,
    support::cloud::TestCloud,
    support::wanted::{backend, spec, tcp},
    support::{PROGRAM, Program, until},
};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

fn traced<T>(message: T) -> tonic::Request<T> {
    let mut request = tonic::Request::new(message);
    let parent = format!("00-{TRACE}-b7ad6b7169203331-01").parse().expect("ASCII");
    request.metadata_mut().insert("traceparent", parent);
    request
}

#[tokio::test]
async fn task_and_vendor_call_spans_belong_to_the_first_call() {
    let bench = bench().await;
    let request = bench.adapter.request("web", spec([tcp(80)]), &[backend(1)]).await;
    let recorder = Recorder::start();
    let mut client = bench.adapter.balancers();
    client.ensure_load_balancer(traced(request)).await.expect("possible");
    until("the task's end", async || {
        recorder.ended().iter().any(|span| span.name == "converge load balancer")
    })
    .await;
    let ended = recorder.ended();
    let mine: Vec<_> =
        ended.iter().filter(|span| span.span_context.trace_id().to_string() == TRACE).collect();
    let named = |name: &str| mine.iter().find(|span| span.name == name).expect(name);
    let serve = named("cloudadapter.v1alpha1.LoadBalancerService/EnsureLoadBalancer");
    let task = named("converge load balancer");
    let create = named("CreateLoadBalancer");
    assert_eq!(serve.parent_span_id.to_string(), "b7ad6b7169203331");
    assert_eq!(task.parent_span_id, serve.span_context.span_id());
    assert_eq!(create.parent_span_id, task.span_context.span_id());
}

/// Runs an adapter with these environment variables, from its start and self-check to a graceful shutdown. Returns its log.
async fn life(variables: &[(&str, &str)]) -> String {
    let cloud = TestCloud::start(json!({})).await;
    let variables: Vec<String> = variables.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let flags = [PROGRAM, "--endpoint", &cloud.url];
    let adapter = Program::start("env", variables.iter().map(String::as_str).chain(flags)).await;
    until("a vendor call", async || cloud.counts().total > 0).await;
    adapter.ended().await
}

#[tokio::test]
async fn endpoint_enables_traces_and_last_spans_are_sent() {
    let collector = Collector::start().await.expect("a free port");
    // The process sends its spans only when it ends.
    let seldom = ("OTEL_BSP_SCHEDULE_DELAY", "600000");
    let log = life(&[("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint()), seldom]).await;
    assert!(log.contains("Traces are sent") && !log.contains("cannot be sent"), "{log}");
    let received = collector.received();
    let call = received.iter().find(|span| span.attributes.contains_key("cloud.family"));
    let call = call.unwrap_or_else(|| panic!("a vendor call in {received:?}"));
    assert_eq!((call.service.as_str(), call.parent.as_str()), ("adapter-sim", ""), "{call:?}");
    assert!(call.attributes.contains_key("budget.waited_seconds"), "{call:?}");
}

// Behaviour: P23
#[tokio::test]
async fn traces_are_sent_only_if_configured() {
    let collector = Collector::start().await.expect("a free port");
    let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint());
    for (variable, said) in [
        (("OTEL_SDK_DISABLED", "true"), ""),
        (("OTEL_TRACES_EXPORTER", "none"), ""),
        (("OTEL_TRACES_SAMPLER", "always_off"), "Traces are sent"),
        (("OTEL_TRACES_SAMPLER", "sometimes"), "OTEL_TRACES_SAMPLER=sometimes: use always_on"),
        (("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"), "OTEL_EXPORTER_OTLP_PROTOCOL=grpc: use http/protobuf"),
    ] {
        let log = life(&[endpoint, variable]).await;
        assert!(log.contains(said), "{variable:?}: {log}");
        assert_eq!(collector.connections(), 0, "{variable:?}: {:?}", collector.received());
    }
}

#[tokio::test]
async fn unreachable_collector_loses_only_spans() {
    let endpoint = format!("http://{}", test_support::ports::loopback().expect("a free port"));
    let log = life(&[("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint), ("OTEL_BSP_SCHEDULE_DELAY", "10")]).await;
    assert_eq!(log.matches("Traces cannot be sent").count(), 1, "{log}");
}
