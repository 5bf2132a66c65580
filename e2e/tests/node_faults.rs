//! Nodes that somebody else writes at the same moment, names that mislead, and clouds that cannot tell.

#![expect(clippy::unwrap_used, reason = "clippy knows tests, and not their helpers")]

use adapter_sim::simcloud::faults::FaultRule;
use adapter_sim::simcloud::model::Instance;
use anyhow::Context;
use e2e::{ApiProxy, Bed, Mark, Trouble, UNINITIALIZED, eventually, is_uninitialised, node};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use serde_json::{from_value, json};

/// Nodes that wait for machines that never come.
const LATE: u64 = 20;

/// Between the controller's look and its write, somebody changes taints or makes the node anew.
#[tokio::test]
async fn whoever_writes_at_the_same_moment_loses_nothing() {
    let values =
        json!({ "serviceController": { "enabled": false }, "routeController": { "enabled": false } });
    let mut bed = Bed::install_with(&values).await.unwrap();
    let proxy = ApiProxy::start(&mut bed.cluster.control_plane).await.unwrap();
    proxy.before(bed.cluster.pods.get("node-controller").unwrap()).unwrap();
    bed.cluster.pods.start().unwrap();
    bed.ready().await.unwrap();

    register(&bed, &proxy, "contested", Trouble::Holds("PATCH", "/api/v1/nodes/contested")).await;
    let taints = json!([
        { "key": UNINITIALIZED, "value": "true", "effect": "NoSchedule" },
        { "key": "example.com/meanwhile", "effect": "NoExecute" },
    ]);
    bed.patch_node("contested", &json!({ "spec": { "taints": taints } })).await.unwrap();
    proxy.let_go();
    let contested = bed.initialised("contested").await.unwrap();
    assert!(has_taint(&contested, "example.com/meanwhile"), "{:?}", contested.spec);
    bed.told("Node", "contested", "Synced").await.unwrap();
    let written = writes(&mut bed, <_>::default(), "contested");
    assert_eq!(written, ["patch nodes/status 200", "patch nodes 422", "patch nodes 200"]);

    register(&bed, &proxy, "anew", Trouble::Holds("PATCH", "/api/v1/nodes/anew/status")).await;
    e2e::delete_node(&bed.client(), "anew").await.unwrap();
    let uid = node("anew").register(&bed.client()).await.unwrap().uid();
    proxy.let_go();
    assert_eq!(bed.initialised("anew").await.unwrap().uid(), uid);
    // Told when the last write is answered.
    bed.told("Node", "anew", "Synced").await.unwrap();
    let written = writes(&mut bed, <_>::default(), "anew");
    assert_eq!(written, ["patch nodes/status 422", "patch nodes/status 200", "patch nodes 200"]);
    // The new one has done nothing wrong.
    assert_eq!(bed.times("Node", "anew", "SyncFailed").await.unwrap(), 0);
    another_uid_is_refused(&bed).await;
}

/// By these answers the controllers know that another node has the name by now.
async fn another_uid_is_refused(bed: &Bed) {
    let (nodes, params) = (bed.nodes(), PatchParams::default());
    let guarded = json!({ "metadata": { "uid": "another", "labels": { "v": "1" } } });
    let tested = json!([{ "op": "test", "path": "/metadata/uid", "value": "another" }]);
    let tested = Patch::Json::<()>(from_value(tested).unwrap());
    for (name, answer, fields) in [
        ("merge", nodes.patch("anew", &params, &Patch::Merge(&guarded)).await, ["metadata.uid"].as_slice()),
        (
            "strategic",
            nodes.patch_status("anew", &params, &Patch::Strategic(&guarded)).await,
            &["metadata.uid"],
        ),
        ("JSON", nodes.patch("anew", &params, &tested).await, &[]),
    ] {
        assert!(matches!(answer, Err(kube::Error::Api(_))), "{name}: {answer:?}");
        if let Err(kube::Error::Api(status)) = answer {
            let causes = status.details.iter().flat_map(|details| &details.causes);
            // It says each of them twice.
            let mut causes: Vec<_> = causes.map(|cause| cause.field.as_str()).collect();
            causes.dedup();
            let seen = (status.code, status.reason.as_str(), causes.as_slice());
            assert_eq!(seen, (422, "Invalid", fields), "{name}: {status:?}");
        }
    }
}

/// A machine comes up and its kubelet registers it; waits until the controller's write is on its way.
async fn register(bed: &Bed, proxy: &ApiProxy, name: &str, holds: Trouble) {
    proxy.order(holds);
    bed.cluster.cloud.create_instance(name).await.unwrap();
    node(name).register(&bed.client()).await.unwrap();
    proxy.holds_one().await.unwrap();
}

/// What the cloud says of a node's name may be old, ambiguous, about another cloud, or nothing at all.
#[tokio::test]
async fn names_that_mislead_and_clouds_that_cannot_tell_are_waited_for() {
    let values =
        json!({ "serviceController": { "enabled": false }, "routeController": { "enabled": false } });
    let mut bed = Bed::install_with(&values).await.unwrap();
    bed.cluster.pods.start().unwrap();
    bed.ready().await.unwrap();
    let client = bed.client();

    // The controller has seen the old machine of the name when the node of the new one comes.
    let old = bed.cluster.cloud.create_instance("swapped").await.unwrap();
    bed.join("listed", None).await.unwrap();
    bed.cluster.cloud.delete_instance(&old.id).await.unwrap();
    let new = bed.cluster.cloud.create_instance("swapped").await.unwrap();
    node("swapped").register(&client).await.unwrap();
    assert_eq!(provider_id(&bed.initialised("swapped").await.unwrap()), Some(provider_id_of(&new)));

    let one = bed.cluster.cloud.create_instance("twin").await.unwrap();
    let other = bed.cluster.cloud.create_instance("twin").await.unwrap();
    node("twin").register(&client).await.unwrap();
    told_of(&bed, "twin", &[&provider_id_of(&one), &provider_id_of(&other)]).await;
    assert!(provider_id(&bed.nodes().get("twin").await.unwrap()).is_none());
    bed.cluster.cloud.delete_instance(&one.id).await.unwrap();

    node("foreign").provider_id("aws:///zone/i-1").register(&client).await.unwrap();
    bed.told("Node", "foreign", "InstanceForeign").await.unwrap();
    let foreign = bed.nodes().get("foreign").await.unwrap();
    assert!(is_uninitialised(&foreign) && provider_id(&foreign).is_some_and(|id| id == "aws:///zone/i-1"));

    // Whoever waits is asked for together with all others, and less and less often.
    bed.cluster.cloud.reset_counts().await.unwrap();
    for number in 0..LATE {
        node(&format!("late-{number}")).register(&client).await.unwrap();
    }
    for number in 0..LATE {
        bed.told("Node", &format!("late-{number}"), "InstanceNotVisible").await.unwrap();
    }
    let counts = bed.cluster.cloud.counts().await.unwrap();
    assert!((1..LATE).contains(&counts.total), "{counts:?}");
    assert_eq!(provider_id(&bed.initialised("twin").await.unwrap()), Some(provider_id_of(&other)));

    let mark = bed.cluster.control_plane.audit_log().mark().unwrap();
    let throttled = json!({
        "match": { "operation": "*" },
        "action": { "respond": { "status": 429, "headers": { "retry-after": "2" } } },
    });
    let throttled: FaultRule = from_value(throttled).unwrap();
    bed.cluster.cloud.reset_counts().await.unwrap();
    bed.cluster.cloud.add_fault(&throttled).await.unwrap();
    bed.cluster.cloud.create_instance("patient").await.unwrap();
    node("patient").register(&client).await.unwrap();
    let told = bed.told("Node", "patient", "CloudProviderFailed").await.unwrap();
    assert!(told.contains("THROTTLED"), "{told}");
    assert_eq!(writes(&mut bed, mark, "patient"), Vec::<String>::new());
    bed.cluster.cloud.clear_faults().await.unwrap();
    bed.initialised("patient").await.unwrap();
}

/// Waits until a node has an Event with all these words.
async fn told_of(bed: &Bed, node: &str, words: &[&str]) {
    let what = format!("{node} is told of {words:?}");
    let told = eventually(&what, bed.within, || async {
        let events = bed.events("Node", node).await?;
        let mut messages = events.iter().filter_map(|event| event.message.as_deref());
        let all = messages.find(|message| words.iter().all(|word| message.contains(word)));
        all.map(drop).with_context(|| format!("{events:#?}"))
    });
    told.await.unwrap();
}

/// What the controller wrote to a node, in order: verb, resource, answer. What is refused may be tried again before the change is
/// seen.
fn writes(bed: &mut Bed, since: Mark, node: &str) -> Vec<String> {
    let writes = bed.writes_of("node-controller", since, "").unwrap();
    let of_node = writes.into_iter().filter(|it| it.name == node && it.resource.starts_with("nodes"));
    let mut written: Vec<_> = of_node.map(|it| format!("{} {} {}", it.verb, it.resource, it.code)).collect();
    written.dedup();
    written
}

fn provider_id_of(machine: &Instance) -> String {
    format!("sim://{}/{}", machine.region, machine.id)
}

fn provider_id(node: &Node) -> Option<String> {
    node.spec.as_ref()?.provider_id.clone()
}

fn has_taint(node: &Node, key: &str) -> bool {
    node.spec.iter().flat_map(|spec| spec.taints.iter().flatten()).any(|taint| taint.key == key)
}
