//! Tests of load balancers: creation, change and deletion, and the cost of each.

use std::time::Duration;

use adapter_sim::simcloud::Operation;
use cloud_api_proto::v1alpha1::{
    BackendDelta, DeleteLoadBalancerRequest, EnsureLoadBalancerRequest, LoadBalancerState,
    PutBackendSetRequest, Recreate, WatchLoadBalancersRequest, cost::Source, load_balancer_spec::Scheme,
    put_backend_set_request::Content, watch_load_balancers_response::Event,
};
use serde_json::json;

use crate::{
    adapter::bench::{Bench, bench, bench_with},
    support::context,
    support::wanted::{backend, deletion, key, owner, spec, tcp, udp},
    support::{TIMEOUT, until},
};

/// Sends a request and closes the connection. The work continues without the caller.
async fn order(bench: &Bench, request: EnsureLoadBalancerRequest) {
    let mut client = bench.adapter.balancers();
    let asked = tokio::time::timeout(Duration::from_millis(50), client.ensure_load_balancer(request));
    assert!(asked.await.is_err(), "the caller closed the connection");
}

#[tokio::test]
async fn ensure_creates_once_and_repetition_costs_nothing() {
    let bench = bench().await;
    let request = bench.adapter.request("web", spec([tcp(80), udp(53)]), &[backend(1), backend(2)]).await;
    let made = bench.adapter.ensured(&request).await;
    assert_eq!(made.state(), LoadBalancerState::Active);
    assert_eq!((made.addresses.len(), made.applied_hash.is_empty()), (1, false));
    assert!(made.vendor_ids.expect("reported").ids.contains_key("listener/tcp/80"));
    assert_eq!(bench.cloud.counts().writes, 4);
    assert_eq!(bench.cloud.balancer().await["tags"]["cloudadapter.dev/hash"], json!(made.applied_hash));

    bench.cloud.count_from_here();
    for _ in 0..10 {
        let again = bench.adapter.ensure(&request).await.expect("possible");
        let cost = again.cost.clone().expect("reported");
        assert_eq!(
            (again.state(), cost.vendor_calls, cost.source()),
            (LoadBalancerState::Active, 0, Source::Memory)
        );
        assert_eq!(again.addresses, made.addresses);
    }
    assert_eq!(bench.cloud.counts().total, 0);
}

#[tokio::test]
async fn slow_load_balancer_stays_pending_until_active() {
    let provisioning = json!({ "provisioning": { "create_ms": 2200, "update_ms": 50, "delete_ms": 50 } });
    let bench = bench_with(provisioning).await;
    let request = bench.adapter.request("web", spec([tcp(80)]), &[backend(1)]).await;
    let pending = bench.adapter.ensure(&request).await.expect("possible");
    assert_eq!(pending.state(), LoadBalancerState::Pending, "a call waits for at most two seconds");
    assert_eq!((pending.step, pending.steps), (1, 3));
    assert_eq!(pending.conditions.len(), 1);
    assert_eq!(bench.adapter.ensured(&request).await.state(), LoadBalancerState::Active);
    assert_eq!(bench.cloud.counts().writes, 3);
}

#[tokio::test]
async fn added_backend_costs_a_delta_and_one_write_per_port() {
    let bench = bench().await;
    let mut request =
        bench.adapter.request("web", spec([tcp(80), tcp(443)]), &[backend(1), backend(2)]).await;
    let before = bench.adapter.ensured(&request).await;
    bench.cloud.count_from_here();
    let base_id = request.spec.as_ref().expect("set").backend_set_id.clone();
    let delta = BackendDelta { base_id, add: vec![backend(3)], remove: vec![backend(1).provider_id] };
    let content = Some(Content::Delta(delta));
    let put = PutBackendSetRequest { context: Some(context()), id: "next".into(), content };
    let size = bench.adapter.balancers().put_backend_set(put).await.expect("put").into_inner().size;
    assert_eq!(size, 2);
    request.spec.as_mut().expect("set").backend_set_id = "next".into();
    let after = bench.adapter.ensured(&request).await;
    assert_eq!(bench.cloud.counts().writes, 2);
    assert_eq!(after.applied_hash, before.applied_hash, "the hash does not depend on backends");
    let members = &bench.cloud.balancer().await["pools"][0]["members"];
    let ids: Vec<_> = [0, 1].map(|at| members[at]["instance_id"].clone()).into();
    assert_eq!(ids, [json!("i-0002"), json!("i-0003")]);
}

#[tokio::test]
async fn deletion_ends_when_a_listing_is_empty() {
    let bench = bench_with(json!({ "provisioning": { "delete_ms": 300 } })).await;
    let request = bench.adapter.request("web", spec([tcp(80), tcp(443)]), &[backend(1)]).await;
    bench.adapter.ensured(&request).await;
    bench.cloud.count_from_here();
    bench.adapter.deleted("web").await;
    assert_eq!(bench.cloud.counts().writes, 1);
    assert_eq!(bench.cloud.state().await["load_balancers"], json!([]));
    bench.adapter.deleted("web").await;
    bench.adapter.deleted("never-was").await;
    assert_eq!(bench.cloud.counts().writes, 1);
}

#[tokio::test]
async fn dry_run_lists_all_writes_and_makes_none() {
    let bench = bench().await;
    let mut request = bench.adapter.request("web", spec([tcp(80), tcp(443)]), &[backend(1)]).await;
    request.dry_run = true;
    let reported = bench.adapter.ensure(&request).await.expect("possible");
    let operations: Vec<_> = reported.plan.iter().map(|step| step.operation.as_str()).collect();
    let wanted = ["CreateLoadBalancer", "CreateListener", "CreateListener", "UpdateLoadBalancer"];
    assert_eq!(operations, wanted);
    assert!(reported.plan.iter().all(|step| step.family == "loadbalancer" && !step.description.is_empty()));
    assert_eq!(bench.cloud.counts().writes, 0);

    request.dry_run = false;
    bench.adapter.ensured(&request).await;
    bench.cloud.count_from_here();
    request.dry_run = true;
    assert_eq!(bench.adapter.ensure(&request).await.expect("possible").plan, []);
    let delete = DeleteLoadBalancerRequest { dry_run: true, fence: None, ..deletion("web") };
    let reported =
        bench.adapter.balancers().delete_load_balancer(delete).await.expect("possible").into_inner();
    assert_eq!(reported.plan.len(), 1);
    assert_eq!(bench.cloud.counts().writes, 0);
}

#[tokio::test]
async fn a_newer_desired_state_takes_over() {
    let provisioning = json!({ "provisioning": { "create_ms": 600, "update_ms": 50, "delete_ms": 50 } });
    let bench = bench_with(provisioning).await;
    let first = bench.adapter.request("web", spec([tcp(80), tcp(81)]), &[backend(1)]).await;
    order(&bench, first).await;
    let mut second = bench.adapter.request("web", spec([tcp(443)]), &[backend(1)]).await;
    second.fence = Some(crate::support::fence(1, 2));
    assert_eq!(bench.adapter.ensured(&second).await.state(), LoadBalancerState::Active);
    assert_eq!(bench.cloud.count(Operation::CreateListener), 1, "the former ports were never created");
    assert_eq!(bench.cloud.balancer().await["listeners"][0]["port"], json!(443));
}

#[tokio::test]
async fn immutable_change_recreates_only_if_allowed() {
    let bench = bench().await;
    let mut request = bench.adapter.request("web", spec([tcp(80)]), &[backend(1)]).await;
    bench.adapter.ensured(&request).await;
    request.spec.as_mut().expect("set").scheme = Scheme::Internal.into();
    let (reason, error) = crate::adapter::bench::refused(bench.adapter.ensure(&request).await);
    assert_eq!(reason, cloud_api_proto::Reason::ImmutableField);
    assert!(error.message.contains("spec.scheme"), "{error}");
    request.recreate = Recreate::IfImmutableChanged.into();
    assert_eq!(bench.adapter.ensured(&request).await.state(), LoadBalancerState::Active);
    let balancer = bench.cloud.balancer().await;
    assert_eq!((&balancer["id"], &balancer["scheme"]), (&json!("lb-0002"), &json!("internal")));
}

#[tokio::test]
async fn watch_lists_own_load_balancers_and_their_changes() {
    let bench = bench().await;
    let theirs = json!({ "name": "theirs", "scheme": "internet", "tags": { "team": "x" } });
    bench.cloud.vendor(reqwest::Method::POST, "load-balancers", theirs).await;
    let request = bench.adapter.request("web", spec([tcp(80)]), &[backend(1)]).await;
    bench.adapter.ensured(&request).await;

    let watch =
        WatchLoadBalancersRequest { context: Some(context()), ..WatchLoadBalancersRequest::default() };
    let mut stream =
        bench.adapter.balancers().watch_load_balancers(watch).await.expect("a stream").into_inner();
    let mut seen = Vec::new();
    let mut next = async || {
        let message =
            tokio::time::timeout(TIMEOUT, stream.message()).await.expect("in time").expect("no error");
        message.expect("the stream continues").event.expect("an event")
    };
    loop {
        match next().await {
            Event::Items(items) => seen.extend(items.items),
            Event::Synced(_) => break,
            Event::Reset(_) | Event::Upsert(_) | Event::Gone(_) | Event::Bookmark(_) => (),
        }
    }
    assert_eq!(seen.len(), 1);
    assert_eq!((seen[0].key.clone(), seen[0].owner.clone()), (Some(key("web")), Some(owner("web"))));
    assert_eq!(
        (seen[0].state(), seen[0].listeners.clone()),
        (LoadBalancerState::Active, vec!["tcp/80".to_owned()])
    );

    bench.adapter.deleted("web").await;
    loop {
        if let Event::Gone(gone) = next().await {
            assert_eq!(gone.key, Some(key("web")));
            break;
        }
    }
    let left = bench.cloud.balancer().await;
    assert_eq!(left["name"], json!("theirs"), "foreign objects are not changed");
}

#[tokio::test]
async fn closed_connection_does_not_interrupt_work() {
    let bench = bench_with(json!({ "provisioning": { "create_ms": 200, "update_ms": 50 } })).await;
    let request = bench.adapter.request("web", spec([tcp(80), tcp(443)]), &[backend(1)]).await;
    order(&bench, request).await;
    until("the last write", async || bench.cloud.count(Operation::UpdateLoadBalancer) == 1).await;
    assert_eq!(bench.cloud.counts().writes, 4);
}

#[tokio::test]
async fn twenty_pending_services_share_their_listings() {
    let bench = bench_with(json!({ "provisioning": { "create_ms": 1000, "update_ms": 10 } })).await;
    let mut requests = Vec::new();
    for n in 0..20 {
        requests.push(bench.adapter.request(&format!("web-{n}"), spec([tcp(80)]), &[backend(1)]).await);
    }
    for request in &requests {
        order(&bench, request.clone()).await;
    }
    for request in &requests {
        assert_eq!(bench.adapter.ensured(request).await.state(), LoadBalancerState::Active);
    }
    assert_eq!(bench.cloud.counts().writes, 60);
    let listings = bench.cloud.count(Operation::ListLoadBalancers);
    assert!(listings < 60, "{listings} listings for 20 Services with 3 writes each");
}
