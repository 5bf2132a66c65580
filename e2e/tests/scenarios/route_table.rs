//! Routes to the pods of nodes.

use std::collections::BTreeMap;

use anyhow::{Context, ensure};
use e2e::{ApiProxy, Bed, State, Trouble, WITHIN, eventually, network_unavailable, node};
use k8s_openapi::api::core::v1::{Event, Node};
use kube::Api;
use kube::api::ListParams;
use serde_json::json;

/// Each node has a route while it exists, and routes of other owners are not touched.
// Behaviour: R1, R12
#[tokio::test]
async fn each_node_has_its_route_and_foreign_routes_stay() {
    // Listed often, so that routes of other owners are seen soon.
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
    cloud.lay_route("10.244.3.0/24", &other.id).await.unwrap();
    cloud.lay_route("192.168.0.0/16", &other.id).await.unwrap();
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

    let told = bed.told("Node", "c", "FailedToCreateRoute").await.unwrap();
    let in_the_way =
        &foreign.iter().find(|route| route.destination.to_string() == "10.244.3.0/24").unwrap().id;
    assert!(told.contains("10.244.3.0/24") && told.contains(in_the_way), "{told}");
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

/// Checks that these are all routes of the cluster, each to the instance of its node.
fn expect(state: &State, wanted: &[(&str, &Node)]) -> anyhow::Result<()> {
    let ours = state.routes.iter().filter(|route| !route.tags.is_empty());
    let ours: BTreeMap<_, _> =
        ours.map(|it| (it.destination.to_string(), it.next_hop_instance.clone())).collect();
    let wanted: BTreeMap<_, _> = wanted.iter().map(|&(to, node)| (to.to_owned(), machine(node))).collect();
    ensure!(ours == wanted, "found {ours:?}, expected {wanted:?}");
    Ok(())
}

/// The instance ID of a node.
fn machine(node: &Node) -> Option<String> {
    node.spec.as_ref()?.provider_id.as_ref()?.rsplit('/').next().map(str::to_owned)
}

/// Waits for a condition `NetworkUnavailable`, and returns its message.
async fn condition(bed: &Bed, node: &str, status: &str, reason: &str) -> anyhow::Result<Option<String>> {
    bed.until_node(node, &format!("has NetworkUnavailable {status}"), |node| {
        let found = network_unavailable(node).context("no such condition")?;
        let seen = (&*found.status, found.reason.as_deref());
        ensure!(seen == (status, Some(reason)), "{seen:?}");
        Ok(found.message.clone())
    })
    .await
}

/// An empty list of nodes is not trusted while their instances exist.
// Behaviour: R11
#[tokio::test]
async fn routes_stay_until_instances_of_unseen_deletions_are_gone() {
    // Listed often, so that changes of routes are seen soon.
    let values = json!({
        "routeController": { "removal": { "grace": "1s" } },
        "adapter": { "cache": { "routes": { "maxAge": "5s" } } },
    });
    let mut bed = Bed::start_with(&values).await.unwrap();
    for (name, pods) in [("a", "10.244.1.0/24"), ("b", "10.244.2.0/24")] {
        bed.join(name, Some(pods)).await.unwrap();
        condition(&bed, name, "False", "RouteCreated").await.unwrap();
    }
    let before = bed.cluster.cloud.state().await.unwrap();
    bed.cluster.pods.get("route-controller").unwrap().kill().await.unwrap();
    for name in ["a", "b"] {
        e2e::delete_node(&bed.client(), name).await.unwrap();
    }
    bed.cluster.cloud.reset_counts().await.unwrap();
    bed.cluster.pods.get("route-controller").unwrap().start().unwrap();

    let told = held(&bed).await.unwrap();
    assert!(
        told.contains("2 routes of this cluster") && told.contains("--route-removal-max-share=100"),
        "{told}"
    );
    bed.quiet("route-controller").await.unwrap();
    let pod = &*bed.cluster.pods.get("route-controller").unwrap();
    let metrics = pod.metrics().await.unwrap();
    assert!(
        metrics.contains("cloud_controller_route_removals_held{controller=\"route-controller\"} 2"),
        "{metrics}"
    );
    let meanwhile = bed.cluster.cloud.state().await.unwrap();
    assert_eq!((meanwhile.routes, bed.cluster.cloud.counts().await.unwrap().writes), (before.routes, 0));

    for machine in before.instances {
        bed.cluster.cloud.delete_instance(&machine.id).await.unwrap();
    }
    bed.until_cloud("routes to deleted instances are removed", |state| expect(state, &[])).await.unwrap();
}

/// Waits for the Event about routes that are not removed, and returns its message.
async fn held(bed: &Bed) -> anyhow::Result<String> {
    eventually("there is an Event RouteRemovalHeld", WITHIN, || async {
        let events: Api<Event> = Api::all(bed.client());
        let events = events.list(&ListParams::default().fields("reason=RouteRemovalHeld")).await?.items;
        events.into_iter().next().and_then(|event| event.message).context("no such Event")
    })
    .await
}

/// Many nodes join at once, and one node is recreated during a write.
// Behaviour: R16, R17
#[tokio::test]
async fn many_routes_are_one_change_with_one_condition_each() {
    let mut bed = dual_stack().await;
    let made = bed.cluster.cloud.create_numbered("n{n}", 30).await.unwrap();
    bed.cluster.cloud.reset_counts().await.unwrap();
    for (number, machine) in (100..).zip(&made) {
        node(&machine.name).pods(&format!("10.244.{number}.0/24")).register(&bed.client()).await.unwrap();
    }
    for machine in &made {
        condition(&bed, &machine.name, "False", "RouteCreated").await.unwrap();
    }
    let counts = bed.cluster.cloud.counts().await.unwrap();
    assert!(counts.writes <= 10, "{counts:?}");
    bed.quiet("route-controller").await.unwrap();
    for machine in &made {
        assert_eq!(conditions_written(&mut bed, &machine.name), [200], "{}", machine.name);
    }

    let proxy = ApiProxy::start(&bed.cluster.control_plane).await.unwrap();
    let controller = bed.cluster.pods.get("route-controller").unwrap();
    controller.terminate().await.unwrap();
    proxy.before(controller).unwrap();
    controller.start().unwrap();
    bed.ready().await.unwrap();
    proxy.order(Trouble::Holds("PATCH", "/api/v1/nodes/anew/status"));
    bed.join("anew", Some("10.244.7.0/24")).await.unwrap();
    proxy.holds_one().await.unwrap();
    e2e::delete_node(&bed.client(), "anew").await.unwrap();
    let uid = node("anew").pods("10.244.7.0/24").register(&bed.client()).await.unwrap().metadata.uid;
    proxy.let_go();
    condition(&bed, "anew", "False", "RouteCreated").await.unwrap();
    assert_eq!(bed.nodes().get("anew").await.unwrap().metadata.uid, uid);
    let written = conditions_written(&mut bed, "anew");
    assert_eq!(written, [422, 200]);
}

/// A dual-stack cluster with the node-controller and the route-controller, with short intervals for changes of routes.
async fn dual_stack() -> Bed {
    let values = json!({
        "routeController": { "clusterCidr": "10.244.0.0/16,fd00:10:244::/56", "removal": { "grace": "1s" } },
        "adapter": { "cache": { "routes": { "maxAge": "2s" } } },
        "serviceController": { "enabled": false },
    });
    Bed::start_with(&values).await.unwrap()
}

/// Status codes of the route-controller's writes to a node's status.
fn conditions_written(bed: &mut Bed, node: &str) -> Vec<u16> {
    let writes = bed.writes_of("route-controller", <_>::default(), "").unwrap();
    let of_node = writes.into_iter().filter(|it| it.name == node && it.resource == "nodes/status");
    of_node.map(|it| it.code).collect()
}
