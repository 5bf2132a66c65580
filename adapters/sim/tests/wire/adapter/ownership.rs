//! Tests of the ownership of load balancers: fences that survive the process, adoption, removed tags, and old hashes.

use adapter_sim::simcloud::Operation;
use cloud_api_proto::{
    AdapterError, Reason,
    v1alpha1::{
        Adoption, DeleteLoadBalancerRequest, DeleteLoadBalancerResponse, EnsureLoadBalancerRequest, Fence,
        Known, LoadBalancerState, Recreate, VendorIds, cost::Source, load_balancer_spec::Scheme,
    },
};
use futures::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};

use crate::{
    adapter::bench::{Bench, bench, bench_with, refused},
    adapter::status::page,
    support::fence,
    support::until,
    support::wanted::{backend, deletion, spec, tcp},
};

fn known(id: &str) -> Option<Known> {
    let ids = [("loadbalancer".to_owned(), id.to_owned())].into();
    Some(Known { vendor_ids: Some(VendorIds { ids }), ..Known::default() })
}

async fn tag(bench: &Bench, id: &str, tags: Value) {
    let path = format!("load-balancers/{id}");
    bench.cloud.vendor(Method::PATCH, &path, json!({ "tags": tags })).await;
    let done =
        async || bench.cloud.vendor(Method::GET, &path, Value::Null).await["status"] == json!("ACTIVE");
    until("the change of tags", done).await;
    bench.cloud.count_from_here();
}

/// Creates a load balancer as a user would.
pub(crate) async fn theirs(bench: &Bench, name: &str, tags: Value) -> String {
    let made = json!({ "name": name, "scheme": "internet", "tags": tags });
    let made = bench.cloud.vendor(Method::POST, "load-balancers", made).await;
    bench.cloud.count_from_here();
    made["id"].as_str().expect("an ID").to_owned()
}

/// Returns the name that the adapter gives the load balancer of the Service `shop/web`.
pub(crate) async fn its_name(bench: &Bench) -> String {
    let mut request = request(bench).await;
    request.dry_run = true;
    let reported = bench.adapter.ensure(&request).await.expect("possible");
    reported.plan[0].description.trim_start_matches("create load balancer ").to_owned()
}

async fn request(bench: &Bench) -> EnsureLoadBalancerRequest {
    bench.adapter.request("web", spec([tcp(80)]), &[backend(1)]).await
}

async fn delete(
    bench: &Bench,
    change: impl FnOnce(&mut DeleteLoadBalancerRequest),
) -> Result<DeleteLoadBalancerResponse, AdapterError> {
    let mut request = deletion("web");
    change(&mut request);
    Ok(bench.adapter.balancers().delete_load_balancer(request).await?.into_inner())
}

#[tokio::test]
async fn a_new_process_knows_the_newest_writer_from_the_tags() {
    let bench = bench().await;
    let mut newest = request(&bench).await;
    newest.fence = Some(fence(7, 3));
    bench.adapter.ensured(&newest).await;
    assert_eq!(
        bench.cloud.balancer().await["tags"]["cloudadapter.dev/fence"],
        json!("service-controller/0/7/3")
    );
    let bench = bench.restarted().await;
    for (name, fence, uid) in [
        ("an older epoch", fence(6, 9), "web"),
        ("an older request of the same holder", fence(7, 2), "web"),
        ("an older epoch, for a new load balancer", fence(6, 9), "other"),
    ] {
        let mut stale = bench.adapter.request(uid, spec([tcp(80), tcp(81)]), &[backend(1)]).await;
        stale.fence = Some(fence.clone());
        let (reason, error) = refused(bench.adapter.ensure(&stale).await);
        assert_eq!((reason, error.retry_after), (Reason::StaleFence, None), "{name}: {error}");
    }
    let (reason, _) = refused(delete(&bench, |request| request.fence = Some(fence(6, 10))).await);
    assert_eq!(reason, Reason::StaleFence);
    let elsewhere = Fence { scope: "service-controller/1".into(), epoch: 1, sequence: 1 };
    newest.fence = Some(elsewhere);
    newest.spec.as_mut().expect("set").backend_set_id = bench.adapter.put(&[backend(1)]).await;
    assert_eq!(bench.adapter.ensured(&newest).await.state(), LoadBalancerState::Active, "another scope");
    assert_eq!(bench.cloud.counts().writes, 0);
}

#[tokio::test]
async fn other_fence_scope_waits_for_work_in_progress() {
    let bench = bench_with(json!({ "provisioning": { "create_ms": 2500 } })).await;
    let first = request(&bench).await;
    assert_eq!(bench.adapter.ensure(&first).await.expect("taken").state(), LoadBalancerState::Pending);
    let mut other = bench.adapter.request("web", spec([tcp(443)]), &[backend(1)]).await;
    other.fence = Some(Fence { scope: "service-controller/1".into(), epoch: 1, sequence: 1 });
    let (reason, error) = refused(bench.adapter.ensure(&other).await);
    assert_eq!((reason, error.retry_after.is_some()), (Reason::OperationConflict, true), "{error}");
    let joined = EnsureLoadBalancerRequest { fence: other.fence.clone(), ..first.clone() };
    assert_eq!(
        bench.adapter.ensured(&joined).await.state(),
        LoadBalancerState::Active,
        "an identical request joins"
    );
}

#[tokio::test]
async fn superseded_caller_is_answered_at_once() {
    let bench = bench_with(json!({ "provisioning": { "create_ms": 1500 } })).await;
    let first = request(&bench).await;
    let newer = async {
        until("the create", async || bench.cloud.count(Operation::CreateLoadBalancer) == 1).await;
        bench.adapter.delete("web").await.expect("taken")
    };
    let (first, _) = tokio::join!(bench.adapter.ensure(&first), newer);
    assert_eq!(refused(first).0, Reason::OperationConflict);
    bench.adapter.deleted("web").await;
    assert_eq!(bench.cloud.state().await["load_balancers"], json!([]));
}

#[tokio::test]
async fn older_hash_version_causes_no_write() {
    let bench = bench().await;
    let request = request(&bench).await;
    bench.adapter.ensured(&request).await;
    let mut tags = bench.cloud.balancer().await["tags"].clone();
    tags["cloudadapter.dev/hash"] = json!("0-ffffffffffffffffffffffffffffffff");
    tag(&bench, "lb-0001", tags).await;
    let bench = bench.restarted().await;
    let request = self::request(&bench).await;
    assert_eq!(bench.adapter.ensured(&request).await.state(), LoadBalancerState::Active);
    assert_eq!(bench.cloud.counts().writes, 0);
}

#[tokio::test]
async fn unowned_load_balancer_is_adopted_by_name_if_allowed() {
    let bench = bench().await;
    let name = its_name(&bench).await;
    let id = theirs(&bench, &name, json!({ "team": "x" })).await;
    let mut request = request(&bench).await;
    let (reason, error) = refused(bench.adapter.ensure(&request).await);
    assert_eq!(reason, Reason::OwnedByOther, "{error}");
    assert_eq!(bench.cloud.counts().writes, 0);

    request.adoption = Adoption::IfUnowned.into();
    request.dry_run = true;
    let reported = bench.adapter.ensure(&request).await.expect("possible");
    let steps: Vec<_> = reported.plan.iter().map(|step| step.description.clone()).collect();
    assert_eq!(steps[0], format!("tag load balancer {id} with its owner"), "the first step: {steps:?}");
    request.dry_run = false;
    assert_eq!(bench.adapter.ensured(&request).await.state(), LoadBalancerState::Active);
    let balancer = bench.cloud.balancer().await;
    assert_eq!(balancer["id"], json!(id), "no second load balancer");
    assert_eq!(
        (&balancer["tags"]["team"], &balancer["tags"]["cloudadapter.dev/owner-uid"]),
        (&json!("x"), &json!("web"))
    );
}

// Behaviour: SF13
#[tokio::test]
async fn go_controller_load_balancer_is_adopted_only_if_allowed() {
    let bench = bench().await;
    let others = theirs(&bench, "a0123456789abcdef0123456789abcde", json!({})).await;
    let id = theirs(&bench, "aweb", json!({ "kubernetes.io/service-name": "shop/web" })).await;
    let mut request = request(&bench).await;
    request.adoption = Adoption::ById.into();
    request.known = known(&others);
    let (reason, error) = refused(bench.adapter.ensure(&request).await);
    assert_eq!(reason, Reason::OwnedByOther, "{error}");

    request.adoption = Adoption::IfUnowned.into();
    request.known = None;
    let made = bench.adapter.ensured(&request).await;
    assert_eq!(made.vendor_ids.expect("reported").ids["loadbalancer"], id);
    assert_eq!(bench.cloud.count(Operation::CreateLoadBalancer), 0);
}

#[tokio::test]
async fn adoption_by_id_refuses_foreign_load_balancers() {
    let bench = bench().await;
    let foreign = json!({ "cloudadapter.dev/cluster-id": "c-2", "cloudadapter.dev/owner-uid": "web" });
    let foreign = theirs(&bench, "foreign", foreign).await;
    let half = theirs(&bench, "half", json!({ "cloudadapter.dev/cluster-id": "c-2" })).await;
    let free = theirs(&bench, "hand-made", json!({})).await;
    let open = theirs(&bench, "open", json!({ "cloudadapter.dev/adopt": "news, shop" })).await;
    let mut request = request(&bench).await;
    request.adoption = Adoption::ById.into();
    for id in [&foreign, &half, &free] {
        request.known = known(id);
        let (reason, error) = refused(bench.adapter.ensure(&request).await);
        assert_eq!(reason, Reason::OwnedByOther, "{id}: {error}");
    }
    request.known = known("lb-0099");
    assert_eq!(refused(bench.adapter.ensure(&request).await).0, Reason::ResourceGone);
    assert_eq!(bench.cloud.counts().writes, 0);
    request.known = known(&open);
    let made = bench.adapter.ensured(&request).await;
    assert_eq!(
        (made.state(), made.vendor_ids.expect("reported").ids["loadbalancer"].clone()),
        (LoadBalancerState::Active, open.clone())
    );
    assert_eq!(bench.cloud.count(Operation::CreateLoadBalancer), 0);

    // The load balancer existed before it was adopted, so it is kept.
    bench.adapter.deleted("web").await;
    assert_eq!(bench.cloud.count(Operation::DeleteLoadBalancer), 0);
    let state = bench.cloud.state().await;
    let left = state["load_balancers"].as_array().and_then(|all| all.iter().find(|one| one["id"] == *open));
    assert_eq!(left.expect("it still exists")["tags"], json!({ "cloudadapter.dev/adopt": "news, shop" }));
}

#[tokio::test]
async fn untagged_load_balancer_is_deleted_by_name_or_id() {
    let bench = bench().await;
    bench.adapter.ensured(&request(&bench).await).await;
    tag(&bench, "lb-0001", json!({})).await;
    let bench = bench.restarted().await;
    bench.adapter.deleted("web").await;
    assert_eq!(bench.cloud.state().await["load_balancers"], json!([]), "the adapter finds it by its name");

    let free = theirs(&bench, "renamed", json!({})).await;
    let foreign = json!({ "cloudadapter.dev/cluster-id": "c-2", "cloudadapter.dev/owner-uid": "web" });
    let foreign = theirs(&bench, &its_name(&bench).await, foreign).await;
    let gone = async |id: &str| {
        let answer = delete(&bench, |request| request.known = known(id)).await.expect("possible");
        answer.state() == LoadBalancerState::Absent
    };
    until("the end of the renamed load balancer", async || gone(&free).await).await;
    until("the adapter answers only ABSENT", async || gone(&foreign).await).await;
    assert_eq!(bench.cloud.balancer().await["id"], json!(foreign));
}

#[tokio::test]
async fn dry_run_of_a_replaced_writer_leaves_no_trace() {
    let bench = bench_with(json!({ "provisioning": { "create_ms": 2500 } })).await;
    let mut work = request(&bench).await;
    assert_eq!(bench.adapter.ensure(&work).await.expect("taken").state(), LoadBalancerState::Pending);
    let reported = delete(&bench, |request| {
        request.dry_run = true;
        request.fence = Some(fence(9, 9));
    });
    let reported = reported.await.expect("possible");
    assert_eq!((reported.state(), reported.plan.len()), (LoadBalancerState::Deleting, 1));
    work.spec.as_mut().expect("set").listeners.push(tcp(443));
    let mut dry = work.clone();
    dry.dry_run = true;
    assert_eq!(bench.adapter.ensure(&dry).await.expect("possible").state(), LoadBalancerState::Pending);
    let mut first = request(&bench).await;
    first.fence = Some(fence(1, 2));
    assert_eq!(bench.adapter.ensured(&first).await.state(), LoadBalancerState::Active);
    assert_eq!(bench.cloud.counts().writes, 3, "the work continued as if the dry run had not been requested");
}

#[tokio::test]
async fn dry_run_of_a_replacement_lists_all_steps() {
    let bench = bench().await;
    let mut request = request(&bench).await;
    bench.adapter.ensured(&request).await;
    request.spec.as_mut().expect("set").scheme = Scheme::Internal.into();
    let (reason, error) = refused(bench.adapter.ensure(&request).await);
    assert_eq!(reason, Reason::ImmutableField);
    assert_eq!(error.metadata.get("fields").map(String::as_str), Some("spec.scheme"));
    request.recreate = Recreate::IfImmutableChanged.into();
    request.dry_run = true;
    let reported = bench.adapter.ensure(&request).await.expect("possible");
    let operations: Vec<_> = reported.plan.iter().map(|step| step.operation.as_str()).collect();
    let wanted = ["DeleteLoadBalancer", "CreateLoadBalancer", "CreateListener", "UpdateLoadBalancer"];
    assert_eq!(operations, wanted);
}

#[tokio::test]
async fn failed_port_is_reported_by_state_and_condition() {
    let bench = bench().await;
    let request = bench.adapter.request("web", spec([tcp(80), tcp(443)]), &[backend(1)]).await;
    bench.adapter.ensured(&request).await;
    let broken = json!({ "status": "ERROR", "listener": "ls-0002" });
    bench.cloud.admin(Method::PATCH, "load-balancers/lb-0001", broken).await;
    let bench = bench.restarted().await;
    bench.adapter.put(&[backend(1)]).await;
    let answer = bench.adapter.ensured(&request).await;
    assert_eq!(answer.state(), LoadBalancerState::Degraded);
    assert_eq!(answer.conditions[0].r#type, "Degraded");
    assert!(answer.conditions[0].message.ends_with("1 of 2 ports failed: tcp/443"), "{answer:?}");
}

#[tokio::test]
async fn priority_depends_on_purpose_and_faults_are_counted() {
    let bench = bench().await;
    let lost =
        json!({ "match": { "operation": "CreateListener" }, "when": { "next": 1 }, "action": "close_after" });
    bench.cloud.fault(lost).await;
    let first = bench.adapter.request("web", spec([tcp(80)]), &[backend(1)]).await;
    bench.adapter.ensured(&first).await;
    let mut request = bench.adapter.request("web", spec([tcp(80)]), &[backend(2)]).await;
    request.fence = Some(fence(2, 1));
    bench.adapter.ensured(&request).await;
    refused(bench.adapter.ensure(&first).await);
    delete(&bench, |request| request.fence = Some(fence(2, 2))).await.expect("possible");
    let (_, metrics) = page(&bench.adapter, "/metrics").await;
    for line in [
        r#"vendor_calls_total{family="loadbalancer",op="CreateLoadBalancer",class="interactive""#,
        r#"vendor_calls_total{family="loadbalancer",op="SetMembers",class="traffic""#,
        r#"vendor_calls_total{family="loadbalancer",op="DeleteLoadBalancer",class="traffic""#,
        r#"vendor_calls_total{family="loadbalancer",op="ListLoadBalancers",class="lifecycle""#,
        r#"outcome_unknown_total{op="CreateListener"} 1"#,
        r#"fence_rejected_total{scope="service-controller"} 1"#,
    ] {
        assert!(metrics.contains(line), "{line} is not in\n{metrics}");
    }
}

/// P15: in the end there is exactly one load balancer, no matter which process is killed.
#[tokio::test]
async fn killed_caller_leaves_one_load_balancer() {
    let bench = bench_with(json!({ "provisioning": { "create_ms": 150, "update_ms": 20 } })).await;
    let request = request(&bench).await;
    for _ in 0..5 {
        let mut client = bench.adapter.balancers();
        let asked = client.ensure_load_balancer(request.clone());
        let died = tokio::time::timeout(std::time::Duration::from_millis(40), asked).await;
        assert!(died.is_err(), "the process died before the answer");
    }
    assert_eq!(bench.adapter.ensured(&request).await.state(), LoadBalancerState::Active);
    assert_eq!(bench.cloud.count(Operation::CreateLoadBalancer), 1);
    assert_eq!(bench.cloud.counts().writes, 3);
}

/// P9: a resync costs no vendor calls. After a restart, it costs one call per page plus one.
#[tokio::test]
async fn a_resync_of_two_hundred_services_costs_nothing() {
    const SERVICES: usize = 200;
    /// The number of pages of a listing: two full pages of load balancers, and the last page.
    const PAGES: u64 = 3;
    let bench = bench().await;
    let uids: Vec<String> = (0..SERVICES).map(|n| format!("web-{n}")).collect();
    let asked = uids.iter().map(async |uid| {
        let request = bench.adapter.request(uid, spec([tcp(80)]), &[backend(1)]).await;
        bench.adapter.ensured(&request).await;
        request
    });
    let requests = join_all(asked).await;
    bench.cloud.count_from_here();
    for request in &requests {
        let answer = bench.adapter.ensure(request).await.expect("possible");
        assert_eq!(answer.cost.map(|cost| (cost.vendor_calls, cost.source())), Some((0, Source::Memory)));
    }
    assert_eq!(bench.cloud.counts().total, 0);

    let Bench { cloud, adapter } = bench.restarted().await;
    adapter.put(&[backend(1)]).await;
    let again = join_all(requests.iter().map(|request| adapter.ensured(request))).await;
    assert!(again.iter().all(|answer| answer.state() == LoadBalancerState::Active));
    assert!(cloud.counts().total <= PAGES + 1, "{:?}", cloud.counts());
}
