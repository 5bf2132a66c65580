//! Tests of the routes to the pods of each node.

use std::collections::BTreeMap;

use anyhow::{Context, ensure};
use e2e::{Bed, State, WITHIN, eventually, network_unavailable, node};
use k8s_openapi::api::core::v1::Node;
use serde_json::json;

// Behaviour: R1, R12
#[tokio::test]
async fn each_node_has_its_route_and_foreign_routes_stay() {
    // The adapter lists routes often, so that routes of other owners are seen soon.
    let values = json!({ "adapter": { "cache": { "routes": { "maxAge": "5s" } } } });
    let mut bed = Bed::start_with(&values).await.unwrap();
    let (a, b) = (
        bed.join("a", Some("10.244.1.0/24")).await.unwrap(),
        bed.join("b", Some("10.244.2.0/24")).await.unwrap(),
    );
    bed.until_cloud("both have a route", |state| {
        expect(state, &[("10.244.1.0/24", &a), ("10.244.2.0/24", &b)])
    })
    .await
    .unwrap();
    for name in ["a", "b"] {
        condition(&bed, name, "False", "RouteCreated").await.unwrap();
    }

    // An instance of another owner, with a route that a node of this cluster would need.
    let cloud = &bed.cluster.cloud;
    let other = cloud.create_instance("other").await.unwrap();
    cloud.create_route("10.244.3.0/24", &other.id).await.unwrap();
    cloud.create_route("192.168.0.0/16", &other.id).await.unwrap();
    let foreign = cloud.state().await.unwrap().routes;
    let foreign: Vec<_> = foreign.into_iter().filter(|route| route.tags.is_empty()).collect();
    assert_eq!(foreign.len(), 2);
    let pod = &*bed.cluster.pods.get("route-controller").unwrap();
    eventually("the foreign route that overlaps the pod CIDRs is counted", WITHIN, || async {
        let counted = pod.counted("cloud_controller_routes_foreign", "owner").await?;
        ensure!(counted.get("unmanaged") == Some(&1.0), "{counted:?}");
        Ok(())
    })
    .await
    .unwrap();
    let cloud = &bed.cluster.cloud;
    let c = cloud.create_instance("c").await.unwrap();
    node("c").pods("10.244.3.0/24").register(&bed.client()).await.unwrap();
    let d = bed.join("d", Some("10.244.4.0/24")).await.unwrap();

    let message = bed.wait_for_event("Node", "c", "FailedToCreateRoute").await.unwrap();
    let in_the_way =
        &foreign.iter().find(|route| route.destination.to_string() == "10.244.3.0/24").unwrap().id;
    assert!(message.contains("10.244.3.0/24") && message.contains(in_the_way), "{message}");
    condition(&bed, "c", "True", "NoRouteCreated").await.unwrap();
    condition(&bed, "d", "False", "RouteCreated").await.unwrap();
    let all = [("10.244.1.0/24", &a), ("10.244.2.0/24", &b), ("10.244.4.0/24", &d)];
    bed.until_cloud("the other nodes have their routes", |state| expect(state, &all)).await.unwrap();
    assert_ne!(c.id, other.id);

    e2e::delete_node(&bed.client(), "a").await.unwrap();
    e2e::delete_node(&bed.client(), "c").await.unwrap();
    bed.until_cloud("the route of node a is removed", |state| expect(state, &all[1..])).await.unwrap();
    let left = cloud.state().await.unwrap().routes;
    assert!(foreign.iter().all(|route| left.contains(route)), "{left:#?}");
}

/// Checks that the cluster has exactly these routes, each to the instance of its node.
fn expect(state: &State, wanted: &[(&str, &Node)]) -> anyhow::Result<()> {
    let ours = state.routes.iter().filter(|route| !route.tags.is_empty());
    let ours: BTreeMap<_, _> =
        ours.map(|it| (it.destination.to_string(), it.next_hop_instance.clone())).collect();
    let wanted: BTreeMap<_, _> = wanted.iter().map(|&(to, node)| (to.to_owned(), machine(node))).collect();
    ensure!(ours == wanted, "found {ours:?}, expected {wanted:?}");
    Ok(())
}

fn machine(node: &Node) -> Option<String> {
    node.spec.as_ref()?.provider_id.as_ref()?.rsplit('/').next().map(str::to_owned)
}

/// Waits for the condition `NetworkUnavailable` with this status and reason, and returns its message.
async fn condition(bed: &Bed, node: &str, status: &str, reason: &str) -> anyhow::Result<Option<String>> {
    bed.until_node(node, &format!("has NetworkUnavailable {status}"), |node| {
        let found = network_unavailable(node).context("no such condition")?;
        let seen = (&*found.status, found.reason.as_deref());
        ensure!(seen == (status, Some(reason)), "{seen:?}");
        Ok(found.message.clone())
    })
    .await
}
