//! Tests of routes: creation, move and deletion. The adapter never changes routes of other owners.

use std::time::Duration;

use adapter_sim::simcloud::Operation;
use cloud_api_proto::{
    AdapterError, Reason,
    v1alpha1::{
        ApplyRoutesRequest, ApplyRoutesResponse, ItemError, Route, RouteDelete, RouteKey, RouteOwner,
        RouteUpsert, WatchRoutesRequest, route_result::Outcome, watch_routes_response::Event,
    },
};
use serde_json::json;
use tonic::Request;

use crate::{
    adapter::bench::{Bench, bench, refused},
    support::routes::{CLUSTER_CIDR, delete, route_key, routes, upsert},
    support::until,
    support::{context, fence},
};

fn request(
    upserts: impl IntoIterator<Item = RouteUpsert>,
    deletes: impl IntoIterator<Item = RouteDelete>,
) -> ApplyRoutesRequest {
    let (upserts, deletes) = (upserts.into_iter().collect(), deletes.into_iter().collect());
    ApplyRoutesRequest { fence: Some(fence(1, 1)), upserts, deletes, ..routes() }
}

async fn apply(bench: &Bench, request: ApplyRoutesRequest) -> Result<ApplyRoutesResponse, AdapterError> {
    Ok(bench.adapter.routes().apply_routes(request).await?.into_inner())
}

async fn outcomes(bench: &Bench, request: ApplyRoutesRequest) -> Vec<Outcome> {
    let answer = apply(bench, request).await.expect("possible");
    answer.results.iter().map(|result| result.outcome()).collect()
}

/// Returns the routes that the watch lists.
async fn mirror(bench: &Bench) -> Vec<Route> {
    let request = WatchRoutesRequest {
        context: Some(context()),
        stop_when_synced: true,
        cluster_cidrs: vec![CLUSTER_CIDR.into()],
        ..WatchRoutesRequest::default()
    };
    let mut stream = bench.adapter.routes().watch_routes(request).await.expect("a stream").into_inner();
    let mut routes = Vec::new();
    while let Some(message) = stream.message().await.expect("no error") {
        if let Some(Event::Items(items)) = message.event {
            routes.extend(items.items);
        }
    }
    routes
}

async fn foreign(bench: &Bench, destination: &str, tags: serde_json::Value) {
    let route = json!({ "destination": destination, "next_hop_instance": "i-0001", "tags": tags });
    bench.cloud.vendor(reqwest::Method::POST, "routes:batch", json!({ "add": [route] })).await;
}

#[tokio::test]
async fn two_hundred_routes_cost_one_write() {
    let bench = bench().await;
    bench.cloud.machines(200).await;
    let all = || request((1..=200).map(|n| upsert(n, n)), []);
    assert_eq!(outcomes(&bench, all()).await, [Outcome::Applied; 200]);
    assert_eq!(bench.cloud.count(Operation::BatchRoutes), 1);
    assert_eq!(mirror(&bench).await.len(), 200);
    bench.cloud.count_from_here();
    let again = apply(&bench, all()).await.expect("possible");
    assert!(again.results.iter().all(|result| result.outcome() == Outcome::Unchanged));
    assert_eq!(again.cost.expect("reported").vendor_calls, 0);
    assert_eq!(bench.cloud.counts().total, 0);
}

#[tokio::test]
async fn routes_move_with_their_nodes_and_go_with_them() {
    let bench = bench().await;
    bench.cloud.machines(3).await;
    outcomes(&bench, request([upsert(1, 1), upsert(2, 2)], [])).await;
    bench.cloud.count_from_here();
    let moved = outcomes(&bench, request([upsert(1, 3)], [delete(2), delete(7)])).await;
    assert_eq!(moved, [Outcome::Applied, Outcome::Applied, Outcome::Unchanged]);
    assert_eq!(bench.cloud.count(Operation::BatchRoutes), 1);
    let routes = mirror(&bench).await;
    assert_eq!(routes.len(), 1);
    assert_eq!(routes[0].next_hop.as_ref().map(|hop| hop.provider_id.as_str()), Some("sim://sim-1/i-0003"));
    assert_eq!((routes[0].owner(), routes[0].key.clone()), (RouteOwner::Mine, Some(route_key(1))));
}

#[tokio::test]
async fn foreign_routes_are_reported_and_never_changed() {
    let bench = bench().await;
    bench.cloud.machines(2).await;
    foreign(&bench, "10.244.1.0/24", json!({})).await;
    let other = json!({ "cloudadapter.dev/cluster-id": "c-2", "cloudadapter.dev/node-uid": "node-2" });
    foreign(&bench, "10.244.2.0/24", other).await;
    foreign(&bench, "192.0.2.0/24", json!({})).await;
    let found = outcomes(&bench, request([upsert(1, 2), upsert(2, 1)], [delete(1), delete(2)])).await;
    assert_eq!(found, [Outcome::Conflict, Outcome::Conflict, Outcome::Unchanged, Outcome::Unchanged]);
    let owners: Vec<_> = mirror(&bench).await.iter().map(|route| route.owner()).collect();
    assert_eq!(
        owners,
        [RouteOwner::Unmanaged, RouteOwner::OtherCluster],
        "routes outside of the CIDRs are not shown"
    );
    assert_eq!(bench.cloud.state().await["routes"].as_array().map(Vec::len), Some(3));
}

#[tokio::test]
async fn one_bad_route_fails_alone() {
    let bench = bench().await;
    bench.cloud.machines(1).await;
    let outside = RouteKey { destination: "192.0.2.0/24".into(), ..route_key(3) };
    let outside = RouteUpsert { key: Some(outside), ..upsert(3, 1) };
    let answer = apply(&bench, request([upsert(1, 99), upsert(2, 1), outside], [])).await.expect("possible");
    let found: Vec<_> = answer.results.iter().map(|result| result.outcome()).collect();
    assert_eq!(found, [Outcome::Failed, Outcome::Applied, Outcome::Failed]);
    let error = answer.results[0].error.clone().expect("why");
    assert_eq!(error.reason(), Reason::FieldInvalid);
    assert_eq!(error.metadata.get("vendor_code").map(String::as_str), Some("invalid_next_hop"));
}

#[tokio::test]
async fn too_long_name_fails_only_its_route() {
    type Change = fn(&mut RouteUpsert);
    let bench = bench().await;
    bench.cloud.machines(1).await;
    for (field, change) in [
        (
            "upserts[0].key.node_uid",
            (|one| one.key.as_mut().expect("set").node_uid = "x".repeat(257)) as Change,
        ),
        ("upserts[0].owner.name", |one| one.owner.as_mut().expect("set").name = "x".repeat(257)),
        ("upserts[0].next_hop.interface", |one| {
            one.next_hop.as_mut().expect("set").interface = "x".repeat(257);
        }),
    ] {
        let mut wrong = upsert(1, 1);
        change(&mut wrong);
        let answer = apply(&bench, request([wrong], [])).await.expect("possible");
        let error = answer.results[0].error.clone().expect("why");
        assert_eq!(error.reason(), Reason::FieldInvalid);
        assert!(error.message.starts_with(field), "{error:?}");
    }
    let node_uid = RouteKey { node_uid: "x".repeat(257), ..route_key(1) };
    let wrong = RouteDelete { key: Some(node_uid), ..delete(1) };
    assert_eq!(outcomes(&bench, request([], [wrong])).await, [Outcome::Failed]);
    assert_eq!(bench.cloud.counts().writes, 0);
}

#[tokio::test]
async fn dry_run_of_routes_lists_calls_and_makes_none() {
    let bench = bench().await;
    bench.cloud.machines(2).await;
    let mut dry = request([upsert(1, 1), upsert(2, 2)], []);
    dry.dry_run = true;
    dry.fence = None;
    let reported = apply(&bench, dry).await.expect("possible");
    assert_eq!(reported.plan.len(), 1);
    assert_eq!(reported.plan[0].operation, "BatchRoutes");
    assert_eq!(bench.cloud.counts().writes, 0);
}

#[tokio::test]
async fn refusals_carry_their_reason() {
    let bench = bench().await;
    bench.cloud.machines(1).await;
    outcomes(&bench, ApplyRoutesRequest { fence: Some(fence(5, 1)), ..request([upsert(1, 1)], []) }).await;
    let stale = ApplyRoutesRequest { fence: Some(fence(4, 9)), ..request([upsert(2, 1)], []) };
    assert_eq!(refused(apply(&bench, stale).await).0, Reason::StaleFence);
    let many = ApplyRoutesRequest { fence: Some(fence(5, 2)), ..request((0..201).map(|n| upsert(n, 1)), []) };
    assert_eq!(refused(apply(&bench, many).await).0, Reason::FieldInvalid);
    let wrong = ApplyRoutesRequest { cluster_cidrs: vec!["pods".into()], ..request([upsert(2, 1)], []) };
    assert_eq!(refused(apply(&bench, wrong).await).0, Reason::FieldInvalid);
}

#[tokio::test]
async fn route_to_a_deleted_instance_is_recreated() {
    let bench = bench().await;
    bench.cloud.machines(2).await;
    outcomes(&bench, request([upsert(1, 1)], [])).await;
    bench.cloud.admin(reqwest::Method::DELETE, "instances/i-0001", json!(null)).await;
    assert_eq!(outcomes(&bench, request([upsert(1, 2)], [])).await, [Outcome::Applied]);
    let routes = mirror(&bench).await;
    assert_eq!(routes[0].next_hop.as_ref().map(|hop| hop.provider_id.as_str()), Some("sim://sim-1/i-0002"));
}

#[tokio::test]
async fn lagging_reads_create_no_second_route() {
    let bench = bench().await;
    bench.cloud.machines(1).await;
    bench.cloud.settings(json!({ "consistency_ms": 300 })).await;
    assert_eq!(outcomes(&bench, request([upsert(1, 1)], [])).await, [Outcome::Applied]);
    let again = async || outcomes(&bench, request([upsert(1, 1)], [])).await == [Outcome::Unchanged];
    until("a listing that shows the route", again).await;
    assert_eq!(bench.cloud.state().await["routes"].as_array().map(Vec::len), Some(1));
    let removed = async || outcomes(&bench, request([], [delete(1)])).await == [Outcome::Unchanged];
    until("a listing that does not show the route", removed).await;
    assert_eq!(bench.cloud.state().await["routes"], json!([]));
}

#[tokio::test]
async fn unlisted_foreign_route_costs_one_write() {
    let bench = bench().await;
    bench.cloud.machines(2).await;
    outcomes(&bench, request([upsert(2, 2)], [])).await;
    foreign(&bench, "10.244.1.0/24", json!({})).await;
    let writes = || bench.cloud.count(Operation::BatchRoutes);
    let before = writes();
    let created = async || outcomes(&bench, request([upsert(1, 2)], [])).await;
    assert_eq!(created().await, [Outcome::Failed], "the cloud refuses the route, and the adapter lists");
    assert_eq!(created().await, [Outcome::Conflict], "now the adapter knows the owner of the route");
    assert_eq!(writes(), before + 1);
}

#[tokio::test]
async fn a_new_process_knows_the_newest_writer_from_the_tags_of_routes() {
    let bench = bench().await;
    bench.cloud.machines(3).await;
    let by = |epoch, sequence, upserts: Vec<RouteUpsert>| ApplyRoutesRequest {
        fence: Some(fence(epoch, sequence)),
        ..request(upserts, [])
    };
    outcomes(&bench, by(5, 7, vec![upsert(1, 1)])).await;
    outcomes(&bench, by(5, 9, vec![upsert(2, 2)])).await;
    let bench = bench.restarted().await;
    assert_eq!(refused(apply(&bench, by(4, 99, vec![upsert(3, 3)])).await).0, Reason::StaleFence);
    let answer = apply(&bench, by(5, 8, vec![upsert(1, 2), upsert(2, 3)])).await.expect("possible");
    let found: Vec<_> = answer.results.iter().map(|result| result.outcome()).collect();
    assert_eq!(found, [Outcome::Applied, Outcome::Failed], "a newer request created the second route");
    assert_eq!(answer.results[1].error.as_ref().map(ItemError::reason), Some(Reason::StaleFence));
    assert_eq!(bench.cloud.count(Operation::BatchRoutes), 1);
}

#[tokio::test]
async fn outcome_of_a_lost_answer_is_read_before_the_next_write() {
    let bench = bench().await;
    bench.cloud.machines(2).await;
    outcomes(&bench, request([upsert(2, 2)], [])).await;
    let lost =
        json!({ "match": { "operation": "BatchRoutes" }, "when": { "next": 1 }, "action": "close_after" });
    bench.cloud.fault(lost).await;
    bench.cloud.count_from_here();
    let first = apply(&bench, request([upsert(1, 1)], [])).await.expect("possible");
    assert_eq!(first.results[0].error.as_ref().map(ItemError::reason), Some(Reason::OutcomeUnknown));
    let doubtful = apply(&bench, request([upsert(1, 2), upsert(2, 2)], [])).await.expect("possible");
    let found: Vec<_> = doubtful.results.iter().map(|result| result.outcome()).collect();
    assert_eq!(found, [Outcome::Pending, Outcome::Unchanged], "only the uncertain item waits");
    assert!(doubtful.results[0].retry_after.is_some());
    assert_eq!(bench.cloud.count(Operation::BatchRoutes), 1);
    let settled = async || outcomes(&bench, request([upsert(1, 1)], [])).await == [Outcome::Unchanged];
    until("a listing after the horizon", settled).await;
    assert_eq!(bench.cloud.count(Operation::BatchRoutes), 1);
}

#[tokio::test]
async fn a_throttled_batch_is_one_call_and_answers_item_by_item() {
    let bench = bench().await;
    bench.cloud.machines(3).await;
    outcomes(&bench, request([upsert(3, 3)], [])).await;
    let throttled = json!({ "respond": { "status": 429, "headers": { "retry-after": "3" } } });
    bench.cloud.fault(json!({ "match": { "operation": "BatchRoutes" }, "action": throttled })).await;
    bench.cloud.count_from_here();
    let asked = request([upsert(1, 1), upsert(2, 2), upsert(3, 3)], []);
    let answer = apply(&bench, asked).await.expect("each item has an answer");
    let found: Vec<_> = answer.results.iter().map(|result| result.outcome()).collect();
    assert_eq!(found, [Outcome::Failed, Outcome::Failed, Outcome::Unchanged]);
    for result in &answer.results[..2] {
        let error = result.error.as_ref().expect("why");
        assert_eq!(error.reason(), Reason::VendorThrottled);
        assert!(error.retry_after.is_some());
    }
    assert!(
        bench.cloud.count(Operation::BatchRoutes) <= 2,
        "the batch is sent at most once more, and never route by route"
    );
}

#[tokio::test]
async fn abandoned_requests_do_not_accumulate() {
    let bench = bench().await;
    bench.cloud.machines(1).await;
    let slow = json!({ "match": { "operation": "BatchRoutes" }, "action": { "delay_ms": 60_000 } });
    bench.cloud.fault(slow).await;
    let asked = (0..33).map(async |_| {
        let mut asked = Request::new(request([upsert(1, 1)], []));
        asked.set_timeout(Duration::from_secs(2));
        bench.adapter.routes().apply_routes(asked).await.map_err(AdapterError::from)
    });
    let (under_way, refused): (Vec<_>, Vec<_>) =
        futures::future::join_all(asked).await.into_iter().partition(Result::is_ok);
    let reasons: Vec<_> = refused.iter().filter_map(|one| one.as_ref().err()).map(|one| one.reason).collect();
    assert_eq!((under_way.len(), reasons), (32, vec![Reason::QueueFull]));
}

#[tokio::test]
async fn untagged_route_is_owned_by_next_hop_instance() {
    let bench = bench().await;
    bench.cloud.machines(2).await;
    foreign(&bench, "10.244.1.0/24", json!({})).await;
    foreign(&bench, "10.245.1.0/24", json!({})).await;
    assert_eq!(outcomes(&bench, request([upsert(1, 1)], [])).await, [Outcome::Unchanged]);
    let leaving = |n, instance| RouteDelete { next_hop: upsert(n, instance).next_hop, ..delete(n) };
    let outside = RouteKey { destination: "10.245.1.0/24".into(), ..route_key(1) };
    let outside = RouteDelete { key: Some(outside), ..leaving(1, 1) };
    let kept = outcomes(&bench, request([], [delete(1), leaving(1, 2), outside])).await;
    assert_eq!(kept, [Outcome::Unchanged; 3], "no evidence, another instance, outside of the CIDRs");
    assert_eq!(outcomes(&bench, request([], [leaving(1, 1)])).await, [Outcome::Applied]);
    assert_eq!(bench.cloud.state().await["routes"].as_array().map(Vec::len), Some(1));
}
