//! Routes to the pods of nodes.

use std::collections::BTreeMap;

use anyhow::{Context, ensure};
use e2e::{Bed, State, node};
use k8s_openapi::api::core::v1::{Node, NodeCondition};

/// Each node's pods are reachable as long as the node is there, and nobody else's route is touched.
#[tokio::test]
async fn each_node_has_its_route_and_foreign_ones_stay() {
    let bed = Bed::start().await.unwrap();
    let cloud = &bed.cluster.cloud;
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

    // Somebody else's machine, and a route of theirs that a node of ours would need.
    let other = cloud.create_instance("other").await.unwrap();
    cloud.lay_route("10.244.3.0/24", &other.id).await.unwrap();
    cloud.lay_route("192.168.0.0/16", &other.id).await.unwrap();
    let foreign = cloud.state().await.unwrap().routes;
    let foreign: Vec<_> = foreign.into_iter().filter(|route| route.tags.is_empty()).collect();
    assert_eq!(foreign.len(), 2);
    let c = cloud.create_instance("c").await.unwrap();
    node("c").pods("10.244.3.0/24").register(&bed.client()).await.unwrap();
    let d = bed.join("d", Some("10.244.4.0/24")).await.unwrap();

    let told = bed.told("Node", "c", "FailedToCreateRoute").await.unwrap();
    let in_the_way =
        &foreign.iter().find(|route| route.destination.to_string() == "10.244.3.0/24").unwrap().id;
    assert!(told.contains("10.244.3.0/24") && told.contains(in_the_way), "{told}");
    condition(&bed, "c", "True", "NoRouteCreated").await.unwrap();
    condition(&bed, "d", "False", "RouteCreated").await.unwrap();
    let all = [("10.244.1.0/24", &a), ("10.244.2.0/24", &b), ("10.244.4.0/24", &d)];
    bed.until_cloud("the others have theirs", |state| expect(state, &all)).await.unwrap();
    assert_ne!(c.id, other.id);

    e2e::delete_node(&bed.client(), "a").await.unwrap();
    e2e::delete_node(&bed.client(), "c").await.unwrap();
    bed.until_cloud("a's route is gone", |state| expect(state, &all[1..])).await.unwrap();
    let left = cloud.state().await.unwrap().routes;
    assert!(foreign.iter().all(|route| left.contains(route)), "{left:#?}");
}

/// Our routes are those, each to its node's machine.
fn expect(state: &State, wanted: &[(&str, &Node)]) -> anyhow::Result<()> {
    let ours = state.routes.iter().filter(|route| !route.tags.is_empty());
    let ours: BTreeMap<_, _> =
        ours.map(|it| (it.destination.to_string(), it.next_hop_instance.clone())).collect();
    let wanted: BTreeMap<_, _> = wanted.iter().map(|&(to, node)| (to.to_owned(), machine(node))).collect();
    ensure!(ours == wanted, "there are {ours:?}, wanted are {wanted:?}");
    Ok(())
}

/// The ID of a node's machine.
fn machine(node: &Node) -> Option<String> {
    node.spec.as_ref()?.provider_id.as_ref()?.rsplit('/').next().map(str::to_owned)
}

async fn condition(bed: &Bed, node: &str, status: &str, reason: &str) -> anyhow::Result<()> {
    bed.until_node(node, &format!("has NetworkUnavailable {status}"), |node| {
        let found = network_unavailable(node).context("it has no such condition")?;
        let seen = (&*found.status, found.reason.as_deref());
        ensure!(seen == (status, Some(reason)), "{seen:?}");
        Ok(())
    })
    .await
}

fn network_unavailable(node: &Node) -> Option<&NodeCondition> {
    let mut conditions = node.status.as_ref()?.conditions.as_ref()?.iter();
    conditions.find(|it| it.type_ == "NetworkUnavailable")
}
