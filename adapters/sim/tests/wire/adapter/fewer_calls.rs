//! Tests that many requests cause few vendor calls, as counted by the cloud. The properties P8 to P11 are in docs/limits.md.

use std::time::Duration;

use adapter_sim::simcloud::Operation;
use cloud_api_proto::v1alpha1::{
    Adoption, Existence, LoadBalancerKey, Priority, RequestContext, cost::Source, instance_ref::Ref,
};
use futures::future::join_all;
use serde_json::json;
use tokio::time::Instant;

use crate::{
    adapter::bench::{Bench, HORIZON, TestAdapter, bench, refused},
    adapter::ownership::{its_name, theirs},
    support::cloud::TestCloud,
    support::until,
    support::wanted::{backend, key, spec, tcp},
    support::{context, live},
};

/// The number of nodes of a large cluster, and the number of references in one request.
const NODES: u32 = 5000;
const REFS: u32 = 500;

fn id(n: u32) -> Ref {
    Ref::ProviderId(format!("sim://sim-1/i-{n:04}"))
}

fn within(seconds: i64) -> RequestContext {
    let max_staleness = Some(prost_types::Duration { seconds, nanos: 0 });
    RequestContext { max_staleness, ..context() }
}

/// Requests all nodes in ten concurrent requests. Returns the number of existing instances.
async fn ask_for_all(bench: &Bench, context: &RequestContext) -> usize {
    let asking = (0..NODES / REFS).map(|n| {
        let refs = (n * REFS + 1..=(n + 1) * REFS).map(id);
        bench.adapter.batch_get(context.clone(), refs)
    });
    let answers = join_all(asking).await;
    let results = answers.into_iter().flat_map(|answer| answer.expect("possible").results);
    results.filter(|result| result.existence() == Existence::Exists).count()
}

/// P8.
#[tokio::test]
async fn five_thousand_nodes_cost_one_call_per_page_then_none() {
    let bench = bench().await;
    bench.cloud.machines(NODES.into()).await;
    assert_eq!(ask_for_all(&bench, &live()).await, NODES as usize);
    let live = bench.cloud.counts().total;
    assert!(live <= 11, "{live} calls");
    for _ in 0..3 {
        assert_eq!(ask_for_all(&bench, &within(60)).await, NODES as usize);
        assert_eq!(ask_for_all(&bench, &context()).await, NODES as usize);
    }
    assert_eq!(bench.cloud.counts().total, live, "fresh data is not read again");
}

/// P10.
#[tokio::test]
async fn a_thousand_identical_questions_at_once_cost_one_call() {
    let bench = bench().await;
    bench.cloud.machines(1).await;
    let asking = (0..1000).map(|_| bench.adapter.batch_get(within(30), [id(1)]));
    for answer in join_all(asking).await {
        assert_eq!(answer.expect("possible").results[0].existence(), Existence::Exists);
    }
    assert_eq!(bench.cloud.counts().total, 1);
}

/// P11: a throttled batch is never split into single calls.
#[tokio::test]
async fn a_throttled_batch_never_becomes_single_calls() {
    let bench = bench().await;
    bench.cloud.machines(REFS.into()).await;
    let slow = json!({ "status": 429, "headers": { "retry-after": "60" } });
    bench.cloud.fault(json!({ "match": { "operation": "*Instances" }, "action": { "respond": slow } })).await;
    let (reason, error) = refused(bench.adapter.batch_get(live(), (1..=REFS).map(id)).await);
    assert_eq!(reason, cloud_api_proto::Reason::VendorThrottled);
    assert!(error.retry_after.is_some_and(|after| after >= Duration::from_secs(60)), "{error:?}");
    let again = join_all((0..20).map(|_| bench.adapter.batch_get(live(), (1..=REFS).map(id))));
    for answer in again.await {
        assert!(refused(answer).1.retry_after.is_some_and(|after| after >= Duration::from_secs(30)));
    }
    let calls = bench.cloud.counts().total;
    assert!(calls <= 2, "{calls} calls until the pause is over");
}

#[tokio::test]
async fn missing_key_is_not_read_repeatedly() {
    let bench = bench().await;
    bench.cloud.machines(3).await;
    for _ in 0..20 {
        let answer = bench.adapter.batch_get(context(), [id(1), id(99)]).await.expect("possible");
        assert_eq!(answer.results[1].existence(), Existence::NotVisible);
    }
    assert_eq!(bench.cloud.counts().total, 1);
    let answer = bench.adapter.batch_get(context(), [id(99)]).await.expect("possible");
    assert_eq!(answer.cost.expect("reported").source(), Source::Snapshot);
}

#[tokio::test]
async fn gone_instance_stays_gone_without_vendor_calls() {
    let bench = bench().await;
    bench.cloud.machines(3).await;
    bench.adapter.batch_get(live(), (1..=3).map(id)).await.expect("seen once");
    until("the proof", async || {
        let answer = bench.adapter.batch_get(live(), [id(1), id(99)]).await.expect("possible");
        answer.results[1].existence() == Existence::Gone
    })
    .await;
    let calls = bench.cloud.counts().total;
    for _ in 0..10 {
        let answer = bench.adapter.batch_get(context(), [id(99)]).await.expect("possible");
        assert_eq!(answer.results[0].existence(), Existence::Gone);
        let evidence = answer.results[0].evidence.clone().expect("proof");
        assert!(evidence.witnesses >= 1, "{evidence:?}");
    }
    assert_eq!(bench.cloud.counts().total, calls);
}

#[tokio::test]
async fn one_lookup_costs_one_call_in_a_large_cloud() {
    let bench = bench().await;
    bench.cloud.machines(NODES.into()).await;
    ask_for_all(&bench, &live()).await;
    bench.cloud.count_from_here();
    let answer = bench.adapter.batch_get(live(), [id(7)]).await.expect("possible");
    let cost = answer.cost.expect("reported");
    assert_eq!((cost.vendor_calls, cost.source()), (1, Source::Live));
    assert_eq!(bench.cloud.count(Operation::BatchGetInstances), 1);
    assert_eq!(bench.cloud.counts().total, 1);
}

#[tokio::test]
async fn reads_before_a_write_do_not_count_after_it() {
    let bench = bench().await;
    let first = bench.adapter.request("web", spec([tcp(80)]), &[backend(1)]).await;
    bench.adapter.ensured(&first).await;
    let failed = json!({ "respond": { "status": 503 } });
    let rule =
        json!({ "match": { "operation": "GetLoadBalancer" }, "when": { "next": 1 }, "action": failed });
    bench.cloud.fault(rule).await;
    let second = bench.adapter.request("web", spec([tcp(80), tcp(443)]), &[backend(1)]).await;
    refused(bench.adapter.ensure(&second).await);
    assert_eq!(
        bench.cloud.balancer().await["listeners"].as_array().map(Vec::len),
        Some(2),
        "the cloud has the change"
    );
    bench.adapter.ensured(&first).await;
    assert_eq!(bench.cloud.balancer().await["listeners"].as_array().map(Vec::len), Some(1));
}

async fn many_pages() -> Bench {
    many_pages_after(0).await
}

/// Starts a cloud with three load balancers, and an adapter. The page size is one, so a listing costs three calls. Reads lag by this
/// duration.
async fn many_pages_after(consistency_ms: u64) -> Bench {
    let provisioning = json!({ "create_ms": 50, "update_ms": 50, "delete_ms": 0 });
    let settings = json!({ "provisioning": provisioning, "consistency_ms": consistency_ms });
    let cloud = TestCloud::start(settings).await;
    let cache = "cache: {loadBalancers: {maxAge: 1h, pageSize: 1}}";
    let adapter = TestAdapter::start_with(&cloud.url, cache).await;
    adapter.ready().await;
    let ready = Instant::now();
    for uid in ["a", "b", "c"] {
        let request = adapter.request(uid, spec([tcp(80)]), &[backend(1)]).await;
        adapter.ensured(&request).await;
    }
    // While its listing is younger than the horizon, the adapter lists again, because a previous process may have written shortly before.
    let late = async || {
        let mut request = adapter.request("a", spec([tcp(80)]), &[backend(1)]).await;
        request.context = Some(within(0));
        adapter.ensured(&request).await;
        ready.elapsed() > HORIZON
    };
    until("a listing that shows all", late).await;
    cloud.count_from_here();
    Bench { cloud, adapter }
}

/// Reads of a single key have the same consistency lag as listings.
#[tokio::test]
async fn create_with_lost_answer_waits_for_reads() {
    let bench = many_pages_after(700).await;
    let action = json!({ "respond_after": { "status": 504 } });
    let rule =
        json!({ "match": { "operation": "CreateLoadBalancer" }, "when": { "next": 1 }, "action": action });
    bench.cloud.fault(rule).await;
    let request = bench.adapter.request("web", spec([tcp(80)]), &[backend(1)]).await;
    bench.adapter.ensured(&request).await;
    assert_eq!(bench.cloud.count(Operation::CreateLoadBalancer), 1);
    let state = bench.cloud.state().await;
    assert_eq!(state["load_balancers"].as_array().map(Vec::len), Some(4));
}

/// One read proves that the key does not exist yet. From then on, the adapter reads only this key.
#[tokio::test]
async fn urgent_load_balancer_is_polled_alone() {
    let bench = many_pages().await;
    let request = bench.adapter.request("web", spec([tcp(80)]), &[backend(1)]).await;
    bench.adapter.ensured(&request).await;
    let counts = bench.cloud.counts();
    let (alone, listed) = (counts.of(Operation::GetLoadBalancer), counts.of(Operation::ListLoadBalancers));
    assert!((3..=9).contains(&alone), "after each of its three writes: {counts:?}");
    assert_eq!(listed, 1, "{counts:?}");
    bench.cloud.count_from_here();
    let request = bench.adapter.request("web", spec([tcp(80), tcp(443)]), &[backend(1)]).await;
    bench.adapter.ensured(&request).await;
    let counts = bench.cloud.counts();
    assert!(counts.of(Operation::GetLoadBalancer) > 0, "{counts:?}");
    assert_eq!(counts.of(Operation::ListLoadBalancers), 0, "{counts:?}");
}

/// The previous listing does not show the load balancer.
#[tokio::test]
async fn existing_load_balancer_is_found_before_a_create() {
    let bench = many_pages().await;
    let LoadBalancerKey { cluster_id, owner_uid } = key("web");
    let tags = json!({ "cloudadapter.dev/cluster-id": cluster_id, "cloudadapter.dev/owner-uid": owner_uid });
    let id = theirs(&bench, "made-before", tags).await;
    let request = bench.adapter.request("web", spec([tcp(80)]), &[backend(1)]).await;
    let made = bench.adapter.ensured(&request).await;
    assert_eq!(made.vendor_ids.expect("reported").ids["loadbalancer"], id);
    let counts = bench.cloud.counts();
    assert_eq!(counts.of(Operation::CreateLoadBalancer), 0, "{counts:?}");
    assert_eq!(counts.of(Operation::ListLoadBalancers), 1, "{counts:?}");
}

/// Only a listing can find a load balancer without owner tags.
#[tokio::test]
async fn adoption_needs_the_whole_listing() {
    let bench = many_pages().await;
    let id = theirs(&bench, &its_name(&bench).await, json!({})).await;
    let mut request = bench.adapter.request("web", spec([tcp(80)]), &[backend(1)]).await;
    request.adoption = Adoption::IfUnowned.into();
    let made = bench.adapter.ensured(&request).await;
    assert_eq!(made.vendor_ids.expect("reported").ids["loadbalancer"], id);
}

/// If one listing is cheaper than single reads, the adapter lists.
#[tokio::test]
async fn many_urgent_load_balancers_are_polled_together() {
    let bench = many_pages().await;
    let uids: Vec<String> = (0..12).map(|n| format!("web-{n}")).collect();
    join_all(uids.iter().map(async |uid| {
        let request = bench.adapter.request(uid, spec([tcp(80)]), &[backend(1)]).await;
        bench.adapter.ensured(&request).await;
    }))
    .await;
    let counts = bench.cloud.counts();
    let alone = counts.of(Operation::GetLoadBalancer);
    assert!(alone < 3 * 12, "most keys were listed: {counts:?}");
    assert!(counts.of(Operation::ListLoadBalancers) > 4, "{counts:?}");
}

/// No user waits for the changes of a resync, so the adapter does not read single keys.
#[tokio::test]
async fn background_work_uses_listings() {
    let bench = many_pages().await;
    let mut request = bench.adapter.request("a", spec([tcp(80), tcp(443)]), &[backend(1)]).await;
    let context = RequestContext { priority: Priority::Background.into(), ..context() };
    request.context = Some(context);
    bench.adapter.ensured(&request).await;
    let counts = bench.cloud.counts();
    assert_eq!(counts.of(Operation::GetLoadBalancer), 0, "{counts:?}");
    assert!(counts.of(Operation::ListLoadBalancers) > 0, "{counts:?}");
}
