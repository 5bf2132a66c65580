//! Tests of restarts of an adapter: no work is lost, and the cloud is listed once.

use adapter_sim::simcloud::Operation;
use cloud_api_proto::v1alpha1::LoadBalancerState;
use futures::future::join_all;
use serde_json::json;

use crate::{
    adapter::bench::{TestAdapter, bench, bench_with},
    support::until,
    support::wanted::{backend, spec, tcp},
};

#[tokio::test]
async fn after_a_restart_one_listing_serves_all() {
    let bench = bench().await;
    let mut requests = Vec::new();
    for n in 0..8 {
        requests.push(bench.adapter.request(&format!("web-{n}"), spec([tcp(80)]), &[backend(1)]).await);
    }
    join_all(requests.iter().map(|request| bench.adapter.ensured(request))).await;
    bench.adapter.kill().await;
    bench.cloud.count_from_here();
    let adapter = TestAdapter::start(&bench.cloud.url).await;
    adapter.ready().await;
    adapter.put(&[backend(1)]).await;
    for request in &requests {
        assert_eq!(adapter.ensured(request).await.state(), LoadBalancerState::Active);
    }
    let counts = bench.cloud.counts();
    assert_eq!(
        (counts.writes, counts.of(Operation::ListLoadBalancers), counts.of(Operation::GetProject)),
        (0, 1, 1)
    );
    assert_eq!(counts.total, 2);
}

#[tokio::test]
async fn next_process_completes_work_of_a_killed_adapter() {
    let bench = bench_with(json!({ "provisioning": { "create_ms": 50, "update_ms": 50 } })).await;
    let request = bench.adapter.request("web", spec([tcp(80), tcp(443), tcp(8080)]), &[backend(1)]).await;
    let mut client = bench.adapter.balancers();
    let order = tokio::time::timeout(
        std::time::Duration::from_millis(20),
        client.ensure_load_balancer(request.clone()),
    );
    assert!(order.await.is_err());
    until("the process did half of the work", async || bench.cloud.count(Operation::CreateListener) >= 1)
        .await;
    let half = bench.cloud.balancer().await;
    assert_eq!(half["tags"]["cloudadapter.dev/owner-uid"], json!("web"));
    assert_eq!(
        half["tags"]["cloudadapter.dev/hash"],
        json!(null),
        "the load balancer is not marked as complete"
    );
    bench.adapter.kill().await;

    let adapter = TestAdapter::start(&bench.cloud.url).await;
    adapter.ready().await;
    adapter.put(&[backend(1)]).await;
    assert_eq!(adapter.ensured(&request).await.state(), LoadBalancerState::Active);
    assert_eq!(bench.cloud.count(Operation::CreateLoadBalancer), 1);
    assert_eq!(bench.cloud.balancer().await["listeners"].as_array().map(Vec::len), Some(3));
}

#[tokio::test]
async fn sigterm_shuts_down_gracefully() {
    let mut bench = bench().await;
    bench.adapter.stop.cancel();
    let ended = tokio::time::timeout(crate::support::TIMEOUT, bench.adapter.serving.join_next()).await;
    ended.expect("in time").expect("served").expect("did not panic").expect("in order");
}
