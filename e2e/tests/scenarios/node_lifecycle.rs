//! Tests of nodes whose instances are stopped, are gone, or only seem to be gone.

use adapter_sim::simcloud::Operation;
use adapter_sim::simcloud::model::InstanceStatus;
use anyhow::{Context, ensure};
use e2e::{ApiProxy, Bed, Ready, WITHIN, eventually, merge, node, set_ready};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Event, Node};
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, from_value, json};

const SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";
const RIGHTS: &str = "cloud-controllers:kube-system:node-controller";
const LET_GO: &str = "cloudadapter.dev/delete-despite-brake";
/// Number of times that another client changes the node before the controller's deletion arrives.
const RACES: usize = 3;

/// All processes poll often, so that the test does not wait long.
fn often(brake: &Value) -> Value {
    let mut deletion = json!({ "monitorPeriod": "500ms", "confirmAfter": "1s", "window": "10m" });
    merge(&mut deletion, brake);
    json!({
        "adapter": { "cache": { "instances": { "maxAge": "2s" } } },
        "nodeController": { "deletion": deletion },
    })
}

async fn start(brake: &Value) -> Bed {
    Bed::start_with(&often(brake)).await.unwrap()
}

/// A node whose instance is stopped is tainted. A node whose instance is gone is deleted, and no other node is.
// Behaviour: NI10, ND1, ND2, ND7, ND8, W4
#[tokio::test]
async fn a_node_is_tainted_and_deleted_with_its_instance() {
    let mut bed = start(&json!({ "window": "1s" })).await;
    for name in ["a", "b", "ready"] {
        bed.join(name, None).await.unwrap();
    }
    let (cloud, client) = (&bed.cluster.cloud, bed.client());
    cloud.set_instance_status(&bed.instance("a").await.unwrap(), InstanceStatus::Stopped).await.unwrap();
    set_ready(&client, "a", Ready::Unknown).await.unwrap();
    until_tainted(&bed, "a", true).await;
    cloud.set_instance_status(&bed.instance("a").await.unwrap(), InstanceStatus::Running).await.unwrap();
    set_ready(&client, "a", Ready::True).await.unwrap();
    until_tainted(&bed, "a", false).await;

    // Nodes that this controller does not manage, and a node whose kubelet works although its instance is gone from the cloud.
    for (name, id) in [("foreign", "aws:///zone/i-1"), ("odd", "i-1")] {
        node(name).provider_id(id).not_ready().register(&client).await.unwrap();
    }
    for (name, reason) in [("foreign", "InstanceForeign"), ("odd", "CloudProviderFailed")] {
        bed.wait_for_event("Node", name, reason).await.unwrap();
    }
    cloud.delete_instance(&bed.instance("ready").await.unwrap()).await.unwrap();
    let mark = bed.cluster.control_plane.audit_log().mark().unwrap();
    cloud.delete_instance(&bed.instance("b").await.unwrap()).await.unwrap();
    set_ready(&client, "b", Ready::Unknown).await.unwrap();
    bed.node_gone("b").await.unwrap();
    let message = bed.wait_for_event("Node", "b", "DeletingNode").await.unwrap();
    assert_eq!(message, "Deleting node b because it does not exist in the cloud provider");
    let events = bed.events("Node", "b").await.unwrap();
    let event = events.iter().find(|event| event.reason.as_deref() == Some("DeletingNode")).unwrap();
    assert_eq!(event.reporting_component.as_deref(), Some("cloud-node-lifecycle-controller"));

    for name in ["a", "ready", "foreign", "odd"] {
        assert!(bed.nodes().get_opt(name).await.unwrap().is_some(), "{name} is gone");
    }
    let writes = bed.writes_of("node-controller", mark, "").unwrap();
    let deleted: Vec<_> = writes.iter().filter(|it| it.verb == "delete").collect();
    assert!(matches!(deleted.as_slice(), [it] if it.name == "b" && it.code == 200), "{deleted:?}");
}

/// If more nodes would be deleted than the brake allows, none is deleted until a user allows a deletion. Events, the log and metrics report
/// it.
// Behaviour: ND12
#[tokio::test]
async fn a_mass_deletion_is_held_and_reported() {
    let mut bed = start(&json!({ "maxShare": 20 })).await;
    for name in ["a", "b", "c", "d", "e"] {
        bed.join(name, None).await.unwrap();
    }
    for name in ["a", "b", "c"] {
        bed.cluster.cloud.delete_instance(&bed.instance(name).await.unwrap()).await.unwrap();
    }
    // The controller is suspended, so that it sees all deletions at the same time, however slow this host is. A single node would be
    // deleted.
    let client = bed.client();
    let controller = bed.cluster.pods.get("node-controller").unwrap().id().unwrap();
    let controller = Pid::from_raw(controller.try_into().unwrap()).unwrap();
    kill_process(controller, Signal::STOP).unwrap();
    let unwell = ["a", "b", "c"].map(|name| set_ready(&client, name, Ready::Unknown));
    futures::future::try_join_all(unwell).await.unwrap();
    kill_process(controller, Signal::CONT).unwrap();
    for name in ["a", "b", "c"] {
        let message = bed.wait_for_event("Node", name, "DeletionHeld").await.unwrap();
        assert!(message.contains(&format!("kubectl annotate node {name} {LET_GO}=")), "{message}");
    }
    let events: Api<Event> = Api::all(bed.client());
    let reason = ListParams::default().fields("reason=NodeDeletionBrakeTripped");
    let whole = eventually("one Event reports all of them", WITHIN, || async {
        events.list(&reason).await?.items.into_iter().next_back().context("no Event")
    });
    let whole = whole.await.unwrap();
    let message = whole.message.unwrap_or_default();
    assert!(message.contains("the limit is 1 per"), "{message}");
    let leases: Api<Lease> = Api::namespaced(bed.client(), "kube-system");
    let lease = leases.get("cloud-node-controller").await.unwrap();
    let about = whole.involved_object;
    assert_eq!((about.kind.as_deref(), about.name), (Some("Lease"), lease.metadata.name));
    assert!(about.uid.is_some() && about.uid == lease.metadata.uid, "{:?}", about.uid);
    let gauges = async |bed: &mut Bed, held: f64, tripped: f64| {
        let pod = &*bed.cluster.pods.get("node-controller").unwrap();
        let shows = eventually("the metrics report it", WITHIN, || async {
            for (name, wanted) in [("deletions_held", held), ("deletion_brake_tripped", tripped)] {
                let gauge = pod.counted(&format!("cloud_controller_node_{name}"), "controller").await?;
                let shown: f64 = gauge.values().sum();
                ensure!((shown - wanted).abs() < 0.5, "{name} is {gauge:?}, expected {wanted}");
            }
            Ok(())
        });
        shows.await.unwrap();
    };
    gauges(&mut bed, 3.0, 1.0).await;

    let uid = bed.nodes().get("b").await.unwrap().metadata.uid.unwrap();
    annotate(&bed, "a", "another-uid").await;
    annotate(&bed, "b", &uid).await;
    bed.node_gone("b").await.unwrap();
    gauges(&mut bed, 2.0, 1.0).await;
    for name in ["a", "c"] {
        assert!(bed.nodes().get_opt(name).await.unwrap().is_some(), "{name} is gone");
    }

    // With one candidate less, the brake permits the deletion of the node `c`.
    set_ready(&bed.client(), "a", Ready::True).await.unwrap();
    bed.node_gone("c").await.unwrap();
    gauges(&mut bed, 0.0, 0.0).await;
    assert!(bed.nodes().get_opt("a").await.unwrap().is_some());
}

/// A node stays if its instance is not proven gone, or comes back between the proof and the deletion.
// Behaviour: ND4, ND6, ND7, ND10, ND11, P32
#[tokio::test]
async fn a_node_without_proof_of_absence_stays() {
    let mut values = often(&json!({ "window": "1s", "maxShare": 100 }));
    let idle = json!({ "serviceController": { "enabled": false }, "routeController": { "enabled": false } });
    merge(&mut values, &idle);
    let mut bed = Bed::install_with(&values).await.unwrap();
    let proxy = ApiProxy::start(&bed.cluster.control_plane).await.unwrap();
    proxy.before(bed.cluster.pods.get("node-controller").unwrap()).unwrap();
    bed.start_pods().await.unwrap();
    for name in ["runs", "stops", "failing", "refused", "raced", "last", "recreated"] {
        bed.join(name, None).await.unwrap();
    }
    running_machines_cost_nothing(&bed).await;
    // The instance is deleted before the node is initialised.
    let young = bed.cluster.cloud.create_instance("young").await.unwrap();
    bed.cluster.cloud.delete_instance(&young.id).await.unwrap();
    let id = format!("sim://{}/{}", young.region, young.id);
    node("young").provider_id(&id).not_ready().register(&bed.client()).await.unwrap();

    let fails =
        json!({ "match": { "operation": "BatchGetInstances" }, "action": { "respond": { "status": 500 } } });
    bed.cluster.cloud.add_fault(&from_value(fails).unwrap()).await.unwrap();
    lose(&bed, "failing").await;
    let asked = eventually("the cloud fails twice", WITHIN, || async {
        let struck = bed.cluster.cloud.requests().await?.iter().filter(|entry| entry.fault).count();
        ensure!(struck >= 2, "{struck} failed calls");
        Ok(())
    });
    asked.await.unwrap();
    assert!(bed.nodes().get_opt("failing").await.unwrap().is_some());
    bed.cluster.cloud.clear_faults().await.unwrap();
    bed.node_gone("failing").await.unwrap();

    a_refused_deletion_is_reported(&bed).await;
    another_writer_wins_each_race(&mut bed, &proxy).await;

    proxy.order(("DELETE", "/api/v1/nodes/last"));
    lose(&bed, "last").await;
    proxy.holds_one().await.unwrap();
    set_ready(&bed.client(), "last", Ready::True).await.unwrap();
    let uid = bed.nodes().get("last").await.unwrap().uid();
    proxy.let_go();
    stays(&mut bed, "last", uid).await;

    proxy.order(("DELETE", "/api/v1/nodes/recreated"));
    lose(&bed, "recreated").await;
    proxy.holds_one().await.unwrap();
    e2e::delete_node(&bed.client(), "recreated").await.unwrap();
    let uid = node("recreated").register(&bed.client()).await.unwrap().uid();
    proxy.let_go();
    stays(&mut bed, "recreated", uid).await;

    for name in ["young", "runs", "stops"] {
        assert!(bed.nodes().get_opt(name).await.unwrap().is_some(), "{name} is gone");
    }
}

/// While the instance is listed, a node that is not ready causes no look-up, and an old taint stays until the node is ready.
async fn running_machines_cost_nothing(bed: &Bed) {
    let client = bed.client();
    let taint = json!({ "spec": { "taints": [{ "key": SHUTDOWN, "effect": "NoSchedule" }] } });
    set_ready(&client, "runs", Ready::False).await.unwrap();
    bed.patch_node("runs", &taint).await.unwrap();
    bed.cluster.cloud.reset_counts().await.unwrap();
    // The controller keeps checking the nodes, because it has to taint the node `stops`.
    set_ready(&client, "stops", Ready::Unknown).await.unwrap();
    bed.cluster
        .cloud
        .set_instance_status(&bed.instance("stops").await.unwrap(), InstanceStatus::Stopped)
        .await
        .unwrap();
    until_tainted(bed, "stops", true).await;
    until_tainted(bed, "runs", true).await;
    set_ready(&client, "runs", Ready::True).await.unwrap();
    until_tainted(bed, "runs", false).await;
    let asked = bed.cluster.cloud.counts().await.unwrap().of(Operation::BatchGetInstances);
    assert_eq!(asked, 0);
}

/// The API server refuses to delete a node, and later deletes it.
async fn a_refused_deletion_is_reported(bed: &Bed) {
    let rights: Api<ClusterRole> = Api::all(bed.client());
    let may = rights.get(RIGHTS).await.unwrap();
    let mut may_not = may.clone();
    may_not.rules.iter_mut().flatten().for_each(|rule| rule.verbs.retain(|verb| verb != "delete"));
    set_rules(&rights, &may_not).await;
    lose(bed, "refused").await;
    let message = bed.wait_for_event("Node", "refused", "DeletingNodeFailed").await.unwrap();
    assert!(message.starts_with("Failed deleting node refused: "), "{message}");
    set_rules(&rights, &may).await;
    bed.node_gone("refused").await.unwrap();
}

/// The node changes between each read and the deletion that follows it.
async fn another_writer_wins_each_race(bed: &mut Bed, proxy: &ApiProxy) {
    proxy.order(("DELETE", "/api/v1/nodes/raced"));
    lose(bed, "raced").await;
    for race in 0..RACES {
        proxy.holds_one().await.unwrap();
        let labels = json!({ "metadata": { "labels": { "race": race.to_string() } } });
        bed.patch_node("raced", &labels).await.unwrap();
        proxy.let_one_go();
    }
    proxy.let_go();
    bed.node_gone("raced").await.unwrap();
    let writes = bed.writes_of("node-controller", <_>::default(), "").unwrap();
    let deletions = writes.iter().filter(|it| it.verb == "delete" && it.name == "raced");
    let answers: Vec<_> = deletions.map(|it| it.code).collect();
    assert_eq!(answers, [&[409; RACES][..], &[200]].concat());
    assert_eq!(bed.times("Node", "raced", "DeletingNodeFailed").await.unwrap(), 0);
}

async fn lose(bed: &Bed, name: &str) {
    bed.cluster.cloud.delete_instance(&bed.instance(name).await.unwrap()).await.unwrap();
    set_ready(&bed.client(), name, Ready::Unknown).await.unwrap();
}

async fn set_rules(rights: &Api<ClusterRole>, role: &ClusterRole) {
    let rules = json!({ "rules": role.rules });
    rights.patch(RIGHTS, &PatchParams::default(), &Patch::Merge(&rules)).await.unwrap();
}

/// Waits until a deletion was refused, and checks that the node still exists.
async fn stays(bed: &mut Bed, name: &str, uid: Option<String>) {
    let what = format!("the deletion of {name} is refused");
    let user = bed.cluster.pods.get("node-controller").unwrap().user().to_owned();
    let log = bed.cluster.control_plane.audit_log();
    let refused = eventually(&what, WITHIN, || async {
        let writes = log.writes(&user)?;
        let deletions: Vec<_> = writes.iter().filter(|it| it.verb == "delete" && it.name == name).collect();
        ensure!(matches!(deletions.as_slice(), [it] if it.code == 409), "{deletions:?}");
        Ok(())
    });
    refused.await.unwrap();
    assert_eq!(bed.nodes().get(name).await.unwrap().uid(), uid);
}

async fn annotate(bed: &Bed, name: &str, value: &str) {
    bed.patch_node(name, &json!({ "metadata": { "annotations": { LET_GO: value } } })).await.unwrap();
}

async fn until_tainted(bed: &Bed, name: &str, tainted: bool) {
    let is_tainted = |node: &Node| {
        let mut taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
        taints.any(|taint| taint.key == SHUTDOWN && taint.effect == "NoSchedule" && taint.value.is_none())
    };
    let what = if tainted { "has the shutdown taint" } else { "has lost the shutdown taint" };
    bed.wait_node(name, what, |node| is_tainted(node) == tainted).await.unwrap();
}
