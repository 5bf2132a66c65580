//! Tests of lost responses, refusals by the vendor, and load balancers in state ERROR.

use adapter_sim::simcloud::Operation;
use cloud_api_proto::{
    Reason,
    v1alpha1::{LoadBalancerState, Recreate},
};
use futures::future::join_all;
use serde_json::{Value, json};

use crate::{
    adapter::bench::{bench, bench_with, refused},
    support::until,
    support::wanted::{backend, spec, tcp},
};

fn once(operation: &str, action: &Value) -> Value {
    json!({ "match": { "operation": operation }, "when": { "next": 1 }, "action": action })
}

#[tokio::test]
async fn lost_answer_creates_no_duplicate() {
    let operations = ["CreateLoadBalancer", "CreateListener", "UpdateLoadBalancer"];
    let actions =
        [json!("close_after"), json!("truncate_body"), json!({ "respond_after": { "status": 504 } })];
    let cases =
        operations.iter().flat_map(|operation| actions.iter().map(move |action| (*operation, action)));
    join_all(cases.map(|(operation, action)| lost(operation, action))).await;
}

async fn lost(operation: &str, action: &Value) {
    let bench = bench().await;
    bench.cloud.fault(once(operation, action)).await;
    let request = bench.adapter.request("web", spec([tcp(80)]), &[backend(1)]).await;
    let made = bench.adapter.ensured(&request).await;
    assert_eq!(made.state(), LoadBalancerState::Active, "{operation} {action}");
    let balancer = bench.cloud.balancer().await;
    assert_eq!(balancer["listeners"].as_array().map(Vec::len), Some(1));
    assert_eq!(bench.cloud.counts().writes, 3, "{operation} {action}: no call was repeated");
}

#[tokio::test]
async fn failed_write_is_repeated_after_a_read() {
    let bench = bench().await;
    bench.cloud.fault(once("CreateListener", &json!({ "respond": { "status": 502 } }))).await;
    let request = bench.adapter.request("web", spec([tcp(80)]), &[backend(1)]).await;
    assert_eq!(bench.adapter.ensured(&request).await.state(), LoadBalancerState::Active);
    assert_eq!(bench.cloud.count(Operation::CreateListener), 2);
}

#[tokio::test]
async fn failure_is_reported_while_waiting_for_reads() {
    let bench = bench_with(json!({ "consistency_ms": 3000 })).await;
    let down =
        json!({ "match": { "operation": "CreateLoadBalancer" }, "action": { "respond": { "status": 503 } } });
    bench.cloud.fault(down).await;
    let request = bench.adapter.request("web", spec([tcp(80)]), &[backend(1)]).await;
    let (mut waits, mut lasts, mut refusal) = (None, None, None);
    until("the request waits for reads, then for the next try, and is refused now and then", async || {
        match bench.adapter.ensure(&request).await {
            Ok(answer) => {
                for condition in answer.conditions.into_iter().filter(|it| it.message.contains(" failed (")) {
                    let kind = if condition.r#type == "WriteFailed" { &mut lasts } else { &mut waits };
                    kind.get_or_insert(condition.message);
                }
            }
            Err(error) => refusal = Some(error.message),
        }
        waits.is_some() && lasts.is_some() && refusal.is_some()
    })
    .await;
    let (waits, lasts) = (waits.expect("reported"), lasts.expect("reported"));
    let refusal = refusal.expect("reported");
    assert!(refusal.starts_with("create load balancer "), "{refusal}");
    assert!(refusal.contains(" failed (503, OUTCOME_UNKNOWN): CreateLoadBalancer: "), "{refusal}");
    assert_eq!(waits, format!("{refusal}; the adapter first checks whether the write was made"));
    // The text after the last semicolon is the time of the next try. The controller ignores it when it compares errors.
    let (error, next) = lasts.rsplit_once("; ").expect("the next try");
    assert_eq!(error, refusal);
    assert!(next.starts_with("next try in about "), "{next}");
}

#[tokio::test]
async fn lagging_reads_create_no_duplicate() {
    let bench = bench_with(json!({ "consistency_ms": 700 })).await;
    let request = bench.adapter.request("web", spec([tcp(80), tcp(443)]), &[backend(1)]).await;
    assert_eq!(bench.adapter.ensured(&request).await.state(), LoadBalancerState::Active);
    let balancer = bench.cloud.balancer().await;
    assert_eq!(balancer["listeners"].as_array().map(Vec::len), Some(2));
    assert_eq!(bench.cloud.count(Operation::CreateLoadBalancer), 1);
    bench.adapter.deleted("web").await;
    assert_eq!(bench.cloud.state().await["load_balancers"], json!([]));
}

#[tokio::test]
async fn deletion_works_before_reads_show_the_object() {
    let bench = bench_with(json!({ "consistency_ms": 1500 })).await;
    let request = bench.adapter.request("web", spec([tcp(80)]), &[backend(1)]).await;
    let made = until("the create", async || bench.cloud.count(Operation::CreateLoadBalancer) == 1);
    tokio::select! {
        // The caller closes the connection as soon as the cloud has accepted the create.
        answer = bench.adapter.ensure(&request) => panic!("too early: {answer:?}"),
        () = made => (),
    }
    bench.adapter.deleted("web").await;
    assert_eq!(
        bench.cloud.state().await["load_balancers"],
        json!([]),
        "ABSENT must not be reported too early"
    );
}

#[tokio::test]
async fn refusal_names_the_step_and_quotes_the_vendor() {
    let bench = bench().await;
    let request = bench.adapter.request("web", spec([tcp(80)]), &[backend(1)]).await;
    for (action, reason) in [
        (json!({ "respond": { "status": 401 } }), Reason::VendorAuth),
        (json!({ "respond": { "status": 403 } }), Reason::VendorForbidden),
    ] {
        bench.cloud.fault(once("CreateLoadBalancer", &action)).await;
        let (found, error) = refused(bench.adapter.ensure(&request).await);
        assert_eq!(found, reason, "{error}");
        assert!(error.message.contains("create load balancer"), "{error}");
        assert!(error.metadata.contains_key("vendor_request_id"));
    }
    bench.cloud.settings(json!({ "quotas": { "load_balancers": 0 } })).await;
    let (found, error) = refused(bench.adapter.ensure(&request).await);
    assert_eq!(found, Reason::VendorQuota);
    assert!(error.retry_after >= Some(std::time::Duration::from_secs(300)));
}

#[tokio::test]
async fn throttled_write_is_retried_once_then_reported() {
    let bench = bench().await;
    let request = bench.adapter.request("web", spec([tcp(80)]), &[backend(1)]).await;
    let action = json!({ "respond": { "status": 429, "headers": { "retry-after": "1" } } });
    let twice =
        json!({ "match": { "operation": "CreateLoadBalancer" }, "when": { "next": 2 }, "action": action });
    bench.cloud.fault(twice).await;
    let mut reported = None;
    until("the refusal", async || {
        reported = bench.adapter.ensure(&request).await.err();
        reported.is_some()
    })
    .await;
    let error = reported.expect("a refusal");
    assert_eq!(error.reason, Reason::VendorThrottled, "{error}");
    assert!(error.message.contains("create load balancer"), "{error}");
    assert!(error.retry_after >= Some(std::time::Duration::from_secs(1)), "{error:?}");
    assert_eq!(bench.cloud.count(Operation::CreateLoadBalancer), 2);
}

#[tokio::test]
async fn error_is_reported_and_recreated_only_if_allowed() {
    let bench = bench().await;
    bench.cloud.fault(once("CreateListener", &json!("error_state"))).await;
    let mut request = bench.adapter.request("web", spec([tcp(80)]), &[backend(1)]).await;
    let broken = bench.adapter.ensured(&request).await;
    assert_eq!((broken.state(), broken.conditions.len()), (LoadBalancerState::Error, 1));
    request.recreate = Recreate::IfError.into();
    assert_eq!(bench.adapter.ensured(&request).await.state(), LoadBalancerState::Active);
    assert_eq!(bench.cloud.balancer().await["id"], json!("lb-0002"));
}
