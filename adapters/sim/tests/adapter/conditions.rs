//! Conditions of a key's task, each provoked from outside: code, reason, and when to come back. Source: contract, section 4.

use std::time::Duration;

use cloud_api_proto::{
    AdapterError, Reason,
    v1alpha1::{
        Adoption, EnsureLoadBalancerRequest, Fence, Known, LoadBalancerState, VendorIds,
        load_balancer_spec::Scheme,
    },
};
use futures::future::{FutureExt as _, LocalBoxFuture, join_all};
use serde_json::json;
use tonic::Code;

use crate::{
    bench::{Bench, PATIENCE, bench, bench_with, fence, refused},
    wanted::{backend, spec, tcp},
};

/// Never before something changes; at once; or not before.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Retry {
    Never,
    AtOnce,
    After(Duration),
}

type Provoked = LocalBoxFuture<'static, AdapterError>;

async fn request(bench: &Bench) -> EnsureLoadBalancerRequest {
    bench.adapter.request("web", spec([tcp(80)]), &[backend(1)]).await
}

/// Asks until it is refused.
async fn until_refused(bench: &Bench, request: &EnsureLoadBalancerRequest) -> AdapterError {
    let asking = async {
        loop {
            match bench.adapter.ensure(request).await {
                Ok(pending) => assert_eq!(pending.state(), LoadBalancerState::Pending),
                Err(error) => return error,
            }
        }
    };
    tokio::time::timeout(PATIENCE, asking).await.expect("is refused")
}

async fn a_key_of_another_owner() -> AdapterError {
    let bench = bench().await;
    let mut asked = request(&bench).await;
    asked.dry_run = true;
    let plan = bench.adapter.ensure(&asked).await.expect("possible").plan;
    let name = plan[0].description.trim_start_matches("create load balancer ");
    let tags = json!({ "cloudadapter.dev/cluster-id": "c-2", "cloudadapter.dev/owner-uid": "other" });
    let made = json!({ "name": name, "scheme": "internet", "tags": tags });
    #[expect(clippy::disallowed_methods, reason = "the tests play the vendor's operator, who has no budget")]
    let client = reqwest::Client::builder().no_proxy().build().expect("a client");
    let url = format!("{}/v1/load-balancers", bench.cloud.url);
    client.post(url).json(&made).send().await.expect("made");
    asked.dry_run = false;
    asked.adoption = Adoption::IfUnowned.into();
    refused(bench.adapter.ensure(&asked).await).1
}

async fn an_id_that_is_gone() -> AdapterError {
    let bench = bench().await;
    let mut asked = request(&bench).await;
    let ids = [("loadbalancer".to_owned(), "lb-0099".to_owned())].into();
    asked.known = Some(Known { vendor_ids: Some(VendorIds { ids }), ..Known::default() });
    asked.adoption = Adoption::ById.into();
    until_refused(&bench, &asked).await
}

async fn another_operation_in_progress() -> AdapterError {
    let bench = bench_with(json!({ "provisioning": { "create_ms": 2500 } })).await;
    let asked = request(&bench).await;
    bench.adapter.ensure(&asked).await.expect("taken");
    let mut other = bench.adapter.request("web", spec([tcp(443)]), &[backend(1)]).await;
    other.fence = Some(Fence { scope: "another/0".into(), epoch: 1, sequence: 1 });
    refused(bench.adapter.ensure(&other).await).1
}

async fn an_older_fence() -> AdapterError {
    let bench = bench().await;
    let mut asked = request(&bench).await;
    asked.fence = Some(fence(2, 1));
    bench.adapter.ensured(&asked).await;
    asked.fence = Some(fence(1, 2));
    refused(bench.adapter.ensure(&asked).await).1
}

async fn a_field_that_cannot_change() -> AdapterError {
    let bench = bench().await;
    let mut asked = request(&bench).await;
    bench.adapter.ensured(&asked).await;
    asked.spec.as_mut().expect("set").scheme = Scheme::Internal.into();
    let error = refused(bench.adapter.ensure(&asked).await).1;
    assert_eq!(error.metadata.get("fields").map(String::as_str), Some("spec.scheme"));
    error
}

async fn an_unknown_backend_set() -> AdapterError {
    let bench = bench().await;
    let mut asked = request(&bench).await;
    asked.spec.as_mut().expect("set").backend_set_id = "unheard-of".into();
    refused(bench.adapter.ensure(&asked).await).1
}

async fn a_full_quota() -> AdapterError {
    let bench = bench_with(json!({ "quotas": { "load_balancers": 0 } })).await;
    until_refused(&bench, &request(&bench).await).await
}

/// Each attempt is resolved by a look before the next; then the caller hears of it.
async fn a_write_whose_result_stays_unknown() -> AdapterError {
    let bench = bench().await;
    let lost = json!({ "respond": { "status": 504 } });
    bench.cloud.fault(json!({ "match": { "operation": "CreateLoadBalancer" }, "action": lost })).await;
    until_refused(&bench, &request(&bench).await).await
}

#[tokio::test]
async fn each_condition_has_its_code_its_reason_and_its_retry() {
    let half_a_second = Retry::After(Duration::from_millis(500));
    let five_minutes = Retry::After(Duration::from_mins(5));
    let rows: [(Provoked, Code, Reason, Retry); 8] = [
        (a_key_of_another_owner().boxed_local(), Code::AlreadyExists, Reason::OwnedByOther, Retry::Never),
        (an_id_that_is_gone().boxed_local(), Code::NotFound, Reason::ResourceGone, Retry::Never),
        (
            another_operation_in_progress().boxed_local(),
            Code::Aborted,
            Reason::OperationConflict,
            half_a_second,
        ),
        (an_older_fence().boxed_local(), Code::FailedPrecondition, Reason::StaleFence, Retry::Never),
        (
            a_field_that_cannot_change().boxed_local(),
            Code::FailedPrecondition,
            Reason::ImmutableField,
            Retry::Never,
        ),
        (
            an_unknown_backend_set().boxed_local(),
            Code::FailedPrecondition,
            Reason::BackendSetUnknown,
            Retry::AtOnce,
        ),
        (a_full_quota().boxed_local(), Code::FailedPrecondition, Reason::VendorQuota, five_minutes),
        (
            a_write_whose_result_stays_unknown().boxed_local(),
            Code::Unknown,
            Reason::OutcomeUnknown,
            half_a_second,
        ),
    ];
    let checked = rows.map(async |(provoked, code, reason, retry)| {
        let error = provoked.await;
        assert_eq!((error.code, error.reason), (code, reason), "{error}");
        match retry {
            Retry::Never => assert_eq!(error.retry_after, None, "{error}"),
            Retry::AtOnce => assert_eq!(error.retry_after, Some(Duration::ZERO), "{error}"),
            Retry::After(least) => assert!(error.retry_after >= Some(least), "{error:?}"),
        }
    });
    join_all(checked).await;
}
