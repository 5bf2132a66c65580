//! Tests of how the driver classifies the errors of a faulty cloud.

use std::time::Duration;

use adapter_sim::simcloud::Operation;
use cloud_adapter::driver::{Collection, Driver as _, Fault};
use cloud_api_proto::v1alpha1::{Fence, Instance};
use serde_json::{Value, json};

use crate::{
    driver::bench::{Bench, bench, desired},
    support::wanted::{backend, spec, tcp},
};

/// Creates a load balancer while the cloud applies this action to the first write. Returns the fault.
async fn creating(bench: &Bench, action: Value) -> Fault {
    bench.cloud.fault(json!({ "match": { "operation": "CreateLoadBalancer" }, "when": { "next": 1 }, "action": action })).await;
    let steps = bench.driver.plan(&desired(spec([tcp(80)]), []), &Fence::default(), None).expect("possible");
    bench.driver.execute(&bench.session, &steps[0]).await.expect_err("a fault").fault
}

/// Lists while the cloud applies this action to the listing. Returns the error.
async fn listing(bench: &Bench, action: Value) -> cloud_adapter::driver::VendorError {
    bench
        .cloud
        .fault(json!({ "match": { "operation": "List*" }, "when": { "next": 1 }, "action": action }))
        .await;
    Collection::<Instance>::list_page(&bench.driver, &bench.session, None, None).await.expect_err("a fault")
}

#[tokio::test]
async fn lost_answer_of_a_write_is_outcome_unknown() {
    let bench = bench().await;
    for action in [
        json!("close_after"),
        json!("truncate_body"),
        json!({ "respond_after": { "status": 504 } }),
        json!({ "respond": { "status": 500 } }),
    ] {
        assert_eq!(creating(&bench, action.clone()).await, Fault::OutcomeUnknown, "{action}");
    }
}

#[tokio::test]
async fn repeated_create_is_idempotent() {
    let bench = bench().await;
    let wanted = desired(spec([tcp(80)]), [backend(1)]);
    let steps = bench.driver.plan(&wanted, &Fence::default(), None).expect("possible");
    for _ in 0..3 {
        bench
            .driver
            .execute(&bench.session, &steps[0])
            .await
            .expect("with the client token, a repetition is harmless");
    }
    // The desired state may change after the first attempt.
    let mut other = desired(spec([tcp(81)]), [backend(1)]);
    other.cluster_name = "renamed".into();
    let steps = bench.driver.plan(&other, &Fence::default(), None).expect("possible");
    let refused = bench.driver.execute(&bench.session, &steps[0]).await.expect_err("the content differs");
    assert_eq!(refused.fault, Fault::Busy);
    let (record, _) = bench.ensure(&other).await;
    assert_eq!(
        (record.summary.vendor_id.as_str(), bench.cloud.count(Operation::CreateLoadBalancer)),
        ("lb-0001", 4)
    );
}

#[tokio::test]
async fn failed_listing_reports_the_cause() {
    let bench = bench().await;
    let respond = |status: u16| json!({ "respond": { "status": status } });
    for (action, wanted) in [
        (respond(401), Fault::Auth),
        (respond(403), Fault::Forbidden),
        (respond(404), Fault::Nonsense),
        (respond(503), Fault::Unavailable),
        (json!("close_before"), Fault::Unavailable),
        (json!("truncate_body"), Fault::Unavailable),
        (json!({ "respond": { "status": 200, "body": { "machines": [] } } }), Fault::Nonsense),
    ] {
        assert_eq!(listing(&bench, action.clone()).await.fault, wanted, "{action}");
    }
}

#[tokio::test]
async fn throttled_answer_has_retry_after_and_request_id() {
    let bench = bench().await;
    // The runtime retries a throttled call after the pause.
    for seconds in ["1", "7"] {
        let action = json!({ "respond": { "status": 429, "headers": { "retry-after": seconds } } });
        let rule = json!({ "match": { "operation": "List*" }, "when": { "next": 1 }, "action": action });
        bench.cloud.fault(rule).await;
    }
    let listed = Collection::<Instance>::list_page(&bench.driver, &bench.session, None, None).await;
    let error = listed.expect_err("throttled twice");
    assert_eq!((error.fault, error.retry_after), (Fault::Throttled, Some(Duration::from_secs(7))));
    assert_eq!(error.code.as_deref(), Some("injected"));
    assert!(error.request_id.is_some_and(|id| id.starts_with("req-")));
}

#[tokio::test]
async fn busy_broken_and_full_clouds_are_distinguished() {
    let bench = bench().await;
    let wanted = desired(spec([tcp(80)]), []);
    let steps = bench.driver.plan(&wanted, &Fence::default(), None).expect("possible");
    bench.cloud.settings(json!({ "quotas": { "load_balancers": 0 } })).await;
    let full = bench.driver.execute(&bench.session, &steps[0]).await.expect_err("full");
    assert_eq!((full.fault, full.code.as_deref()), (Fault::Quota, Some("quota_exceeded")));

    bench.cloud.settings(json!({ "quotas": null, "provisioning": { "create_ms": 60_000 } })).await;
    bench.driver.execute(&bench.session, &steps[0]).await.expect("the quota is lifted");
    let record = bench.balancers().await.remove(0);
    let steps = bench.driver.plan(&wanted, &Fence::default(), Some(&record)).expect("possible");
    let busy = bench.driver.execute(&bench.session, &steps[0]).await.expect_err("pending");
    assert_eq!(busy.fault, Fault::Busy);

    let path = format!("load-balancers/{}", record.summary.vendor_id);
    bench.cloud.admin(reqwest::Method::PATCH, &path, json!({ "status": "ERROR" })).await;
    let broken = bench.driver.execute(&bench.session, &steps[0]).await.expect_err("broken");
    assert_eq!(broken.fault, Fault::Busy, "the next read shows that it is in ERROR");
    assert_eq!(bench.remove().await, 1, "and can be deleted");
}
