//! Which nodes are behind load balancers, what changes that, and what a change costs.

#![expect(clippy::unwrap_used, reason = "clippy knows tests, and not their helpers")]

use std::collections::BTreeSet;
use std::time::Duration;

use adapter_sim::simcloud::Operation;
use adapter_sim::simcloud::faults::FaultRule;
use anyhow::ensure;
use e2e::{Bed, NodeBuilder, Ready, State, WITHIN, eventually, node, service, set_ready};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Node;
use serde_json::{Value, from_value, json};
use tokio::time::Instant;

const EXCLUDED: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
const AUTOSCALER: &str = "ToBeDeletedByClusterAutoscaler";
/// Each has one port, so that a change of nodes is one write at the cloud for each.
const SERVICES: [&str; 2] = ["web", "api"];
/// So long a change of nodes waits for others, at least.
const GATHERED: Duration = Duration::from_millis(200);
/// That join at once.
const CROWD: usize = 12;

/// A node, and whether it is behind load balancers from the first.
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

#[tokio::test]
async fn nodes_are_behind_load_balancers_as_the_rules_say() {
    let limits = json!({ "buckets": { "loadbalancer": { "rate": 500, "burst": 500 } } });
    let mut bed = Bed::install_with(&json!({ "adapter": { "limits": limits } })).await.unwrap();
    bed.cluster.pods.start().unwrap();
    bed.ready().await.unwrap();

    nobody_there(&bed).await;
    let mut behind = the_first_look(&mut bed).await;
    one_without_a_machine(&mut bed, &mut behind).await;
    each_change_by_itself(&mut bed, &mut behind).await;
    what_is_not_looked_at(&mut bed, &mut behind).await;
    many_at_once(&bed, &mut behind).await;
    a_change_that_fails(&bed, &mut behind).await;
    none_left(&bed).await;
}

/// It is made all the same, and people hear that there is nobody behind it.
async fn nobody_there(bed: &Bed) {
    for name in SERVICES {
        service(name).port(80).create(&bed.client()).await.unwrap();
        bed.address(name).await.unwrap();
        let told = bed.told("Service", name, "UnAvailableLoadBalancer").await.unwrap();
        assert_eq!(told, "There are no available nodes for LoadBalancer");
    }
}

/// Returns the nodes that are behind load balancers.
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

/// A node that the cloud knows nothing of is withheld and counted, until its machine is there.
async fn one_without_a_machine(bed: &mut Bed, behind: &mut BTreeSet<String>) {
    node("nowhere").register(&bed.client()).await.unwrap();
    withheld(bed, 1.0).await;
    are_behind(bed, behind).await;
    bed.cluster.cloud.create_instance("nowhere").await.unwrap();
    bed.initialised("nowhere").await.unwrap();
    behind.insert("nowhere".to_owned());
    are_behind(bed, behind).await;
    withheld(bed, 0.0).await;
}

/// Each of these alone is followed, by one write for each Service.
async fn each_change_by_itself(bed: &mut Bed, behind: &mut BTreeSet<String>) {
    let label = |value: Value| json!({ "metadata": { "labels": { EXCLUDED: value } } });
    let taints = |taints: Value| json!({ "spec": { "taints": taints } });
    let held = json!({ "metadata": { "finalizers": ["example.com/held"] } });
    bed.patch_node("plain", &held).await.unwrap();
    let rows = [
        ("the label excludes", Some(label(json!("true"))), false),
        ("the label says otherwise", Some(label(json!("f"))), true),
        ("the label goes", Some(label(Value::Null)), true),
        (
            "the autoscaler is about to remove it",
            Some(taints(json!([{ "key": AUTOSCALER, "effect": "NoSchedule" }]))),
            false,
        ),
        ("and thought better of it", Some(taints(json!([]))), true),
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

/// The health check sees what a node can do: that changes nothing here.
async fn what_is_not_looked_at(bed: &mut Bed, behind: &mut BTreeSet<String>) {
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

    // Who follows this has seen what came before it.
    let included = json!({ "metadata": { "labels": { EXCLUDED: "FALSE" } } });
    bed.patch_node("says-perhaps", &included).await.unwrap();
    behind.insert("says-perhaps".to_owned());
    are_behind(bed, behind).await;
    assert_eq!(member_writes(bed).await, SERVICES.len());
}

/// They are gathered, and go to each Service as few differences.
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

/// People hear of it in the words that they know, and it is made good.
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

/// The load balancers stay, and people hear that nobody is behind them any more.
async fn none_left(bed: &Bed) {
    let before = times(bed, "UnAvailableLoadBalancer").await;
    let excluded = json!({ "metadata": { "labels": { EXCLUDED: "" } } });
    let nodes = bed.nodes().list(&kube::api::ListParams::default()).await.unwrap();
    let names: Vec<String> = nodes.into_iter().filter_map(|it| it.metadata.name).collect();
    try_join_all(names.iter().map(|name| bed.patch_node(name, &excluded))).await.unwrap();
    are_behind(bed, &BTreeSet::new()).await;
    eventually("people hear that no node is left", WITHIN, || async {
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

/// Waits until these nodes, and no others, are behind each Service.
async fn are_behind(bed: &Bed, names: &BTreeSet<String>) {
    let nodes = bed.nodes().list(&kube::api::ListParams::default()).await.unwrap();
    let named = |node: &&Node| node.metadata.name.as_ref().is_some_and(|name| names.contains(name));
    let wanted: BTreeSet<String> = nodes.iter().filter(named).map(internal_ip).collect();
    let what = format!("{names:?} are behind load balancers");
    let seen = bed.until_cloud(&what, |state: &State| {
        for service in SERVICES {
            let pools = &state.balancer(service)?.pools;
            let members = pools.iter().flat_map(|pool| &pool.members).map(|it| it.address.to_string());
            let members: BTreeSet<String> = members.collect();
            ensure!(members == wanted, "behind {service} are {members:?}, wanted are {wanted:?}");
        }
        Ok(())
    });
    seen.await.unwrap();
}

async fn withheld(bed: &mut Bed, nodes: f64) {
    let pod = &*bed.cluster.pods.get("service-controller").unwrap();
    eventually("nodes that cannot be addressed are counted", WITHIN, || async {
        let counted = pod.counted("cloud_controller_load_balancer_targets_withheld", "controller").await?;
        let there: f64 = counted.values().sum();
        ensure!((there - nodes).abs() < 0.5, "{there} are, not {nodes}");
        Ok(())
    })
    .await
    .unwrap();
}

/// Requests that change the members of a pool.
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
