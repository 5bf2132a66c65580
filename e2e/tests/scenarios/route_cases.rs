//! Which routes exist: two IP families, conflicting pod CIDRs, instances that change, calls that fail, and changes during an outage.

use std::collections::BTreeMap;
use std::net::IpAddr;

use adapter_sim::simcloud::Operation;
use adapter_sim::simcloud::model::{Instance, Route, RouteStatus};
use anyhow::{Context, ensure};
use e2e::{ADAPTER, Bed, Mark, NodeBuilder, State, network_unavailable, node};
use k8s_openapi::api::core::v1::{Event, Node};
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{from_value, json};

const CREATED: (&str, &str, &str) = ("False", "RouteCreated", "RouteController created a route");
const FAILED: (&str, &str, &str) = ("True", "NoRouteCreated", "RouteController failed to create a route");

/// A pod CIDR that two nodes have.
const TWINS: &str = "10.244.2.0/24";

/// Instance IDs by the destination of their routes.
type Wanted = BTreeMap<String, String>;

/// Installs the node-controller and the route-controller, with short intervals for changes of routes.
async fn install() -> Bed {
    let values = json!({
        "routeController": { "clusterCidr": "10.244.0.0/16,fd00:10:244::/56", "removal": { "grace": "3s" } },
        "adapter": { "cache": { "routes": { "maxAge": "2s" } } },
        "serviceController": { "enabled": false },
    });
    Bed::install_with(&values).await.unwrap()
}

/// A node gets a route for each of its pod CIDRs, whatever happened to them and to its instance before.
// Behaviour: R3, R4, R5, R6, R7, R8, R9, R16, P21, W19
#[tokio::test]
async fn each_pod_cidr_has_a_route_to_its_node() {
    let mut bed = install().await;
    bed.start_pods().await.unwrap();
    // Long before the node with the same CIDR.
    let older = bed.join("b-twin", Some(TWINS)).await.unwrap();
    let mut wanted = Wanted::from([(TWINS.to_owned(), machine(&older))]);
    both_families(&mut bed, &mut wanted).await;
    no_pod_cidr(&mut bed, &wanted).await;
    two_nodes_with_one_pod_cidr(&mut bed, &mut wanted).await;
    a_machine_replaced(&bed, &mut wanted).await;
    a_black_hole(&mut bed, &wanted).await;
    a_recreated_node(&mut bed, &mut wanted).await;
    outside_of_the_cluster(&bed, &mut wanted).await;
}

/// CIDRs are compared by value, in any spelling; a condition that another controller writes does not last.
async fn both_families(bed: &mut Bed, wanted: &mut Wanted) {
    let addresses = ["10.9.0.1", "fd00::9:1"].map(|it| json!({ "kind": "internal", "address": it }));
    let order = json!({ "name": "dual", "addresses": addresses });
    let machine = bed.cluster.cloud.create_instances(&order).await.unwrap().remove(0);
    let dual = node("dual").pods("10.244.1.0/24").pods("fd00:0010:0244:0001:0:0:0:0/64");
    dual.register(&bed.client()).await.unwrap();
    condition(bed, "dual", CREATED).await;
    for to in ["10.244.1.0/24", "fd00:10:244:1::/64"] {
        wanted.insert(to.to_owned(), machine.id.clone());
    }
    let routes = lead(bed, wanted).await;
    let dual = routes.iter().filter(|route| route.next_hop_instance.as_ref() == Some(&machine.id));
    let via: Vec<IpAddr> = dual.filter_map(|route| route.next_hop_address).collect();
    assert_eq!(via, ["10.9.0.1", "fd00::9:1"].map(|it| it.parse::<IpAddr>().unwrap()));

    bed.quiet("route-controller").await.unwrap();
    bed.cluster.pods.get("route-controller").unwrap().terminate().await.unwrap();
    let calico = json!({ "type": "NetworkUnavailable", "status": "False", "reason": "CalicoIsUp" });
    let patch = Patch::Strategic(json!({ "status": { "conditions": [calico] } }));
    bed.nodes().patch_status("dual", &PatchParams::default(), &patch).await.unwrap();
    let mark = bed.cluster.control_plane.audit_log().mark().unwrap();
    bed.cluster.cloud.reset_counts().await.unwrap();
    bed.cluster.pods.get("route-controller").unwrap().start().unwrap();
    condition(bed, "dual", CREATED).await;
    bed.quiet("route-controller").await.unwrap();
    assert_eq!(writes(bed, mark), ["patch nodes/status dual 200"]);

    // Now the controller is running, and nothing else changes.
    bed.nodes().patch_status("dual", &PatchParams::default(), &patch).await.unwrap();
    condition(bed, "dual", CREATED).await;
    bed.quiet("route-controller").await.unwrap();
    assert_eq!(writes(bed, mark), ["patch nodes/status dual 200"; 2]);
    assert_eq!(bed.cluster.cloud.counts().await.unwrap().writes, 0);
}

/// A node without a pod CIDR has no route, and no condition about one.
async fn no_pod_cidr(bed: &mut Bed, wanted: &Wanted) {
    let mark = bed.cluster.control_plane.audit_log().mark().unwrap();
    bed.join("bare", None).await.unwrap();
    bed.quiet("route-controller").await.unwrap();
    assert_eq!(network_unavailable(&bed.nodes().get("bare").await.unwrap()), None);
    assert!(bed.events("Node", "bare").await.unwrap().iter().all(|it| !of_routes(it.reason.as_deref())));
    assert_eq!(writes(bed, mark), [""; 0]);
    lead(bed, wanted).await;
}

/// The older node keeps the CIDR, whatever their names are. When it is deleted, its route is removed before the other route is created.
async fn two_nodes_with_one_pod_cidr(bed: &mut Bed, wanted: &mut Wanted) {
    bed.quiet("route-controller").await.unwrap();
    let younger = bed.cluster.cloud.create_instance("a-twin").await.unwrap();
    bed.cluster.cloud.reset_counts().await.unwrap();
    let made = on(&younger, "a-twin").pods(TWINS).register(&bed.client()).await.unwrap();
    let older = bed.nodes().get("b-twin").await.unwrap();
    assert!(
        made.creation_timestamp() > older.creation_timestamp(),
        "the younger node must have a later timestamp"
    );
    let told = bed.told("Node", "a-twin", "PodCIDRRefused").await.unwrap();
    assert!(told.contains("the older node b-twin has the same CIDR"), "{told}");
    events_have_the_usual_fields(bed, "a-twin", "PodCIDRRefused").await;
    condition(bed, "a-twin", FAILED).await;
    assert_eq!(bed.cluster.cloud.counts().await.unwrap().of(Operation::BatchRoutes), 0);
    lead(bed, wanted).await;

    e2e::delete_node(&bed.client(), "b-twin").await.unwrap();
    condition(bed, "a-twin", CREATED).await;
    wanted.insert(TWINS.to_owned(), younger.id);
    lead(bed, wanted).await;
    // The cloud refuses a second route to a CIDR: the first call removes, the second one creates.
    let calls = bed.cluster.cloud.counts().await.unwrap();
    assert_eq!(calls.of(Operation::BatchRoutes), 2, "{calls:?}");
    assert_eq!(bed.times("Node", "a-twin", "FailedToCreateRoute").await.unwrap(), 0);
}

/// `kubectl` and clients that read the fields of Events find the usual values.
async fn events_have_the_usual_fields(bed: &Bed, node: &str, reason: &str) {
    let fields = format!("involvedObject.name={node},reason={reason},source=route_controller");
    let events: Api<Event> = Api::namespaced(bed.client(), "default");
    let event = events.list(&ListParams::default().fields(&fields)).await.unwrap().items.remove(0);
    assert_eq!(event.source.and_then(|it| it.component).as_deref(), Some("route_controller"));
    assert_eq!(event.reporting_component.as_deref(), Some("route_controller"));
    let told = (event.count.is_some(), event.first_timestamp.is_some(), event.last_timestamp.is_some());
    assert_eq!(told, (true, true, true));

    // The line ends with the count and the name.
    let get = [
        "get",
        "events",
        "--namespace=default",
        "--output=wide",
        "--no-headers",
        "--field-selector",
        &fields,
    ];
    let shown = bed.cluster.control_plane.kubectl(&get).await.unwrap();
    let words: Vec<&str> = shown.split_whitespace().collect();
    assert!(shown.contains(" route_controller, ") && !shown.contains("<unknown>"), "{shown}");
    assert!(
        words.ends_with(&[&*event.count.unwrap().to_string(), &*event.metadata.name.unwrap()]),
        "{shown}"
    );
}

/// The route to a deleted instance, now a black hole, is replaced at once.
async fn a_machine_replaced(bed: &Bed, wanted: &mut Wanted) {
    let gone = machine(&bed.join("replaced", Some("10.244.3.0/24")).await.unwrap());
    condition(bed, "replaced", CREATED).await;
    bed.cluster.cloud.delete_instance(&gone).await.unwrap();
    e2e::delete_node(&bed.client(), "replaced").await.unwrap();
    let new = bed.cluster.cloud.create_instance("replaced").await.unwrap();
    on(&new, "replaced").pods("10.244.3.0/24").register(&bed.client()).await.unwrap();
    condition(bed, "replaced", CREATED).await;
    wanted.insert("10.244.3.0/24".to_owned(), new.id);
    lead(bed, wanted).await;
}

/// A route that the cloud lists as a black hole, though its instance exists, is replaced by one call.
async fn a_black_hole(bed: &mut Bed, wanted: &Wanted) {
    bed.quiet("route-controller").await.unwrap();
    let (before, mut shown) = (lead(bed, wanted).await, bed.cluster.cloud.state().await.unwrap().routes);
    let to = |route: &&Route| route.destination.to_string() == "10.244.3.0/24";
    let hole = shown.iter_mut().find(|route| to(&&**route)).unwrap();
    hole.status = RouteStatus::Blackhole;
    let listing = json!({ "status": 200, "body": { "routes": shown, "next": null } });
    let fault = json!({ "match": { "operation": "ListRoutes" }, "action": { "respond": listing } });
    bed.cluster.cloud.reset_counts().await.unwrap();
    bed.cluster.cloud.add_fault(&from_value(fault).unwrap()).await.unwrap();
    let old = before.iter().find(to).unwrap();
    bed.until_cloud("another route exists", |state| {
        let new = state.routes.iter().find(to).context("no such route")?;
        ensure!(new.id != old.id, "{new:?}");
        Ok(())
    })
    .await
    .unwrap();
    bed.cluster.cloud.clear_faults().await.unwrap();
    lead(bed, wanted).await;
    condition(bed, "replaced", CREATED).await;
    bed.quiet("route-controller").await.unwrap();
    let calls = bed.cluster.cloud.counts().await.unwrap();
    assert_eq!(calls.of(Operation::BatchRoutes), 1, "{calls:?}");
    assert_eq!(bed.times("Node", "replaced", "FailedToCreateRoute").await.unwrap(), 0);
}

/// The route outside the cluster's CIDRs is created, but stays when the node is deleted, and an Event on the node says so. Routes inside
/// are removed.
async fn outside_of_the_cluster(bed: &Bed, wanted: &mut Wanted) {
    let outside = bed.join("outside", Some("10.99.1.0/24")).await.unwrap();
    bed.join("inside", Some("10.244.5.0/24")).await.unwrap();
    for name in ["outside", "inside"] {
        condition(bed, name, CREATED).await;
    }
    let told = bed.told("Node", "outside", "PodCIDROutside").await.unwrap();
    assert!(
        told.contains("10.99.1.0/24") && told.contains("its route is not removed when this node is deleted"),
        "{told}"
    );
    assert_eq!(bed.times("Node", "inside", "PodCIDROutside").await.unwrap(), 0);
    wanted.insert("10.99.1.0/24".to_owned(), machine(&outside));
    for name in ["outside", "inside"] {
        e2e::delete_node(&bed.client(), name).await.unwrap();
    }
    lead(bed, wanted).await;
}

/// The route of a recreated node is kept. It is removed when the node has no pod CIDR any more, and the condition says so until then.
async fn a_recreated_node(bed: &mut Bed, wanted: &mut Wanted) {
    let machine = bed.cluster.cloud.create_instance("anew").await.unwrap();
    let kubelet = || on(&machine, "anew");
    kubelet().pods("10.244.4.0/24").register(&bed.client()).await.unwrap();
    condition(bed, "anew", CREATED).await;
    wanted.insert("10.244.4.0/24".to_owned(), machine.id.clone());
    let before = lead(bed, wanted).await;
    bed.quiet("route-controller").await.unwrap();
    bed.cluster.cloud.reset_counts().await.unwrap();
    e2e::delete_node(&bed.client(), "anew").await.unwrap();
    kubelet().pods("10.244.4.0/24").register(&bed.client()).await.unwrap();
    condition(bed, "anew", CREATED).await;
    assert_eq!(lead(bed, wanted).await, before);
    assert_eq!(bed.cluster.cloud.counts().await.unwrap().writes, 0);

    e2e::delete_node(&bed.client(), "anew").await.unwrap();
    kubelet().register(&bed.client()).await.unwrap();
    condition(bed, "anew", FAILED).await;
    wanted.remove("10.244.4.0/24");
    lead(bed, wanted).await;
}

/// A route that cannot be created affects only its node; routes of other clusters are left alone; and an outage removes no route.
// Behaviour: R10, R11, R14, R16, R19, P31, W19
#[tokio::test]
async fn failed_routes_are_retried_and_missed_changes_applied() {
    let mut bed = install().await;
    let mut wanted = Wanted::new();
    one_of_many_routes_fails(&mut bed, &mut wanted).await;
    a_route_succeeds_at_the_second_attempt(&mut bed, &mut wanted).await;
    routes_only_partly_owned(&mut bed, &wanted).await;
    a_deletion_while_the_controller_is_down(&mut bed, &mut wanted).await;
    an_outage_of_the_adapter(&mut bed, &mut wanted).await;
}

/// All of them are in one call.
async fn one_of_many_routes_fails(bed: &mut Bed, wanted: &mut Wanted) {
    for name in [ADAPTER, "node-controller"] {
        bed.cluster.pods.get(name).unwrap().start().unwrap();
    }
    let lost = bed.cluster.cloud.create_instance("lost").await.unwrap();
    bed.cluster.cloud.delete_instance(&lost.id).await.unwrap();
    on(&lost, "lost").pods("10.244.10.0/24").register(&bed.client()).await.unwrap();
    for number in 1..=4 {
        let (name, to) = (format!("good-{number}"), format!("10.244.{number}.0/24"));
        wanted.insert(to.clone(), machine(&bed.join(&name, Some(&to)).await.unwrap()));
    }
    bed.cluster.cloud.reset_counts().await.unwrap();
    bed.cluster.pods.get("route-controller").unwrap().start().unwrap();
    bed.ready().await.unwrap();
    for number in 1..=4 {
        condition(bed, &format!("good-{number}"), CREATED).await;
    }
    lead(bed, wanted).await;
    let told = bed.told("Node", "lost", "FailedToCreateRoute").await.unwrap();
    assert!(
        told.starts_with("Could not create route ") && told.contains(" 10.244.10.0/24 for node lost"),
        "{told}"
    );
    condition(bed, "lost", FAILED).await;
    assert_eq!(bed.cluster.cloud.counts().await.unwrap().of(Operation::BatchRoutes), 1);
    // No route leads to an instance that never existed, so nothing is left to do.
    e2e::delete_node(&bed.client(), "lost").await.unwrap();
}

/// Nothing else changes in between.
async fn a_route_succeeds_at_the_second_attempt(bed: &mut Bed, wanted: &mut Wanted) {
    let refusal = json!({ "code": "route_exists", "message": "not this time", "details": null });
    let fault = json!({
        "match": { "operation": "BatchRoutes" },
        "when": { "next": 1 },
        "action": { "respond": { "status": 200, "body": { "added": [{ "error": refusal }], "removed": [] } } },
    });
    bed.quiet("route-controller").await.unwrap();
    let mark = bed.cluster.control_plane.audit_log().mark().unwrap();
    bed.cluster.cloud.add_fault(&from_value(fault).unwrap()).await.unwrap();
    wanted.insert(
        "10.244.5.0/24".to_owned(),
        machine(&bed.join("again", Some("10.244.5.0/24")).await.unwrap()),
    );
    condition(bed, "again", CREATED).await;
    lead(bed, wanted).await;
    let told = bed.told("Node", "again", "FailedToCreateRoute").await.unwrap();
    assert!(told.contains("not this time"), "{told}");
    assert_eq!(bed.times("Node", "again", "FailedToCreateRoute").await.unwrap(), 1);
    bed.quiet("route-controller").await.unwrap();
    let conditions = ["patch nodes/status again 200", "patch nodes/status again 200"];
    let written = writes(bed, mark).into_iter().filter(|it| it.contains("nodes/status"));
    assert_eq!(written.collect::<Vec<_>>(), conditions, "one failure, then one success");
}

/// A route that no node has is removed only if it has our tags and lies entirely inside the cluster's CIDRs.
async fn routes_only_partly_owned(bed: &mut Bed, wanted: &Wanted) {
    let good = lead(bed, wanted).await.remove(0);
    let tagged = |to: &str, tag: &str, value: &str| {
        let mut tags = good.tags.clone();
        tags.insert(format!("cloudadapter.dev/{tag}"), value.to_owned());
        json!({ "destination": to, "next_hop_instance": good.next_hop_instance, "tags": tags })
    };
    let stray = tagged("10.244.99.0/24", "node-uid", "nobody");
    let stay = [
        tagged("10.244.98.0/24", "cluster-id", "another"),
        tagged("10.244.0.0/15", "node-uid", "nobody"),
        tagged("10.245.1.0/24", "node-uid", "nobody"),
        tagged("0.0.0.0/0", "node-uid", "nobody"),
    ];
    let add: Vec<_> = stay.iter().chain([&stray]).collect();
    let add = json!({ "add": add });
    let laid = bed.cluster.cloud.by_hand(http::Method::POST, "/v1/routes:batch", Some(&add));
    laid.await.unwrap();
    let before = bed.cluster.cloud.state().await.unwrap().routes;
    assert_eq!(before.len(), wanted.len() + stay.len() + 1);
    let stays = |route: &Route| route.destination.to_string() != "10.244.99.0/24";
    let before: Vec<Route> = before.into_iter().filter(stays).collect();
    bed.wait_cloud("only the route that no node has is removed", |state| state.routes == before)
        .await
        .unwrap();
    let pod = &*bed.cluster.pods.get("route-controller").unwrap();
    let counted = pod.counted("cloud_controller_routes_foreign", "owner").await.unwrap();
    assert_eq!(counted.get("other-cluster"), Some(&1.0), "{counted:?}");
}

/// The node is deleted while the controller is down.
async fn a_deletion_while_the_controller_is_down(bed: &mut Bed, wanted: &mut Wanted) {
    bed.cluster.pods.get("route-controller").unwrap().terminate().await.unwrap();
    e2e::delete_node(&bed.client(), "good-1").await.unwrap();
    bed.cluster.pods.get("route-controller").unwrap().start().unwrap();
    wanted.remove("10.244.1.0/24");
    lead(bed, wanted).await;
}

/// Without the adapter the state of the cloud is unknown: an Event says why the node waits, and everything is done when the adapter is
/// back.
async fn an_outage_of_the_adapter(bed: &mut Bed, wanted: &mut Wanted) {
    bed.quiet("route-controller").await.unwrap();
    let new = bed.cluster.cloud.create_instance("new").await.unwrap();
    let before = bed.cluster.cloud.state().await.unwrap().routes;
    bed.cluster.pods.get(ADAPTER).unwrap().terminate().await.unwrap();
    bed.cluster.cloud.reset_counts().await.unwrap();
    e2e::delete_node(&bed.client(), "good-2").await.unwrap();
    on(&new, "new").pods("10.244.7.0/24").register(&bed.client()).await.unwrap();
    // By then the grace period is over.
    let told = bed.told("Node", "new", "WaitsForCloud").await.unwrap();
    assert!(told.contains("reachable"), "{told}");
    assert_eq!(network_unavailable(&bed.nodes().get("new").await.unwrap()), None);
    assert_eq!(bed.cluster.cloud.state().await.unwrap().routes, before);

    bed.cluster.pods.get(ADAPTER).unwrap().start().unwrap();
    wanted.remove("10.244.2.0/24");
    wanted.insert("10.244.7.0/24".to_owned(), new.id);
    lead(bed, wanted).await;
    condition(bed, "new", CREATED).await;
    bed.ready().await.unwrap();
}

/// A node whose kubelet sets the provider ID of this instance.
fn on(machine: &Instance, name: &str) -> NodeBuilder {
    node(name).provider_id(&format!("sim://{}/{}", machine.region, machine.id))
}

/// The instance ID of a node.
fn machine(node: &Node) -> String {
    let id = node.spec.as_ref().and_then(|spec| spec.provider_id.as_ref()).unwrap();
    id.rsplit('/').next().unwrap().to_owned()
}

/// Waits until the routes of this cluster are exactly these, and returns them by destination.
async fn lead(bed: &Bed, wanted: &Wanted) -> Vec<Route> {
    let what = format!("routes lead to {wanted:?}");
    bed.until_cloud(&what, |state: &State| {
        let mut ours: Vec<Route> = state.routes.iter().filter(|it| is_ours(it)).cloned().collect();
        ours.sort_by_key(|route| route.destination);
        let led = ours
            .iter()
            .map(|it| (it.destination.to_string(), it.next_hop_instance.clone().unwrap_or_default()));
        let led: Wanted = led.collect();
        ensure!(led == *wanted && ours.len() == led.len(), "{ours:#?}");
        Ok(ours)
    })
    .await
    .unwrap()
}

/// Excludes the routes that [`routes_only_partly_owned`] adds.
fn is_ours(route: &Route) -> bool {
    let tag = |tag: &str| route.tags.get(&format!("cloudadapter.dev/{tag}")).map(String::as_str);
    tag("node-uid").is_some_and(|uid| uid != "nobody") && tag("cluster-id") != Some("another")
}

/// Waits until a node's condition has exactly these values.
async fn condition(bed: &Bed, node: &str, wanted: (&str, &str, &str)) {
    bed.until_node(node, &format!("has NetworkUnavailable {wanted:?}"), |node| {
        let found = network_unavailable(node).context("no such condition")?;
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let seen = (&*found.status, &*text(&found.reason), &*text(&found.message));
        ensure!(seen == wanted, "{seen:?}");
        Ok(())
    })
    .await
    .unwrap();
}

/// Whether an Event belongs to this controller.
fn of_routes(reason: Option<&str>) -> bool {
    matches!(reason, Some("FailedToCreateRoute" | "PodCIDRRefused" | "WaitsForCloud"))
}

/// The controller's writes without Events, in order: verb, resource, name, status.
fn writes(bed: &mut Bed, since: Mark) -> Vec<String> {
    let writes = bed.writes_of("route-controller", since, "").unwrap();
    let told = writes.into_iter().filter(|it| it.resource != "events");
    told.map(|it| format!("{} {} {} {}", it.verb, it.resource, it.name, it.code)).collect()
}
