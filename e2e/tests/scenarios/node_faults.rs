//! Tests in which other clients change a node between a controller's read and its write.

use e2e::{ApiProxy, Bed, Held, Mark, UNINITIALIZED, is_uninitialised, node};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, from_value, json};

/// Number of times that another client changes the node before the controller's write arrives.
const RACES: usize = 5;

fn nodes_alone() -> Value {
    json!({ "serviceController": { "enabled": false }, "routeController": { "enabled": false } })
}

/// Between the controller's read and its write, another writer changes taints or recreates the node.
// Behaviour: NI14, NI19, P32, W6
#[tokio::test]
async fn concurrent_writers_lose_nothing() {
    let mut bed = Bed::install_with(&nodes_alone()).await.unwrap();
    let proxy = ApiProxy::start(&bed.cluster.control_plane).await.unwrap();
    proxy.before(bed.cluster.pods.get("node-controller").unwrap()).unwrap();
    bed.start_pods().await.unwrap();

    register(&bed, &proxy, "contested", ("PATCH", "/api/v1/nodes/contested")).await;
    let taints = json!([
        { "key": UNINITIALIZED, "value": "true", "effect": "NoSchedule" },
        { "key": "example.com/concurrent", "effect": "NoExecute" },
    ]);
    bed.patch_node("contested", &json!({ "spec": { "taints": taints } })).await.unwrap();
    proxy.let_go();
    let contested = bed.initialised("contested").await.unwrap();
    assert!(has_taint(&contested, "example.com/concurrent"), "{:?}", contested.spec);
    bed.wait_for_event("Node", "contested", "Synced").await.unwrap();
    let written = writes(&mut bed, <_>::default(), "contested");
    assert_eq!(written, ["patch nodes/status 200", "patch nodes 422", "patch nodes 200"]);

    another_writer_wins_each_race(&mut bed, &proxy).await;

    register(&bed, &proxy, "recreated", ("PATCH", "/api/v1/nodes/recreated/status")).await;
    // The controller still handles other nodes. The node `recreated` stays tainted until its addresses are written.
    bed.join("other", None).await.unwrap();
    assert!(is_uninitialised(&bed.nodes().get("recreated").await.unwrap()));
    e2e::delete_node(&bed.client(), "recreated").await.unwrap();
    let uid = node("recreated").register(&bed.client()).await.unwrap().uid();
    proxy.let_go();
    assert_eq!(bed.initialised("recreated").await.unwrap().uid(), uid);
    // The Event follows the last write.
    bed.wait_for_event("Node", "recreated", "Synced").await.unwrap();
    let written = writes(&mut bed, <_>::default(), "recreated");
    assert_eq!(written, ["patch nodes/status 422", "patch nodes/status 200", "patch nodes 200"]);
    // No failure is reported for the recreated node.
    assert_eq!(bed.times("Node", "recreated", "SyncFailed").await.unwrap(), 0);
    another_uid_is_refused(&bed).await;
}

/// No write of another client is lost, other nodes are not delayed, and the node is initialised when the other client's writes end.
async fn another_writer_wins_each_race(bed: &mut Bed, proxy: &ApiProxy) {
    register(bed, proxy, "raced", ("PATCH", "/api/v1/nodes/raced")).await;
    bed.join("beside", None).await.unwrap();
    let mut taints = vec![json!({ "key": UNINITIALIZED, "value": "true", "effect": "NoSchedule" })];
    for race in 0..RACES {
        proxy.holds_one().await.unwrap();
        taints.push(json!({ "key": format!("example.com/other-{race}"), "effect": "NoExecute" }));
        bed.patch_node("raced", &json!({ "spec": { "taints": taints } })).await.unwrap();
        proxy.let_one_go();
    }
    proxy.holds_one().await.unwrap();
    proxy.let_go();
    let raced = bed.initialised("raced").await.unwrap();
    for race in 0..RACES {
        assert!(has_taint(&raced, &format!("example.com/other-{race}")), "{race}: {:?}", raced.spec);
    }
    bed.wait_for_event("Node", "raced", "Synced").await.unwrap();
    let written = writes(bed, <_>::default(), "raced");
    assert_eq!(written, ["patch nodes/status 200", "patch nodes 422", "patch nodes 200"]);
    assert_eq!(bed.times("Node", "raced", "SyncFailed").await.unwrap(), 0);
}

/// The API server refuses a write with the UID of another node. From this answer the controller learns that the name now belongs to another
/// node.
async fn another_uid_is_refused(bed: &Bed) {
    let (nodes, params) = (bed.nodes(), PatchParams::default());
    let guarded = json!({ "metadata": { "uid": "another", "labels": { "v": "1" } } });
    let tested = json!([{ "op": "test", "path": "/metadata/uid", "value": "another" }]);
    let tested = Patch::Json::<()>(from_value(tested).unwrap());
    for (name, answer, fields) in [
        (
            "merge",
            nodes.patch("recreated", &params, &Patch::Merge(&guarded)).await,
            ["metadata.uid"].as_slice(),
        ),
        (
            "strategic",
            nodes.patch_status("recreated", &params, &Patch::Strategic(&guarded)).await,
            &["metadata.uid"],
        ),
        ("JSON", nodes.patch("recreated", &params, &tested).await, &[]),
    ] {
        assert!(matches!(answer, Err(kube::Error::Api(_))), "{name}: {answer:?}");
        if let Err(kube::Error::Api(status)) = answer {
            let causes = status.details.iter().flat_map(|details| &details.causes);
            // The API server repeats each cause.
            let mut causes: Vec<_> = causes.map(|cause| cause.field.as_str()).collect();
            causes.dedup();
            let seen = (status.code, status.reason.as_str(), causes.as_slice());
            assert_eq!(seen, (422, "Invalid", fields), "{name}: {status:?}");
        }
    }
}

/// Creates an instance, registers its node, and waits until the controller's write is held.
async fn register(bed: &Bed, proxy: &ApiProxy, name: &str, holds: Held) {
    proxy.order(holds);
    bed.cluster.cloud.create_instance(name).await.unwrap();
    node(name).register(&bed.client()).await.unwrap();
    proxy.holds_one().await.unwrap();
}

/// The controller's writes to a node, in order: verb, resource, status. A refused write may be repeated before the change is visible.
fn writes(bed: &mut Bed, since: Mark, node: &str) -> Vec<String> {
    let writes = bed.writes_of("node-controller", since, "").unwrap();
    let of_node = writes.into_iter().filter(|it| it.name == node && it.resource.starts_with("nodes"));
    let mut written: Vec<_> = of_node.map(|it| format!("{} {} {}", it.verb, it.resource, it.code)).collect();
    written.dedup();
    written
}

fn has_taint(node: &Node, key: &str) -> bool {
    node.spec.iter().flat_map(|spec| spec.taints.iter().flatten()).any(|taint| taint.key == key)
}
