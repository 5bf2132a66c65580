//! Tests of instances: the watch, and the existence of single instances.

use std::time::Duration;

use cloud_api_proto::{
    Reason,
    v1alpha1::{
        Existence, InstanceResult, WatchInstancesRequest, cost::Source, evidence::Method, instance_ref::Ref,
        watch_instances_response::Event,
    },
};
use reqwest::Method as Http;
use serde_json::{Value, json};
use tonic::Streaming;

use crate::{
    adapter::bench::{Bench, bench, bench_with},
    support::{TIMEOUT, until},
    support::{context, live},
};

type Stream = Streaming<cloud_api_proto::v1alpha1::WatchInstancesResponse>;

async fn watch(bench: &Bench, stop_when_synced: bool, resume_token: &str) -> Stream {
    let resume_token = resume_token.to_owned();
    let request = WatchInstancesRequest { context: Some(context()), stop_when_synced, resume_token };
    bench.adapter.instances().watch_instances(request).await.expect("a stream").into_inner()
}

async fn next(stream: &mut Stream) -> Option<Event> {
    let message = tokio::time::timeout(TIMEOUT, stream.message()).await.expect("in time").expect("no error");
    message.map(|message| message.event.expect("an event"))
}

async fn change(stream: &mut Stream) -> Event {
    loop {
        let event = next(stream).await.expect("the stream continues");
        if !matches!(event, Event::Bookmark(_)) {
            return event;
        }
    }
}

fn id(n: u32) -> Ref {
    Ref::ProviderId(format!("sim://sim-1/i-{n:04}"))
}

#[tokio::test]
async fn a_watch_that_stops_when_synced_is_a_list() {
    let bench = bench_with(json!({ "page_size_max": 100 })).await;
    bench.cloud.machines(1050).await;
    let mut stream = watch(&bench, true, "").await;
    let Some(Event::Reset(reset)) = next(&mut stream).await else { panic!("RESET comes first") };
    assert_eq!(reset.scope.expect("reported").region, "sim-1");
    let (mut sizes, mut names) = (Vec::new(), Vec::new());
    let synced = loop {
        match next(&mut stream).await.expect("the stream has not ended") {
            Event::Items(items) => {
                sizes.push(items.items.len());
                names.extend(items.items.into_iter().map(|item| item.name));
            }
            Event::Synced(synced) => break synced,
            other @ (Event::Reset(_) | Event::Upsert(_) | Event::Gone(_) | Event::Bookmark(_)) => {
                panic!("{other:?}")
            }
        }
    };
    assert_eq!(sizes, [512, 512, 26]);
    assert_eq!((synced.count, names.len()), (1050, 1050));
    assert!(!synced.token.is_empty() && synced.observed_at.is_some());
    assert_eq!(next(&mut stream).await, None, "and the stream ends");
    assert_eq!(bench.cloud.counts().total, 11, "one listing of eleven pages");
}

#[tokio::test]
async fn many_watchers_share_one_listing() {
    let bench = bench().await;
    bench.cloud.machines(3).await;
    let mut streams = Vec::new();
    for _ in 0..20 {
        streams.push(watch(&bench, false, "").await);
    }
    for stream in &mut streams {
        assert!(matches!(change(stream).await, Event::Reset(_)));
        assert!(matches!(change(stream).await, Event::Items(items) if items.items.len() == 3));
        assert!(matches!(change(stream).await, Event::Synced(synced) if synced.count == 3));
    }
    assert_eq!(bench.cloud.counts().total, 1);
}

#[tokio::test]
async fn watch_reports_changes_and_resumes_after_its_token() {
    let bench = bench().await;
    bench.cloud.machines(2).await;
    let mut stream = watch(&bench, false, "").await;
    let token = loop {
        if let Event::Synced(synced) = change(&mut stream).await {
            break synced.token;
        }
    };
    bench.cloud.admin(Http::PATCH, "instances/i-0001", json!({ "status": "stopped" })).await;
    bench.cloud.admin(Http::DELETE, "instances/i-0002", Value::Null).await;
    // One request for live data updates the listing for all watchers.
    bench.adapter.batch_get(live(), [id(1)]).await.expect("possible");
    let mut second = watch(&bench, false, &token).await;
    for stream in [&mut stream, &mut second] {
        let mut events = vec![change(stream).await, change(stream).await];
        events.sort_by_key(|event| matches!(event, Event::Gone(_)));
        let Event::Upsert(instance) = &events[0] else { panic!("{events:?}") };
        assert_eq!((instance.name.as_str(), instance.vendor_state.as_str()), ("node-1", "stopped"));
        let Event::Gone(gone) = &events[1] else { panic!("{events:?}") };
        assert_eq!(gone.provider_id, "sim://sim-1/i-0002");
        assert_eq!(gone.evidence, None, "a listing proves no absence");
    }
}

#[tokio::test]
async fn watch_token_of_another_process_starts_with_a_listing() {
    let bench = bench().await;
    let mut stream = watch(&bench, true, "123/instances/0").await;
    assert!(matches!(next(&mut stream).await, Some(Event::Reset(_))));
}

/// Repeats the request until the adapter reports the instance as GONE.
async fn gone(bench: &Bench, one: Ref) -> InstanceResult {
    let mut last = InstanceResult::default();
    until("the proof", async || {
        let answer = bench.adapter.batch_get(live(), [one.clone()]).await.expect("possible");
        last = answer.results[0].clone();
        last.existence() == Existence::Gone
    })
    .await;
    last
}

#[tokio::test]
async fn too_long_reference_fails_alone_without_vendor_call() {
    let bench = bench().await;
    let calls = bench.cloud.counts().total;
    let refs = [Ref::NodeName("x".repeat(257)), Ref::ProviderId(format!("sim://sim-1/{}", "x".repeat(501)))];
    let answer = bench.adapter.batch_get(live(), refs).await.expect("possible");
    for (result, field) in answer.results.iter().zip(["refs[0].node_name", "refs[1].provider_id"]) {
        let error = result.error.as_ref().expect("why");
        assert_eq!((result.existence(), error.reason()), (Existence::Unknown, Reason::FieldInvalid));
        assert!(error.message.starts_with(field), "{error:?}");
    }
    assert_eq!((answer.results.len(), bench.cloud.counts().total), (2, calls));
}

#[tokio::test]
async fn each_reference_has_its_own_result_in_order() {
    let bench = bench().await;
    bench.cloud.machines(4).await;
    bench.cloud.admin(Http::PATCH, "instances/i-0003", json!({ "status": "terminated" })).await;
    bench.adapter.batch_get(live(), (1..=4).map(id)).await.expect("seen once");
    bench.cloud.admin(Http::DELETE, "instances/i-0004", Value::Null).await;
    gone(&bench, id(4)).await;
    let calls = bench.cloud.counts().total;
    let refs = [
        id(2),
        id(4),
        Ref::ProviderId("aws:///eu-1/i-0001".into()),
        Ref::ProviderId("sim://sim-2/i-0001".into()),
        Ref::ProviderId("sim://sim-1/i-1,i-2".into()),
        Ref::NodeName("node-1".into()),
        Ref::NodeName("node-9".into()),
        id(3),
    ];
    let answer = bench.adapter.batch_get(live(), refs).await.expect("possible");
    let existence: Vec<_> = answer.results.iter().map(|result| result.existence()).collect();
    assert_eq!(
        existence,
        [
            Existence::Exists,
            Existence::Gone,
            Existence::Foreign,
            Existence::Foreign,
            Existence::Unknown,
            Existence::Exists,
            Existence::NotVisible,
            Existence::Gone,
        ]
    );
    let evidence = |at: usize| answer.results[at].evidence.clone().expect("proof");
    assert_eq!(evidence(1).method(), Method::DirectGetNotFound);
    assert!(evidence(1).witnesses >= 2);
    assert_eq!(evidence(7).method(), Method::TerminalState);
    let error = answer.results[4].error.clone().expect("why");
    assert_eq!(error.reason(), Reason::FieldInvalid);
    assert_eq!(
        bench.cloud.counts().total,
        calls + 2,
        "one listing, and one look-up of the instances that it lacks"
    );
}

#[tokio::test]
async fn unseen_instance_is_gone_only_after_the_horizon() {
    let bench = bench().await;
    bench.cloud.machines(1).await;
    let started = tokio::time::Instant::now();
    let first = bench.adapter.batch_get(live(), [id(1), id(99)]).await.expect("possible");
    assert_eq!(
        first.results[1].existence(),
        Existence::NotVisible,
        "the instance may be too new to be visible"
    );
    gone(&bench, id(99)).await;
    assert!(started.elapsed() >= Duration::from_secs(2), "the consistency horizon");
}

#[tokio::test]
async fn five_hundred_nodes_cost_one_lookup_then_nothing() {
    let bench = bench().await;
    bench.cloud.machines(500).await;
    let first = bench.adapter.batch_get(context(), (1..=500).map(id)).await.expect("possible");
    assert!(first.results.iter().all(|result| result.existence() == Existence::Exists));
    assert_eq!(bench.cloud.counts().total, 1);
    let again = bench.adapter.batch_get(context(), (1..=500).map(id)).await.expect("possible");
    let cost = again.cost.expect("reported");
    assert_eq!((cost.vendor_calls, cost.source()), (0, Source::Snapshot));
    assert_eq!(bench.cloud.counts().total, 1);
}

#[tokio::test]
async fn failed_listing_is_never_absence() {
    let bench = bench().await;
    bench.cloud.machines(1).await;
    for (status, times, reason) in [
        (401, 1, Reason::VendorAuth),
        (403, 1, Reason::VendorForbidden),
        // The adapter retries the call after the first failure.
        (429, 2, Reason::VendorThrottled),
        (503, 1, Reason::VendorUnavailable),
    ] {
        let rule = json!({ "match": { "operation": "*Instances" }, "when": { "next": times }, "action": { "respond": { "status": status } } });
        bench.cloud.fault(rule).await;
        let (found, error) =
            crate::adapter::bench::refused(bench.adapter.batch_get(live(), [id(1), id(2)]).await);
        assert_eq!(found, reason);
        assert!(error.retry_after.is_some(), "{reason}");
        assert_eq!(error.metadata.get("vendor_code").map(String::as_str), Some("injected"));
        assert!(error.metadata.contains_key("vendor_request_id"));
    }
}
