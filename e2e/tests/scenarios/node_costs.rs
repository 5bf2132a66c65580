//! The vendor calls in each row of the table "Cost" in the node-controller's README, counted by the simulated cloud.
//!
//! Periodic listings must not disturb the counts: they run once in ten minutes where all other calls are counted exactly, and every second
//! where a test needs to see changes in the cloud.

#![expect(clippy::indexing_slicing, reason = "clippy recognises tests, but not their helpers")]

use std::time::Duration;

use adapter_sim::simcloud::Operation;
use adapter_sim::simcloud::counts::LogEntry;
use adapter_sim::simcloud::model::InstanceStatus;
use anyhow::{Context, ensure};
use e2e::{Bed, Ready, WITHIN, eventually, node, set_ready};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{from_value, json};
use tokio::time::Instant;

const NODES: u32 = 20;
/// Number of nodes that the deletion brake allows per window.
const MAY_GO: usize = 3;
const ZONE: &str = "topology.kubernetes.io/zone";
const TYPE: &str = "node.kubernetes.io/instance-type";
const SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";
/// Age after which a listing can be relied on: `--consistency-horizon-ms` of the adapter.
const HORIZON: Duration = Duration::from_secs(2);
/// Interval of the frequent listings.
const PERIOD: Duration = Duration::from_secs(1);

/// Number of calls.
#[derive(Debug, PartialEq, Eq)]
struct Cost {
    /// `BatchGetInstances` from the controller to the adapter.
    calls: u64,
    /// Look-ups in the cloud by the adapter, of up to 500 instances each.
    look_ups: u64,
    /// Listings of the cloud by the adapter.
    listings: u64,
}

const NOTHING: Cost = Cost { calls: 0, look_ups: 0, listings: 0 };

// Behaviour: P34
#[tokio::test]
async fn vendor_calls_match_the_rows_of_the_readme() {
    let mut bed = Bed::install_with(&json!({
        // The time of the adapter's own listing depends on the cluster ID: it hardly ever falls into this test.
        "adapter": { "cache": { "instances": { "maxAge": "720h" } } },
        "nodeController": {
            "deletion": {
                "monitorPeriod": "500ms", "confirmAfter": "1s", "window": "1s", "maxShare": 100, "maxNumber": MAY_GO,
            },
            "extraArgs": ["--node-status-update-frequency=500ms"],
        },
        "serviceController": { "enabled": false },
        "routeController": { "enabled": false },
    }))
    .await
    .unwrap();
    bed.start_pods().await.unwrap();
    // Both processes are ready before the adapter has called its cloud.
    asked(&bed, Operation::ListInstances, 1).await;
    new_nodes_that_join_together(&mut bed).await;
    at_rest(&bed).await;
    an_edited_label(&bed).await;
    a_restart(&mut bed).await;
    new_nodes_that_stay_invisible(&mut bed).await;

    list_often(&bed).await;
    a_new_node_that_was_listed_since(&mut bed).await;
    a_machine_that_changes(&bed).await;
    machines_that_are_listed(&bed).await;
    machines_that_are_gone(&mut bed).await;
    machines_that_the_brake_holds(&mut bed).await;
    machines_that_are_not_proven_gone(&mut bed).await;
}

/// One call for all of them, which causes one listing: the nodes have no IDs yet.
async fn new_nodes_that_join_together(bed: &mut Bed) {
    let meter = Meter::start(bed).await;
    bed.cluster.cloud.create_numbered("n{n}", NODES as usize).await.unwrap();
    all_at_once(bed, Signal::STOP);
    for number in 1..=NODES {
        node(&name(number)).register(&bed.client()).await.unwrap();
    }
    all_at_once(bed, Signal::CONT);
    for number in 1..=NODES {
        bed.initialised(&name(number)).await.unwrap();
    }
    assert_eq!(meter.read(bed).await, Cost { calls: 1, look_ups: 0, listings: 1 }, "nodes that join");
}

/// Heartbeats, labels and annotations of others, and the periodic comparison.
async fn at_rest(bed: &Bed) {
    let meter = Meter::start(bed).await;
    let beat = json!({ "type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-02T03:04:05Z" });
    let beat = Patch::Strategic(json!({ "status": { "conditions": [beat] } }));
    for number in 1..=NODES {
        let name = name(number);
        bed.nodes().patch_status(&name, &PatchParams::default(), &beat).await.unwrap();
        let theirs = json!({ "labels": { "team": "blue" }, "annotations": { "example.com/of": "others" } });
        bed.patch_node(&name, &json!({ "metadata": theirs })).await.unwrap();
    }
    compared(bed, 3).await;
    assert_eq!(meter.read(bed).await, NOTHING, "at rest");
}

async fn an_edited_label(bed: &Bed) {
    let meter = Meter::start(bed).await;
    bed.patch_node("n1", &json!({ "metadata": { "labels": { ZONE: "by-hand" } } })).await.unwrap();
    until_label(bed, "n1", ZONE, "sim-1a").await;
    compared(bed, 1).await;
    assert_eq!(meter.read(bed).await, NOTHING, "a label");
}

async fn a_restart(bed: &mut Bed) {
    let meter = Meter { calls: 0, ..Meter::start(bed).await };
    let controller = bed.cluster.pods.get("node-controller").unwrap();
    controller.terminate().await.unwrap();
    controller.start().unwrap();
    bed.quiet("node-controller").await.unwrap();
    compared(bed, 1).await;
    assert_eq!(meter.read(bed).await, NOTHING, "a restart");
}

/// They share each call, and the intervals between calls grow from 1 s.
async fn new_nodes_that_stay_invisible(bed: &mut Bed) {
    const N_QUESTIONS: usize = 4;
    let meter = Meter::start(bed).await;
    all_at_once(bed, Signal::STOP);
    let names = ["early-1", "early-2", "early-3"];
    for name in names {
        node(name).register(&bed.client()).await.unwrap();
    }
    all_at_once(bed, Signal::CONT);
    let at = asked(bed, Operation::ListInstances, N_QUESTIONS).await;
    let pauses: u64 = [1, 2, 4].into_iter().sum();
    assert!(at[N_QUESTIONS - 1] - at[0] >= pauses * 1000, "{at:?}");
    for name in names {
        bed.told("Node", name, "InstanceNotVisible").await.unwrap();
        e2e::delete_node(&bed.client(), name).await.unwrap();
    }
    let n = u64::try_from(N_QUESTIONS).unwrap();
    assert_eq!(
        meter.read(bed).await,
        Cost { calls: n, look_ups: 0, listings: n },
        "instances that are not listed"
    );
}

/// From now on the cloud is listed every [`PERIOD`].
async fn list_often(bed: &Bed) {
    let maps: Api<ConfigMap> = Api::namespaced(bed.client(), &bed.cluster.release.namespace);
    let mut data = maps.get("cloud-adapter").await.unwrap().data.unwrap();
    for file in data.values_mut() {
        *file = file.replace("maxAge: 720h", "maxAge: 1s");
    }
    let patch = Patch::Merge(json!({ "data": data }));
    maps.patch("cloud-adapter", &PatchParams::default(), &patch).await.unwrap();
    bed.cluster.pods.refresh_volumes(&bed.cluster.control_plane).await.unwrap();
    listed_for(bed, PERIOD).await;
}

/// No call: a listing that is younger than the node is current enough.
async fn a_new_node_that_was_listed_since(bed: &mut Bed) {
    let meter = Meter::start(bed).await;
    all_at_once(bed, Signal::STOP);
    bed.cluster.cloud.create_instance("listed").await.unwrap();
    node("listed").register(&bed.client()).await.unwrap();
    // Creation timestamps have a resolution of one second.
    listed_for(bed, 2 * PERIOD).await;
    all_at_once(bed, Signal::CONT);
    bed.initialised("listed").await.unwrap();
    assert_eq!(meter.read_besides_listings(bed).await, (0, 0), "a node that was listed");
}

async fn a_machine_that_changes(bed: &Bed) {
    let meter = Meter::start(bed).await;
    let change = json!({
        "type": "s.large", "zone": "sim-1b", "addresses": [{ "kind": "internal", "address": "10.9.9.9" }],
    });
    bed.cluster.cloud.change_instance(&bed.instance("n1").await.unwrap(), &change).await.unwrap();
    until_label(bed, "n1", ZONE, "sim-1b").await;
    until_label(bed, "n1", TYPE, "s.large").await;
    bed.wait_node("n1", "has its new address", |node| {
        let mut addresses = node.status.iter().flat_map(|status| status.addresses.iter().flatten());
        addresses.any(|it| it.address == "10.9.9.9")
    })
    .await
    .unwrap();
    assert_eq!(meter.read_besides_listings(bed).await, (0, 0), "an instance that changes");
}

/// Nodes that are not ready, and one whose instance is stopped and started again, while the node-controller's passes continue.
async fn machines_that_are_listed(bed: &Bed) {
    let meter = Meter::start(bed).await;
    let unwell = ["n2", "n3", "n4"];
    for name in unwell {
        set_ready(&bed.client(), name, Ready::Unknown).await.unwrap();
    }
    off_and_on(bed, "n4").await;
    for name in unwell {
        set_ready(&bed.client(), name, Ready::True).await.unwrap();
    }
    assert_eq!(meter.read_besides_listings(bed).await, (0, 0), "instances that are listed");
}

/// They are looked up twice, all in one call.
async fn machines_that_are_gone(bed: &mut Bed) {
    let meter = Meter::start(bed).await;
    let gone = ["n5", "n6", "n7"];
    assert_eq!(gone.len(), MAY_GO);
    lose(bed, &gone).await;
    for name in gone {
        bed.node_gone(name).await.unwrap();
    }
    assert_eq!(meter.read_besides_listings(bed).await, (2, 2), "instances that are gone");
}

/// As before. After that they are not looked up for minutes.
async fn machines_that_the_brake_holds(bed: &mut Bed) {
    let meter = Meter::start(bed).await;
    let gone = ["n8", "n9", "n10", "n11"];
    assert!(gone.len() > MAY_GO);
    lose(bed, &gone).await;
    for name in gone {
        bed.told("Node", name, "DeletionHeld").await.unwrap();
    }
    // The passes continue.
    set_ready(&bed.client(), "n4", Ready::Unknown).await.unwrap();
    off_and_on(bed, "n4").await;
    assert_eq!(meter.read_besides_listings(bed).await, (2, 2), "instances whose nodes the brake holds");
    // All at once: with fewer nodes, the brake would allow the deletion.
    let client = bed.client();
    try_join_all(gone.map(|name| set_ready(&client, name, Ready::True))).await.unwrap();
}

/// They share each call, and the second call comes 5 s after the first.
async fn machines_that_are_not_proven_gone(bed: &mut Bed) {
    let meter = Meter::start(bed).await;
    let says_nothing = json!({ "respond": { "status": 200, "body": { "instances": [], "missing": [] } } });
    let fault = json!({ "match": { "operation": "BatchGetInstances" }, "action": says_nothing });
    bed.cluster.cloud.add_fault(&from_value(fault).unwrap()).await.unwrap();
    lose(bed, &["n12", "n13"]).await;
    let at = asked(bed, Operation::BatchGetInstances, 2).await;
    assert!(at[1] - at[0] >= 5000, "{at:?}");
    for name in ["n12", "n13"] {
        bed.told("Node", name, "CloudProviderFailed").await.unwrap();
    }
    assert_eq!(meter.read_besides_listings(bed).await, (2, 2), "instances that are not proven gone");
}

/// Counts calls from its creation on.
struct Meter {
    began: Instant,
    /// Calls of the controller before.
    calls: u64,
}

impl Meter {
    async fn start(bed: &Bed) -> Self {
        let began = Instant::now();
        bed.cluster.cloud.reset_counts().await.unwrap();
        Self { began, calls: calls(bed).await }
    }

    async fn read(&self, bed: &Bed) -> Cost {
        let counts = bed.cluster.cloud.counts().await.unwrap();
        let (look_ups, listings) =
            (counts.of(Operation::BatchGetInstances), counts.of(Operation::ListInstances));
        assert_eq!(counts.total, look_ups + listings, "unexpected calls: {counts:?}");
        Cost { calls: calls(bed).await - self.calls, look_ups, listings }
    }

    /// Calls and look-ups, while the cloud is listed every [`PERIOD`] and not more often.
    async fn read_besides_listings(&self, bed: &Bed) -> (u64, u64) {
        let cost = self.read(bed).await;
        let periods = self.began.elapsed().as_secs() / PERIOD.as_secs();
        assert!(cost.listings <= periods + 1, "{cost:?} in {periods} periods");
        (cost.calls, cost.look_ups)
    }
}

/// Number of `BatchGetInstances` calls of the controller since its start.
async fn calls(bed: &Bed) -> u64 {
    let pod = bed.cluster.pods.look_at("node-controller").unwrap();
    let calls = pod.counted("cloud_controller_adapter_calls_total", "call").await.unwrap();
    let calls = calls.get("BatchGetInstances").copied().unwrap_or_default();
    format!("{calls:.0}").parse().unwrap()
}

/// Waits until the cloud has got this number of calls since the counts were reset, and returns their times in milliseconds.
async fn asked(bed: &Bed, operation: Operation, times: usize) -> Vec<u64> {
    let what = format!("{times} of {operation}");
    let asked = eventually(&what, WITHIN, || async {
        let requests = bed.cluster.cloud.requests().await?;
        let at: Vec<u64> =
            requests.iter().filter(|it| it.operation == operation).map(|it| it.at_ms).collect();
        ensure!(at.len() >= times, "{at:?}");
        Ok(at)
    });
    asked.await.unwrap()
}

/// Waits until the cloud has been listed for this duration: what exists now is in the cache then.
async fn listed_for(bed: &Bed, time: Duration) {
    let n = |log: &[LogEntry]| log.iter().filter(|it| it.operation == Operation::ListInstances).count();
    let before = n(&bed.cluster.cloud.requests().await.unwrap());
    // The first one may have been in progress.
    let wanted = before + 2 + usize::try_from(time.as_secs() / PERIOD.as_secs()).unwrap();
    let listed = eventually("the cloud is listed", WITHIN, || async {
        let now = n(&bed.cluster.cloud.requests().await?);
        ensure!(now >= wanted, "{now} of {wanted} listings");
        Ok(())
    });
    listed.await.unwrap();
}

/// Waits until all nodes have been compared this number of times with their instances.
async fn compared(bed: &Bed, times: u32) {
    let pod = bed.cluster.pods.look_at("node-controller").unwrap();
    let adds = async || {
        let adds = pod.counted("workqueue_adds_total", "name").await?;
        adds.get("Nodes").copied().context("no queue")
    };
    let before = adds().await.unwrap();
    let compared = eventually("all nodes are compared", WITHIN, || async {
        let added = adds().await? - before;
        ensure!(added >= f64::from(NODES * (times + 1)), "{added} keys");
        Ok(())
    });
    compared.await.unwrap();
}

/// Deletes instances, waits for the consistency horizon, and then sets their nodes to unknown, all at the same moment.
async fn lose(bed: &mut Bed, names: &[&str]) {
    for name in names {
        bed.cluster.cloud.delete_instance(&bed.instance(name).await.unwrap()).await.unwrap();
    }
    listed_for(bed, HORIZON).await;
    all_at_once(bed, Signal::STOP);
    for name in names {
        set_ready(&bed.client(), name, Ready::Unknown).await.unwrap();
    }
    all_at_once(bed, Signal::CONT);
}

/// Stops and starts an instance. Its node, which is not ready at first, follows both changes.
async fn off_and_on(bed: &Bed, name: &str) {
    let id = bed.instance(name).await.unwrap();
    bed.cluster.cloud.set_instance_status(&id, InstanceStatus::Stopped).await.unwrap();
    until_tainted(bed, name, true).await;
    bed.cluster.cloud.set_instance_status(&id, InstanceStatus::Running).await.unwrap();
    set_ready(&bed.client(), name, Ready::True).await.unwrap();
    until_tainted(bed, name, false).await;
}

/// The controller sees all changes that happen while it is stopped at once, however slow this machine is.
fn all_at_once(bed: &mut Bed, signal: Signal) {
    let id = bed.cluster.pods.get("node-controller").unwrap().id().unwrap();
    kill_process(Pid::from_raw(id.try_into().unwrap()).unwrap(), signal).unwrap();
}

fn name(number: u32) -> String {
    format!("n{number}")
}

async fn until_label(bed: &Bed, name: &str, key: &str, value: &str) {
    bed.wait_node(name, &format!("has the label {key}={value}"), |node: &Node| {
        node.labels().get(key).is_some_and(|it| it == value)
    })
    .await
    .unwrap();
}

async fn until_tainted(bed: &Bed, name: &str, tainted: bool) {
    let what = if tainted { "has the shutdown taint" } else { "has lost the shutdown taint" };
    bed.wait_node(name, what, |node| {
        let mut taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
        taints.any(|taint| taint.key == SHUTDOWN) == tainted
    })
    .await
    .unwrap();
}
