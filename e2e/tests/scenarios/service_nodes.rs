//! Which nodes are backends of load balancers, which changes have an effect, and how many writes a change costs.

use std::collections::BTreeSet;
use std::time::Duration;

use adapter_sim::simcloud::Operation;
use adapter_sim::simcloud::faults::FaultRule;
use anyhow::ensure;
use e2e::{Bed, NodeBuilder, Ready, State, WITHIN, eventually, node, set_ready};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Node;
use serde_json::{Value, from_value, json};
use tokio::time::Instant;

const EXCLUDED: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
const AUTOSCALER: &str = "ToBeDeletedByClusterAutoscaler";
/// Each Service has one port, so that a change of nodes is one write in the cloud for each.
const SERVICES: [&str; 2] = ["web", "api"];
/// Minimum time for which changes of nodes are collected.
const GATHERED: Duration = Duration::from_millis(200);
/// Number of nodes that join at once.
const CROWD: usize = 12;

/// A node, and whether it is a backend after its initialisation.
type Row = (&'static str, fn(NodeBuilder) -> NodeBuilder, bool);

const NODES: [Row; 11] = [
    ("plain", |it| it, true),
    ("says-false", |it| it.label(EXCLUDED, "false"), true),
    ("says-f", |it| it.label(EXCLUDED, "F"), true),
    ("says-0", |it| it.label(EXCLUDED, "0"), true),
    ("says-true", |it| it.label(EXCLUDED, "true"), false),
    ("says-1", |it| it.label(EXCLUDED, "1"), false),
    ("says-nothing", |it| it.label(EXCLUDED, ""), false),
    ("says-perhaps", |it| it.label(EXCLUDED, "perhaps"), false),
    ("draining", |it| it.taint(AUTOSCALER, "NoExecute"), false),
    ("tainted", |it| it.taint("example.com/special", "NoSchedule"), true),
    ("not-ready", NodeBuilder::not_ready, true),
];

// Behaviour: S13, S26, SN1, SN2, SN3, SN4, SN5, SN6, SN8, P34, W13, W22
#[tokio::test]
async fn load_balancers_have_exactly_the_eligible_nodes() {
    let limits = json!({ "buckets": { "loadbalancer": { "rate": 500, "burst": 500 } } });
    let mut bed = Bed::install_with(&json!({ "adapter": { "limits": limits } })).await.unwrap();
    bed.start_pods().await.unwrap();

    no_nodes_at_all(&bed).await;
    let mut behind = the_first_look(&mut bed).await;
    a_node_without_an_instance(&mut bed, &mut behind).await;
    each_change_by_itself(&mut bed, &mut behind).await;
    changes_without_effect(&mut bed, &mut behind).await;
    many_at_once(&bed, &mut behind).await;
    a_change_that_fails(&bed, &mut behind).await;
    none_left(&bed).await;
}

/// Without nodes, a load balancer is created all the same, and an Event says that it has no backends.
async fn no_nodes_at_all(bed: &Bed) {
    for name in SERVICES {
        bed.expose(name, 80).await.unwrap();
        let told = bed.told("Service", name, "UnAvailableLoadBalancer").await.unwrap();
        assert_eq!(told, "There are no available nodes for LoadBalancer");
    }
}

/// Returns the nodes that are backends.
async fn the_first_look(bed: &mut Bed) -> BTreeSet<String> {
    let client = bed.client();
    for (name, with, _) in NODES {
        bed.cluster.cloud.create_instance(name).await.unwrap();
        with(node(name)).register(&client).await.unwrap();
    }
    for (name, ..) in NODES {
        bed.initialised(name).await.unwrap();
    }
    let behind = NODES.iter().filter(|(.., is_target)| *is_target).map(|(name, ..)| (*name).to_owned());
    let behind: BTreeSet<String> = behind.collect();
    are_behind(bed, &behind).await;
    for name in SERVICES {
        let told = bed.told("Service", name, "UpdatedLoadBalancer").await.unwrap();
        assert_eq!(told, "Updated load balancer with new hosts");
    }
    behind
}

/// A node without an instance is withheld and counted, until its instance exists.
async fn a_node_without_an_instance(bed: &mut Bed, behind: &mut BTreeSet<String>) {
    node("nowhere").register(&bed.client()).await.unwrap();
    withheld(bed, 1.0).await;
    are_behind(bed, behind).await;
    bed.cluster.cloud.create_instance("nowhere").await.unwrap();
    bed.initialised("nowhere").await.unwrap();
    behind.insert("nowhere".to_owned());
    are_behind(bed, behind).await;
    withheld(bed, 0.0).await;
}

/// Each of these changes is applied with one write per Service.
async fn each_change_by_itself(bed: &mut Bed, behind: &mut BTreeSet<String>) {
    let label = |value: Value| json!({ "metadata": { "labels": { EXCLUDED: value } } });
    let taints = |taints: Value| json!({ "spec": { "taints": taints } });
    let held = json!({ "metadata": { "finalizers": ["example.com/held"] } });
    bed.patch_node("plain", &held).await.unwrap();
    let rows = [
        ("the label excludes the node", Some(label(json!("true"))), false),
        ("the label is false", Some(label(json!("f"))), true),
        ("the label is removed", Some(label(Value::Null)), true),
        (
            "the autoscaler is about to remove it",
            Some(taints(json!([{ "key": AUTOSCALER, "effect": "NoSchedule" }]))),
            false,
        ),
        ("the autoscaler removes its taint", Some(taints(json!([]))), true),
        ("it is being deleted", None, false),
    ];
    for (what, patch, is_target) in rows {
        bed.quiet("service-controller").await.unwrap();
        let was_target = behind.contains("plain");
        bed.cluster.cloud.reset_counts().await.unwrap();
        match patch {
            Some(patch) => drop(bed.patch_node("plain", &patch).await.unwrap()),
            None => e2e::delete_node(&bed.client(), "plain").await.unwrap(),
        }
        let _changed = if is_target { behind.insert("plain".to_owned()) } else { behind.remove("plain") };
        are_behind(bed, behind).await;
        bed.quiet("service-controller").await.unwrap();
        let want = if was_target == is_target { 0 } else { SERVICES.len() };
        assert_eq!(member_writes(bed).await, want, "{what}");
    }
    assert!(bed.nodes().get("plain").await.unwrap().metadata.deletion_timestamp.is_some());
}

/// Readiness and other fields have no effect here: the health check covers them.
async fn changes_without_effect(bed: &mut Bed, behind: &mut BTreeSet<String>) {
    bed.quiet("service-controller").await.unwrap();
    bed.cluster.cloud.reset_counts().await.unwrap();
    set_ready(&bed.client(), "not-ready", Ready::True).await.unwrap();
    for ready in [Ready::Unknown, Ready::False] {
        set_ready(&bed.client(), "tainted", ready).await.unwrap();
    }
    let pet = json!({ "metadata": { "labels": { "example.com/pet": "cat" } } });
    for patch in [pet, json!({ "spec": { "taints": [] } }), json!({ "spec": { "unschedulable": true } })] {
        bed.patch_node("tainted", &patch).await.unwrap();
    }
    are_behind(bed, behind).await;

    // A change after them that has an effect: when it is visible, all earlier changes have been reconciled.
    let included = json!({ "metadata": { "labels": { EXCLUDED: "FALSE" } } });
    bed.patch_node("says-perhaps", &included).await.unwrap();
    behind.insert("says-perhaps".to_owned());
    are_behind(bed, behind).await;
    assert_eq!(member_writes(bed).await, SERVICES.len());
}

/// Changes are collected, and few differences are sent for each Service.
async fn many_at_once(bed: &Bed, behind: &mut BTreeSet<String>) {
    let names: Vec<String> = (0..CROWD).map(|number| format!("crowd-{number}")).collect();
    for name in &names {
        bed.cluster.cloud.create_instance(name).await.unwrap();
        node(name).label(EXCLUDED, "").register(&bed.client()).await.unwrap();
    }
    for name in &names {
        bed.initialised(name).await.unwrap();
    }
    bed.cluster.cloud.reset_counts().await.unwrap();
    let begin = Instant::now();
    let wanted = json!({ "metadata": { "labels": { EXCLUDED: null } } });
    try_join_all(names.iter().map(|name| bed.patch_node(name, &wanted))).await.unwrap();
    behind.extend(names);
    are_behind(bed, behind).await;
    let rounds = usize::try_from(begin.elapsed().as_millis() / GATHERED.as_millis()).unwrap() + 1;
    let writes = member_writes(bed).await;
    assert!(writes <= SERVICES.len() * rounds.min(CROWD - 1), "{writes} writes in {:?}", begin.elapsed());
    let whole = bed.cluster.cloud.counts().await.unwrap().of(Operation::SetMembers);
    assert_eq!(whole, 0, "only differences are sent");
}

/// The Event has the usual text, and the change is retried.
async fn a_change_that_fails(bed: &Bed, behind: &mut BTreeSet<String>) {
    let unavailable = json!({
        "match": { "operation": "UpdateMembers" }, "action": { "respond": { "status": 503 } },
    });
    let unavailable: FaultRule = from_value(unavailable).unwrap();
    bed.cluster.cloud.add_fault(&unavailable).await.unwrap();
    bed.join("joins", None).await.unwrap();
    let told = bed.told("Service", "web", "UpdateLoadBalancerFailed").await.unwrap();
    let n = behind.len() + 1;
    assert!(told.starts_with("Error updating load balancer with new hosts [crowd-0 crowd-1 "), "{told}");
    assert!(told.contains(&format!("[node names limited, total number of nodes: {n}], error: ")), "{told}");
    bed.cluster.cloud.clear_faults().await.unwrap();
    behind.insert("joins".to_owned());
    are_behind(bed, behind).await;
    assert_eq!(bed.times("Service", "web", "UpdateLoadBalancerFailed").await.unwrap(), 1);
}

/// The load balancers stay, and an Event says that they have no backends any more.
async fn none_left(bed: &Bed) {
    let before = times(bed, "UnAvailableLoadBalancer").await;
    let excluded = json!({ "metadata": { "labels": { EXCLUDED: "" } } });
    let nodes = bed.nodes().list(&kube::api::ListParams::default()).await.unwrap();
    let names: Vec<String> = nodes.into_iter().filter_map(|it| it.metadata.name).collect();
    try_join_all(names.iter().map(|name| bed.patch_node(name, &excluded))).await.unwrap();
    are_behind(bed, &BTreeSet::new()).await;
    eventually("each Service has an Event that it has no nodes", WITHIN, || async {
        let now = times(bed, "UnAvailableLoadBalancer").await;
        ensure!(now == before + 2, "{before} Events before, and {now} now");
        Ok(())
    })
    .await
    .unwrap();
    for name in SERVICES {
        bed.address(name).await.unwrap();
    }
}

/// Waits until exactly these nodes are backends of each Service.
async fn are_behind(bed: &Bed, names: &BTreeSet<String>) {
    let nodes = bed.nodes().list(&kube::api::ListParams::default()).await.unwrap();
    let named = |node: &&Node| node.metadata.name.as_ref().is_some_and(|name| names.contains(name));
    let wanted: BTreeSet<String> = nodes.iter().filter(named).map(internal_ip).collect();
    let what = format!("{names:?} are backends");
    let seen = bed.until_cloud(&what, |state: &State| {
        for service in SERVICES {
            let pools = &state.balancer(service)?.pools;
            let members = pools.iter().flat_map(|pool| &pool.members).map(|it| it.address.to_string());
            let members: BTreeSet<String> = members.collect();
            ensure!(members == wanted, "{service} has backends {members:?}, expected {wanted:?}");
        }
        Ok(())
    });
    seen.await.unwrap();
}

async fn withheld(bed: &mut Bed, nodes: f64) {
    let pod = &*bed.cluster.pods.get("service-controller").unwrap();
    eventually("the metric of withheld nodes is right", WITHIN, || async {
        let counted = pod.counted("cloud_controller_load_balancer_targets_withheld", "controller").await?;
        let there: f64 = counted.values().sum();
        ensure!((there - nodes).abs() < 0.5, "{there} nodes, expected {nodes}");
        Ok(())
    })
    .await
    .unwrap();
}

/// Number of requests that change the backends of a pool.
async fn member_writes(bed: &Bed) -> usize {
    let counts = bed.cluster.cloud.counts().await.unwrap();
    let writes = [Operation::SetMembers, Operation::UpdateMembers].map(|it| counts.of(it));
    usize::try_from(writes.iter().sum::<u64>()).unwrap()
}

async fn times(bed: &Bed, reason: &str) -> i32 {
    let mut all = 0;
    for name in SERVICES {
        all += bed.times("Service", name, reason).await.unwrap();
    }
    all
}

fn internal_ip(node: &Node) -> String {
    let addresses = node.status.iter().flat_map(|status| status.addresses.iter().flatten());
    addresses.filter(|it| it.type_ == "InternalIP").map(|it| it.address.clone()).next().unwrap_or_default()
}
