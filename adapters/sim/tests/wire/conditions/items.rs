//! Tests that a failed item of a batch has the same error as a failed call would have, and that the other items succeed.

use cloud_api_proto::{
    Reason,
    v1alpha1::{
        ApplyRoutesRequest, Existence, InstanceRef, ItemError, RouteKey, RouteUpsert, instance_ref::Ref,
        instance_service_client::InstanceServiceClient, route_result::Outcome,
    },
};
use serde_json::json;

use crate::{
    conditions::world::World,
    support::{
        context,
        routes::{delete, route_key, routes, upsert},
    },
};

#[track_caller]
fn says(error: Option<&ItemError>, reason: Reason) -> &ItemError {
    let error = error.expect("an error");
    assert_eq!(error.reason(), reason, "{error:?}");
    assert!(!error.message.is_empty());
    error
}

#[tokio::test]
async fn a_bad_route_fails_alone() {
    let world = World::start().await;
    world.cloud.machines(1).await;
    let nowhere = RouteKey { destination: "everywhere".into(), ..route_key(2) };
    let upserts = vec![upsert(1, 1), RouteUpsert { key: Some(nowhere), ..upsert(2, 1) }];
    let answer = world.apply(ApplyRoutesRequest { upserts, ..routes() }).await.expect("possible");
    let outcomes: Vec<_> = answer.results.iter().map(|result| result.outcome()).collect();
    assert_eq!(outcomes, [Outcome::Applied, Outcome::Failed]);
    let error = says(answer.results[1].error.as_ref(), Reason::FieldInvalid);
    assert!(error.message.contains("upserts[1].key.destination"), "{error:?}");
    assert_eq!(error.retry_after, None);
}

#[tokio::test]
async fn refused_routes_have_error_and_retry_delay() {
    let world = World::start().await;
    world.cloud.machines(1).await;
    world.always("BatchRoutes", json!({ "respond": { "status": 403 } })).await;
    let upserts = vec![upsert(1, 1)];
    let answer = world.apply(ApplyRoutesRequest { upserts, ..routes() }).await.expect("possible");
    assert_eq!(answer.results[0].outcome(), Outcome::Failed);
    let error = says(answer.results[0].error.as_ref(), Reason::VendorForbidden);
    assert!(error.metadata.contains_key("vendor_code"), "{error:?}");
    assert!(error.metadata.contains_key("vendor_request_id"), "{error:?}");
    assert!(error.retry_after.as_ref().is_some_and(|delay| delay.seconds >= 30), "{error:?}");
}

#[tokio::test]
async fn a_bad_reference_fails_alone() {
    let world = World::start().await;
    world.cloud.machines(1).await;
    let refs = ["sim://sim-1/i-0001", "sim://sim-1/", "other://somewhere/i-1"]
        .map(|id| InstanceRef { r#ref: Some(Ref::ProviderId(id.into())), ..InstanceRef::default() });
    let request =
        cloud_api_proto::v1alpha1::BatchGetInstancesRequest { context: Some(context()), refs: refs.into() };
    let mut client = InstanceServiceClient::new(world.adapter.channel.clone());
    let answer = client.batch_get_instances(request).await.expect("possible").into_inner();
    let found: Vec<_> = answer.results.iter().map(|result| result.existence()).collect();
    assert_eq!(found, [Existence::Exists, Existence::Unknown, Existence::Foreign]);
    let error = says(answer.results[1].error.as_ref(), Reason::FieldInvalid);
    assert!(error.message.contains("refs[1]"), "{error:?}");
}

/// One call writes many routes, and the log line of the call names none of them. Therefore each failed route has its own log line.
#[tokio::test]
async fn log_names_the_writer_of_each_route_change() {
    let world = World::start().await;
    world.cloud.machines(1).await;
    let upserts = vec![upsert(1, 1), upsert(2, 1)];
    world.apply(ApplyRoutesRequest { upserts, ..routes() }).await.expect("possible");
    world.always("BatchRoutes", json!({ "respond": { "status": 403 } })).await;
    let deletes = vec![delete(1)];
    world.apply(ApplyRoutesRequest { deletes, ..routes() }).await.expect("possible");
    let log = world.adapter.process.ended().await;
    let lines = log.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON"));
    let written =
        lines.filter(|line| line["target"] == "audit" && line["fields"]["message"] == "Route write");
    let written: Vec<_> = written
        .map(|line| {
            ["object", "change", "outcome"]
                .map(|field| line["fields"][field].as_str().unwrap_or("-").to_owned())
        })
        .collect();
    assert_eq!(
        written,
        [
            ["Route 10.244.1.0/24 of node node-1", "add", "accepted"],
            ["Route 10.244.2.0/24 of node node-2", "add", "accepted"],
            ["Route 10.244.1.0/24 of node node-1", "remove", "refused"],
        ]
    );
}
