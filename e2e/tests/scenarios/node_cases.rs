//! How each field of a node is set: many nodes at once, each with a case of its own.

#![expect(clippy::indexing_slicing, reason = "clippy recognises tests, but not their helpers")]

use std::collections::BTreeMap;
use std::fs;

use adapter_sim::simcloud::Operation;
use adapter_sim::simcloud::model::{Instance, InstanceStatus};
use anyhow::ensure;
use e2e::{
    ADAPTER, Bed, Mark, NodeBuilder, Ready, UNINITIALIZED, eventually, is_uninitialised, merge, node,
    set_ready,
};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};

const SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";
const NODE_IP: &str = "alpha.kubernetes.io/provided-node-ip";
const TYPE: [&str; 2] = ["node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type"];
const ZONE: [&str; 2] = ["topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"];
const REGION: [&str; 2] = ["topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region"];

const INT_4: (&str, &str) = ("InternalIP", "10.0.0.201");
const INT_6: (&str, &str) = ("InternalIP", "fd00::1:2");
const EXT_4: (&str, &str) = ("ExternalIP", "203.0.113.3");
const EXT_6: (&str, &str) = ("ExternalIP", "2001:db8::3");

/// Values of the annotation with the kubelet's node IP, and the addresses of [`dual`] that a node then gets.
const FOLLOWED: [(&str, &[(&str, &str)]); 7] = [
    ("10.0.0.201", &[INT_4, EXT_4, EXT_6]),
    ("fd00:0:0::1:2", &[INT_6, EXT_4, EXT_6]),
    ("203.0.113.3", &[EXT_4, INT_4, INT_6]),
    ("010.000.000.201", &[INT_4, EXT_4, EXT_6]),
    ("10.0.0.201,fd00::1:2", &[INT_4, INT_6, EXT_4, EXT_6]),
    ("fd00::1:2,10.0.0.201", &[INT_6, INT_4, EXT_4, EXT_6]),
    ("2001:db8::3,10.0.0.201", &[EXT_6, INT_4]),
];

/// Values that match no address of [`dual`].
const REFUSED: [&str; 11] = [
    "",
    " ",
    "10.0.0.201 ",
    "10.0.0.201/24",
    "junk",
    "10.0.0.201,203.0.113.3",
    "10.0.0.201,fd00::1:2,203.0.113.3",
    "0.0.0.0,fd00::1:2",
    "10.0.0.201,::",
    "192.0.2.77",
    "192.0.2.77,fd00::1:2",
];

/// The cloud is listed often, and only the node-controller runs.
fn values(flags: &[&str]) -> Value {
    let short = [
        "--leader-elect-lease-duration=4s",
        "--leader-elect-renew-deadline=3s",
        "--leader-elect-retry-period=1s",
    ];
    let flags = [&short, flags].concat();
    json!({
        "adapter": { "cache": { "instances": { "maxAge": "2s" } } },
        "nodeController": { "extraArgs": flags },
        "serviceController": { "enabled": false },
        "routeController": { "enabled": false },
    })
}

async fn start() -> Bed {
    start_with(&[]).await
}

async fn start_with(flags: &[&str]) -> Bed {
    Bed::start_with(&values(flags)).await.unwrap()
}

/// Taints, provider ID, labels, addresses, Event and metrics of new nodes: one patch for the addresses and one for the rest, and none after
/// that.
// Behaviour: NI1, NI2, NI8, NI11, NI12, NI13, NI16, NI17, NI18, NA3, NA6
#[tokio::test]
async fn each_node_gets_the_values_of_its_instance() {
    let mut bed = start().await;
    let mut machines = BTreeMap::new();
    for (order, node) in cases() {
        let [machine] =
            <[Instance; 1]>::try_from(bed.cluster.cloud.create_instances(&order).await.unwrap()).unwrap();
        let id = provider_id_of(&machine);
        let node = if machine.name == "by-id-machine" { node.provider_id(&id) } else { node };
        let name = node.register(&bed.client()).await.unwrap().name_any();
        machines.insert(name, machine);
    }
    let mut nodes = BTreeMap::new();
    for (name, machine) in &machines {
        let node = bed.initialised(name).await.unwrap();
        assert_eq!(provider_id(&node), Some(provider_id_of(machine)), "{name}");
        assert_eq!(conditions(&node), ["Ready"], "{name}");
        assert_eq!(bed.told("Node", name, "Synced").await.unwrap(), "Node synced successfully");
        nodes.insert(name.as_str(), node);
    }

    let kept = taints(&nodes["tainted"]);
    assert_eq!(kept, ["example.com/first:NoSchedule", "example.com/second:NoExecute"]);
    for ([today, older], wanted) in [(TYPE, "s.medium"), (ZONE, "sim-1a"), (REGION, "sim-1")] {
        assert_eq!(
            (label(&nodes["labelled"], today), label(&nodes["labelled"], older)),
            (Some(wanted), Some(wanted))
        );
    }
    for key in ZONE {
        assert_eq!(
            label(&nodes["zoneless"], key),
            Some("rack-1"),
            "a label that the cloud does not set is kept"
        );
    }
    assert_eq!(addresses(&nodes["named"]), [INT_4, ("Hostname", "another-name")].map(owned));
    extras(&mut bed, &nodes["extras"]);

    let counted = metrics(&mut bed).await;
    for name in [
        "node_controller_cloud_provider_taint_removal_delay_seconds",
        "node_controller_initial_node_sync_delay_seconds",
    ] {
        for bucket in ["1.0", "4.0", "16.0", "64.0", "256.0", "1024.0"] {
            assert!(
                counted.contains(&format!("{name}_bucket{{le=\"{bucket}\"}}")),
                "{name} {bucket}: {counted}"
            );
        }
        let count = format!("{name}_count {}", nodes.len());
        assert!(counted.lines().any(|line| line == count), "not {count}: {counted}");
    }
    let events = bed.events("Node", "tainted").await.unwrap();
    assert!(
        events.iter().all(|event| event.reporting_component.as_deref() == Some("cloud-node-controller")),
        "{events:?}"
    );
    let writes = writes(&mut bed, Mark::default());
    for name in nodes.keys() {
        assert_eq!(writes[*name], ["patch nodes/status 200", "patch nodes 200"], "{name}");
    }
    nothing_happens_for_nothing(&mut bed).await;
}

/// Instances of the cloud, and the nodes that register for them.
fn cases() -> Vec<(Value, NodeBuilder)> {
    let wrong = |node: NodeBuilder| {
        [TYPE, ZONE, REGION].as_flattened().iter().fold(node, |node, key| node.label(key, "wrong"))
    };
    let tags = json!({
        "label/example.com/rack": "r7",
        "label/plain": "",
        "label/mykubernetes.io/fine": "yes",
        "label/taken": "by-the-cloud",
        "label/node-role.kubernetes.io/control-plane": "",
        "label/topology.k8s.io/row": "r1",
        "label/no label": "x",
        "label/example.com/no-value": "two words",
        "colour": "red",
    });
    let named = json!([
        { "kind": "internal", "address": INT_4.1 },
        { "kind": "hostname", "address": "another-name" },
    ]);
    vec![
        (
            json!({ "name": "tainted" }),
            node("tainted")
                .taint("example.com/first", "NoSchedule")
                .taint(UNINITIALIZED, "NoExecute")
                .taint("example.com/second", "NoExecute")
                .taint(UNINITIALIZED, "PreferNoSchedule"),
        ),
        (json!({ "name": "by-id-machine" }), node("by-id")),
        (json!({ "name": "labelled" }), wrong(node("labelled"))),
        (
            json!({ "name": "zoneless", "zone": "" }),
            node("zoneless").label(ZONE[0], "rack-1").label(ZONE[1], "rack-2"),
        ),
        (json!({ "name": "named", "addresses": named }), node("named")),
        (json!({ "name": "extras", "tags": tags }), node("extras").label("taken", "by-hand")),
    ]
}

/// Labels of the cloud that are set, and the log lines about those that are not.
fn extras(bed: &mut Bed, node: &Node) {
    for (key, wanted) in
        [("example.com/rack", "r7"), ("plain", ""), ("mykubernetes.io/fine", "yes"), ("taken", "by-hand")]
    {
        assert_eq!(label(node, key), Some(wanted), "{key}");
    }
    let log = fs::read_to_string(bed.cluster.pods.get("node-controller").unwrap().log()).unwrap();
    let withheld: Vec<&str> =
        log.lines().filter(|line| line.contains("Label from the cloud is not set on the node")).collect();
    for key in [
        "taken",
        "node-role.kubernetes.io/control-plane",
        "topology.k8s.io/row",
        "no label",
        "example.com/no-value",
    ] {
        assert!(key == "taken" || label(node, key).is_none(), "{key}");
        assert!(withheld.iter().any(|line| line.contains(key)), "{key}: {withheld:#?}");
    }
    assert!(label(node, "colour").is_none());
}

/// Heartbeats and changes by users cause no work.
async fn nothing_happens_for_nothing(bed: &mut Bed) {
    bed.quiet("node-controller").await.unwrap();
    let mark = bed.cluster.control_plane.audit_log().mark().unwrap();
    let before = keys_added(bed).await;
    for beat in 0..50 {
        let at = format!("2026-01-01T00:00:{beat:02}Z");
        let ready =
            json!({ "type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": at });
        let status = json!({ "status": { "conditions": [ready] } });
        let nodes = bed.nodes();
        nodes.patch_status("named", &PatchParams::default(), &Patch::Strategic(status)).await.unwrap();
        let users =
            json!({ "labels": { "kubernetes.io/beat": format!("{beat}") }, "annotations": { "beat": at } });
        bed.patch_node("named", &json!({ "metadata": users })).await.unwrap();
    }
    // The queue is in order: when the new node is ready, all earlier keys are done.
    bed.join("canary", None).await.unwrap();
    bed.quiet("node-controller").await.unwrap();
    let added = keys_added(bed).await - before;
    assert!(added < 25.0, "{added} keys for 50 heartbeats and one node");
    assert_eq!(bed.writes_of("node-controller", mark, "canary").unwrap(), []);
}

/// The kubelet's annotation with the addresses of the node, in each of its spellings.
// Behaviour: NP1, NP2, NP3, NP4, NP5, NP6, W9
#[tokio::test]
async fn the_provided_node_ip_comes_first_or_the_node_waits() {
    // All nodes are compared with the cloud each second.
    let mut bed = start_with(&["--node-status-update-frequency=1s"]).await;
    let all = FOLLOWED.iter().map(|(given, _)| given).chain(&REFUSED).enumerate();
    for (number, given) in all {
        let name = format!("n{number}");
        bed.cluster.cloud.create_instances(&dual(&name)).await.unwrap();
        node(&name).node_ip(given).register(&bed.client()).await.unwrap();
    }
    for (number, (given, wanted)) in FOLLOWED.iter().enumerate() {
        let name = format!("n{number}");
        let wanted: Vec<_> = wanted.iter().copied().chain([("Hostname", name.as_str())]).map(owned).collect();
        assert_eq!(addresses(&bed.initialised(&name).await.unwrap()), wanted, "{given:?}");
    }
    for (number, given) in (FOLLOWED.len()..).zip(REFUSED) {
        let name = format!("n{number}");
        let told = bed.told("Node", &name, "ProvidedNodeIPInvalid").await.unwrap();
        assert!(told.contains(NODE_IP), "{given:?}: {told}");
        let waiting = bed.nodes().get(&name).await.unwrap();
        assert!(is_uninitialised(&waiting) && provider_id(&waiting).is_none(), "{given:?}");
        assert_eq!(addresses(&waiting), [owned(("Hostname", &name))], "{given:?}");
    }

    // A known node keeps its addresses.
    let before = addresses(&bed.nodes().get("n5").await.unwrap());
    bed.patch_node("n5", &json!({ "metadata": { "annotations": { NODE_IP: "192.0.2.77" } } })).await.unwrap();
    let log = bed.cluster.pods.get("node-controller").unwrap().log();
    let noticed = eventually("the log reports it", bed.within, || async {
        let left = |line: &str| line.contains("Refused to update node addresses") && line.contains("n5");
        ensure!(fs::read_to_string(&log)?.lines().any(left), "no such log line");
        Ok(())
    });
    noticed.await.unwrap();
    assert_eq!(addresses(&bed.nodes().get("n5").await.unwrap()), before);

    // Lists of both families, too, are compared repeatedly without writes.
    compared(&bed, u32::try_from(3 * FOLLOWED.len()).unwrap()).await;
    let writes = writes(&mut bed, Mark::default());
    assert_eq!(writes.len(), FOLLOWED.len(), "{writes:?}");
    for (name, writes) in writes {
        assert_eq!(writes, ["patch nodes/status 200", "patch nodes 200"], "{name}");
    }
}

/// An instance with an address of each kind and family.
fn dual(name: &str) -> Value {
    let kind = |kind| if kind == "InternalIP" { "internal" } else { "external" };
    let addresses = [INT_4, INT_6, EXT_4, EXT_6];
    let addresses = addresses.map(|(is, address)| json!({ "kind": kind(is), "address": address }));
    json!({ "name": name, "addresses": addresses })
}

/// Changes in the cloud, changes by users, and objects that the cloud no longer lists.
// Behaviour: NA3, NA4, NA5, NA7, NA8, NA11, W7
#[tokio::test]
async fn known_nodes_follow_the_cloud_and_keep_the_rest() {
    let mut bed = start().await;
    known(&bed).await;
    let mark = bed.cluster.control_plane.audit_log().mark().unwrap();
    bed.patch_node("extras", &json!({ "metadata": { "labels": { "shelf": "mine", "later": "mine" } } }))
        .await
        .unwrap();
    bed.quiet("node-controller").await.unwrap();
    let (emptied, gone) = (bed.instance("emptied").await.unwrap(), bed.instance("gone").await.unwrap());
    let cloud = &bed.cluster.cloud;
    cloud.change_instance(&emptied, &json!({ "addresses": [] })).await.unwrap();
    cloud.delete_instance(&gone).await.unwrap();
    let tags = json!({ "label/rack": "r2", "label/shelf": "s2", "label/later": "l1", "label/new": "n1" });
    cloud.change_instance(&bed.instance("extras").await.unwrap(), &json!({ "tags": tags })).await.unwrap();
    // The last change: when it is visible, the others are, too.
    let turned = json!({ "addresses": [
        { "kind": "internal", "address": INT_6.1 },
        { "kind": "internal", "address": INT_4.1 },
        { "kind": "external", "address": EXT_4.1 },
    ] });
    cloud.change_instance(&bed.instance("reordered").await.unwrap(), &turned).await.unwrap();
    let wanted = [INT_6, INT_4, EXT_4, ("Hostname", "reordered")].map(owned);
    bed.wait_node("reordered", "has the cloud's order", |node| {
        let addresses = addresses(node);
        addresses == wanted
    })
    .await
    .unwrap();
    bed.wait_node("extras", "follows the cloud's labels", |node| {
        let labels =
            ["rack", "shelf", "later", "new", "stays"].map(|key| label(node, key).unwrap_or_default());
        labels == ["r2", "mine", "mine", "n1", "yes"]
    })
    .await
    .unwrap();
    bed.quiet("node-controller").await.unwrap();
    let all = [INT_4, INT_6, EXT_4, EXT_6];
    for name in ["emptied", "gone"] {
        let wanted: Vec<_> = all.into_iter().chain([("Hostname", name)]).map(owned).collect();
        assert_eq!(addresses(&bed.nodes().get(name).await.unwrap()), wanted, "{name}");
    }
    let made = writes(&mut bed, mark);
    let wanted = [("extras", vec!["patch nodes 200"]), ("reordered", vec!["patch nodes/status 200"])];
    assert_eq!(
        made,
        wanted
            .map(|(name, writes)| (name.to_owned(), writes.into_iter().map(str::to_owned).collect()))
            .into()
    );
    by_hand(&mut bed).await;
}

/// Initialised nodes, one of them initialised by another controller.
async fn known(bed: &Bed) {
    for name in ["emptied", "gone", "handmade", "reordered", "extras"] {
        let tags = json!({ "label/rack": "r1", "label/shelf": "s1", "label/stays": "yes" });
        let mut order = dual(name);
        order["tags"] = if name == "extras" { tags } else { json!({}) };
        bed.cluster.cloud.create_instances(&order).await.unwrap();
        node(name).register(&bed.client()).await.unwrap();
    }
    for name in ["emptied", "gone", "handmade", "reordered", "extras"] {
        bed.initialised(name).await.unwrap();
    }
    // Initialised by a controller that sets only the deprecated label names; there is no instance.
    let mut known =
        node("known").provider_id("sim://sim-1/i-9999").label(ZONE[1], "old-zone").build().unwrap();
    known.spec.as_mut().unwrap().taints = None;
    bed.nodes().create(&PostParams::default(), &known).await.unwrap();
    bed.until_node("known", "has the current label", |node| has(node, ZONE, "old-zone")).await.unwrap();
}

/// Labels that users change where the cloud has no value, and a taint that is set again.
async fn by_hand(bed: &mut Bed) {
    for name in ["gone", "known"] {
        bed.patch_node(name, &json!({ "metadata": { "labels": { ZONE[0]: "by-hand" } } })).await.unwrap();
        bed.until_node(name, "has the deprecated label updated", |node| has(node, ZONE, "by-hand"))
            .await
            .unwrap();
        bed.patch_node(name, &json!({ "metadata": { "labels": { ZONE[1]: "other" } } })).await.unwrap();
        bed.until_node(name, "has the deprecated label reverted", |node| has(node, ZONE, "by-hand"))
            .await
            .unwrap();
    }
    let taint = json!([{ "key": UNINITIALIZED, "value": "again", "effect": "NoExecute" }]);
    bed.patch_node("handmade", &json!({ "spec": { "taints": taint } })).await.unwrap();
    bed.initialised("handmade").await.unwrap();

    bed.cluster.pods.get(ADAPTER).unwrap().kill().await.unwrap();
    bed.unready("node-controller", "unreachable since").await.unwrap();
    let edits = json!({ "metadata": { "labels": { TYPE[0]: "edited", TYPE[1]: null } } });
    bed.patch_node("handmade", &edits).await.unwrap();
    bed.wait_node("handmade", "has the deprecated label of the type", |node| {
        let seen = label(node, TYPE[1]);
        seen.is_some()
    })
    .await
    .unwrap();
}

/// Nodes that were not registered by a kubelet, without a provider ID: their instances are found by name, as long as the name is unique.
/// Changes are seen when the cloud is listed, however often nodes are compared.
// Behaviour: NA9, NA10, ND3
#[tokio::test]
async fn a_node_without_provider_id_follows_a_unique_name() {
    let mut values = values(&["--node-status-update-frequency=500ms"]);
    let seldom = json!({ "instances": { "maxAge": "6s" } });
    let often = json!({ "deletion": { "monitorPeriod": "500ms", "confirmAfter": "1s", "window": "1s" } });
    merge(&mut values, &json!({ "adapter": { "cache": seldom }, "nodeController": often }));
    let bed = Bed::start_with(&values).await.unwrap();
    let cloud = &bed.cluster.cloud;
    let mut machines = Vec::new();
    for name in ["twin", "twin", "hybrid"] {
        machines.extend(cloud.create_instances(&dual(name)).await.unwrap());
    }
    for name in ["twin", "hybrid"] {
        let mut untainted = node(name).label(ZONE[0], "rack-7").build().unwrap();
        untainted.spec.as_mut().unwrap().taints = None;
        bed.nodes().create(&PostParams::default(), &untainted).await.unwrap();
    }
    until_addresses(&bed, &[INT_4, INT_6, EXT_4, EXT_6]).await;
    for name in ["twin", "hybrid"] {
        let node = bed.until_node(name, "has the deprecated label updated", |node| {
            has(node, ZONE, "rack-7")?;
            Ok(node.clone())
        });
        let node = node.await.unwrap();
        assert_eq!(provider_id(&node), None, "{name}");
        for key in TYPE.into_iter().chain(REGION) {
            assert_eq!(label(&node, key), None, "{name}");
        }
    }

    a_change_is_seen_when_it_is_listed(&bed, &machines[2].id).await;

    for machine in &machines {
        cloud.set_instance_status(&machine.id, InstanceStatus::Stopped).await.unwrap();
    }
    for name in ["twin", "hybrid"] {
        set_ready(&bed.client(), name, Ready::Unknown).await.unwrap();
    }
    until_shut_down(&bed, true).await;
    cloud.delete_instance(&machines[2].id).await.unwrap();
    listed(&bed).await;
    // Longer than a node takes to be deleted after its instance is proven gone.
    compared(&bed, 20).await;
    assert!(
        is_shut_down(&bed.nodes().get("hybrid").await.unwrap()),
        "only an ID proves that an instance is gone"
    );
    let twin = bed.nodes().get("twin").await.unwrap();
    assert!(!is_shut_down(&twin), "the name is ambiguous");
    assert_eq!(addresses(&twin), [owned(("Hostname", "twin"))]);
    set_ready(&bed.client(), "hybrid", Ready::True).await.unwrap();
    until_shut_down(&bed, false).await;
}

/// Nodes are compared often with the last listing, without more listings.
async fn a_change_is_seen_when_it_is_listed(bed: &Bed, machine: &str) {
    let cloud = &bed.cluster.cloud;
    listed(bed).await;
    cloud.reset_counts().await.unwrap();
    let changed = json!({ "addresses": [{ "kind": "external", "address": EXT_4.1 }] });
    cloud.change_instance(machine, &changed).await.unwrap();
    compared(bed, 4).await;
    let node = bed.nodes().get("hybrid").await.unwrap();
    let times = cloud.counts().await.unwrap().of(Operation::ListInstances);
    assert_eq!(times, 0, "the cloud is listed more often than every 6 s");
    assert_eq!(addresses(&node).len(), 5, "the change is not listed yet");
    until_addresses(bed, &[EXT_4]).await;
    assert!(cloud.counts().await.unwrap().of(Operation::ListInstances) > 0);
}

/// Waits until the cloud has been listed once more.
async fn listed(bed: &Bed) {
    bed.cluster.cloud.reset_counts().await.unwrap();
    let listed = eventually("the cloud is listed", bed.within, || async {
        let times = bed.cluster.cloud.counts().await?.of(Operation::ListInstances);
        ensure!(times > 0, "no listing yet");
        Ok(())
    });
    listed.await.unwrap();
}

/// Waits until this number of nodes has been compared with the instances.
async fn compared(bed: &Bed, nodes: u32) {
    let pod = bed.cluster.pods.look_at("node-controller").unwrap();
    let adds = async || anyhow::Ok(pod.counted("workqueue_adds_total", "name").await?["Nodes"]);
    let before = adds().await.unwrap();
    let what = format!("{nodes} nodes are compared");
    let more = eventually(&what, bed.within, || async {
        let added = adds().await? - before;
        ensure!(added >= f64::from(nodes), "{added} keys");
        Ok(())
    });
    more.await.unwrap();
}

async fn until_addresses(bed: &Bed, wanted: &[(&str, &str)]) {
    let wanted: Vec<_> = wanted.iter().copied().chain([("Hostname", "hybrid")]).map(owned).collect();
    bed.wait_node("hybrid", "has the addresses of its instance", |node| {
        let addresses = addresses(node);
        addresses == wanted
    })
    .await
    .unwrap();
}

async fn until_shut_down(bed: &Bed, wanted: bool) {
    bed.wait_node("hybrid", "has the shutdown taint or has lost it", |node| is_shut_down(node) == wanted)
        .await
        .unwrap();
}

fn is_shut_down(node: &Node) -> bool {
    taints(node).contains(&format!("{SHUTDOWN}:NoSchedule"))
}

fn has(node: &Node, keys: [&str; 2], wanted: &str) -> anyhow::Result<()> {
    let seen = keys.map(|key| label(node, key));
    ensure!(seen == [Some(wanted); 2], "{seen:?}");
    Ok(())
}

/// The controller's writes to each node, in order: verb, resource, status.
fn writes(bed: &mut Bed, since: Mark) -> BTreeMap<String, Vec<String>> {
    let mut all = BTreeMap::<_, Vec<_>>::new();
    for write in bed.writes_of("node-controller", since, "").unwrap() {
        if write.resource.starts_with("nodes") {
            let line = format!("{} {} {}", write.verb, write.resource, write.code);
            all.entry(write.name).or_default().push(line);
        }
    }
    all
}

async fn metrics(bed: &mut Bed) -> String {
    bed.cluster.pods.get("node-controller").unwrap().metrics().await.unwrap()
}

async fn keys_added(bed: &mut Bed) -> f64 {
    let pod = bed.cluster.pods.get("node-controller").unwrap();
    pod.counted("workqueue_adds_total", "name").await.unwrap()["Nodes"]
}

fn provider_id_of(machine: &Instance) -> String {
    format!("sim://{}/{}", machine.region, machine.id)
}

fn provider_id(node: &Node) -> Option<String> {
    node.spec.as_ref()?.provider_id.clone()
}

fn label<'a>(node: &'a Node, key: &str) -> Option<&'a str> {
    node.labels().get(key).map(String::as_str)
}

fn owned((kind, address): (&str, &str)) -> (String, String) {
    (kind.to_owned(), address.to_owned())
}

fn addresses(node: &Node) -> Vec<(String, String)> {
    let addresses = node.status.iter().flat_map(|status| status.addresses.iter().flatten());
    addresses.map(|it| owned((&it.type_, &it.address))).collect()
}

fn conditions(node: &Node) -> Vec<&str> {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.map(|condition| condition.type_.as_str()).collect()
}

/// In order, without the taints that the API server adds itself.
fn taints(node: &Node) -> Vec<String> {
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    let taints = taints.filter(|taint| !taint.key.starts_with("node.kubernetes.io/"));
    taints.map(|taint| format!("{}:{}", taint.key, taint.effect)).collect()
}
