//! Faults in routes of the cluster and in foreign routes.

use cloud_api_proto::{
    AdapterError,
    v1alpha1::{
        ApplyRoutesRequest, NextHop, Owner, RouteDelete, RouteKey, RouteUpsert, route_result::Outcome,
    },
};
use reqwest::Method;
use serde_json::{Value, json};

use crate::{
    adapter::bench::{context, fence},
    broken::world::World,
    support::wanted::CLUSTER,
};

fn key(n: u8) -> RouteKey {
    let destination = format!("10.244.{n}.0/24");
    RouteKey { cluster_id: CLUSTER.into(), node_uid: format!("node-{n}"), destination }
}

fn upsert(n: u8, instance: u8) -> RouteUpsert {
    let provider_id = format!("sim://sim-1/i-{instance:04}");
    let uid = format!("node-{n}");
    RouteUpsert {
        key: Some(key(n)),
        next_hop: Some(NextHop { provider_id, ..NextHop::default() }),
        owner: Some(Owner { kind: "Node".into(), name: uid.clone(), uid, ..Owner::default() }),
    }
}

async fn apply(
    world: &World,
    upserts: impl IntoIterator<Item = RouteUpsert>,
    deletes: impl IntoIterator<Item = RouteDelete>,
) -> Result<Vec<Outcome>, AdapterError> {
    let request = ApplyRoutesRequest {
        context: Some(context()),
        fence: Some(fence(1, 1)),
        upserts: upserts.into_iter().collect(),
        deletes: deletes.into_iter().collect(),
        dry_run: false,
        cluster_cidrs: vec!["10.244.0.0/16".into()],
    };
    let answer = world.adapter.routes().apply_routes(request).await?.into_inner();
    Ok(answer.results.iter().map(|result| result.outcome()).collect())
}

/// A route of another cluster.
async fn foreign(world: &World, destination: &str, tags: Value) {
    let route = json!({ "destination": destination, "next_hop_instance": "i-0002", "tags": tags });
    world.vendor(Method::POST, "routes:batch", json!({ "add": [route] })).await;
}

fn theirs() -> Value {
    json!({ "cloudadapter.dev/cluster-id": "c-9", "cloudadapter.dev/node-uid": "node-9" })
}

/// The next hop of the route to that destination.
async fn leads(world: &World, destination: &str) -> Option<String> {
    let state = world.cloud.state().await;
    let routes = state["routes"].as_array().expect("a list").iter();
    let route = routes.clone().find(|route| route["destination"] == json!(destination))?;
    Some(route["next_hop_instance"].as_str().expect("a machine").to_owned())
}

pub(crate) async fn applied_again(world: World) -> bool {
    world.cloud.machines(2).await;
    apply(&world, [upsert(1, 1)], []).await.expect("possible");
    apply(&world, [upsert(1, 1)], []).await.expect("possible") == [Outcome::Applied]
}

pub(crate) async fn foreign_removed(world: World) -> bool {
    world.cloud.machines(2).await;
    foreign(&world, "10.244.9.0/24", json!({})).await;
    apply(&world, [upsert(1, 1)], []).await.expect("possible");
    leads(&world, "10.244.9.0/24").await.is_none()
}

pub(crate) async fn foreign_deleted(world: World) -> bool {
    world.cloud.machines(2).await;
    foreign(&world, "10.244.1.0/24", theirs()).await;
    // Only the call matters, not its result.
    drop(apply(&world, [], [RouteDelete { key: Some(key(1)), ..RouteDelete::default() }]).await);
    leads(&world, "10.244.1.0/24").await.is_none()
}

pub(crate) async fn foreign_taken(world: World) -> bool {
    world.cloud.machines(2).await;
    foreign(&world, "10.244.1.0/24", theirs()).await;
    // Only the call matters, not its result.
    drop(apply(&world, [upsert(1, 1)], []).await);
    leads(&world, "10.244.1.0/24").await.as_deref() == Some("i-0001")
}

pub(crate) async fn late_lost(world: World) -> bool {
    world.cloud.machines(2).await;
    let told = apply(&world, (1..=101).map(|n| upsert(n, 1)), []).await.expect("possible");
    assert_eq!(told, [Outcome::Applied; 101]);
    leads(&world, "10.244.101.0/24").await.is_none()
}

pub(crate) async fn batch_fails(world: World) -> bool {
    world.cloud.machines(2).await;
    foreign(&world, "10.244.1.0/24", theirs()).await;
    apply(&world, [upsert(1, 1), upsert(2, 2)], []).await.is_err()
}
