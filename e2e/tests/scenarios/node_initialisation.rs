//! Tests of nodes, from their registration to the last change of their instances.

#![expect(clippy::indexing_slicing, reason = "clippy recognises tests, but not their helpers")]

use std::collections::BTreeMap;

use adapter_sim::simcloud::model::Instance;
use anyhow::ensure;
use e2e::{AuditWrite, Bed, eventually, is_uninitialised, node, seconds};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use kube::api::ListParams;
use serde_json::json;

/// However many nodes join together, they cost the cloud only a few reads. All controllers run.
// Behaviour: NI15, W1, W6
#[tokio::test]
async fn a_hundred_nodes_cost_five_reads_and_no_write() {
    let mut bed = Bed::start().await.unwrap();
    let made = bed.cluster.cloud.create_numbered("node-{n}", 100).await.unwrap();
    bed.cluster.cloud.reset_counts().await.unwrap();

    for instance in &made {
        node(&instance.name).register(&bed.client()).await.unwrap();
    }
    let nodes = bed.nodes();
    let all = eventually("all nodes have lost the taint", seconds(60), || async {
        let all = nodes.list(&ListParams::default()).await?.items;
        let left = all.iter().filter(|node| is_uninitialised(node)).count();
        ensure!(left == 0, "{left} still have it");
        Ok(all)
    });
    let all = all.await.unwrap();
    let counts = bed.cluster.cloud.counts().await.unwrap();

    assert!(counts.total <= 5 && counts.writes == 0, "{counts:?}");
    assert_eq!(all.len(), made.len());
    for node in &all {
        let instance = made.iter().find(|it| it.name == node.name_any()).unwrap();
        assert_is_of(node, instance);
    }
    assert_addresses_came_first(&bed.writes_of("node-controller", <_>::default(), "").unwrap(), &made);
}

/// An Event on the node says what the node waits for. The node is initialised as soon as that exists.
// Behaviour: NI3, NA1, NA5, NA6, NP6, W7
#[tokio::test]
async fn a_waiting_node_has_an_event_and_follows_the_cloud() {
    let bed = Bed::start().await.unwrap();
    let cloud = &bed.cluster.cloud;
    // The instance changes in the cloud without notice, so only the next listing shows the change. Other cases run until then.
    let joined = bed.join("changes", None).await.unwrap();
    let change = json!({
        "type": "s.large",
        "zone": "sim-1b",
        "addresses": [
            { "kind": "internal", "address": "10.9.9.9" },
            { "kind": "external", "address": "203.0.113.9" },
            { "kind": "internal", "address": "fd00::9" },
        ],
    });
    let id = provider_id(&joined).unwrap();
    let id = id.rsplit('/').next().unwrap();
    cloud.change_instance(id, &change).await.unwrap();

    node("early").register(&bed.client()).await.unwrap();
    let message = bed.wait_for_event("Node", "early", "InstanceNotVisible").await.unwrap();
    assert!(message.contains("Waiting until the cloud lists an instance named \"early\""), "{message}");
    assert!(is_uninitialised(&bed.nodes().get("early").await.unwrap()));
    let late = cloud.create_instance("early").await.unwrap();
    assert_is_of(&bed.initialised("early").await.unwrap(), &late);

    let one = cloud.create_instance("astray").await.unwrap();
    node("astray")
        .node_ip("192.0.2.77")
        .taint("example.com/kept", "NoSchedule")
        .register(&bed.client())
        .await
        .unwrap();
    let said = bed.wait_for_event("Node", "astray", "ProvidedNodeIPInvalid").await.unwrap();
    assert!(said.contains("alpha.kubernetes.io/provided-node-ip") && said.contains("192.0.2.77"), "{said}");
    let waiting = bed.nodes().get("astray").await.unwrap();
    assert!(is_uninitialised(&waiting) && provider_id(&waiting).is_none(), "{waiting:?}");
    let annotation = json!({ "alpha.kubernetes.io/provided-node-ip": one.addresses[0].address });
    bed.patch_node("astray", &json!({ "metadata": { "annotations": annotation } })).await.unwrap();
    let followed = bed.initialised("astray").await.unwrap();
    assert_is_of(&followed, &one);
    let mut taints = followed.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    assert!(taints.any(|taint| taint.key == "example.com/kept"), "{:?}", followed.spec);

    let changed = bed.until_node("changes", "has the changes of its instance", |node| {
        let addresses = addresses(node);
        ensure!(addresses.contains(&("InternalIP".to_owned(), "10.9.9.9".to_owned())), "{addresses:?}");
        ensure!(node.labels()["node.kubernetes.io/instance-type"] == "s.large", "{:?}", node.labels());
        Ok(node.clone())
    });
    let changed = changed.await.unwrap();
    let wanted = [
        ("InternalIP", "10.9.9.9"),
        ("ExternalIP", "203.0.113.9"),
        ("InternalIP", "fd00::9"),
        // An address that the cloud does not list stays as the kubelet set it.
        ("Hostname", "changes"),
    ];
    assert_eq!(addresses(&changed), wanted.map(|(kind, address)| (kind.to_owned(), address.to_owned())));
    for (key, value) in [
        ("beta.kubernetes.io/instance-type", "s.large"),
        ("topology.kubernetes.io/zone", "sim-1b"),
        ("failure-domain.beta.kubernetes.io/zone", "sim-1b"),
    ] {
        assert_eq!(changed.labels()[key], value, "{key}");
    }
}

#[track_caller]
fn assert_is_of(node: &Node, instance: &Instance) {
    assert_eq!(provider_id(node), Some(format!("sim://{}/{}", instance.region, instance.id)));
    let labels = [
        ("node.kubernetes.io/instance-type", &instance.instance_type),
        ("beta.kubernetes.io/instance-type", &instance.instance_type),
        ("topology.kubernetes.io/zone", &instance.zone),
        ("failure-domain.beta.kubernetes.io/zone", &instance.zone),
        ("topology.kubernetes.io/region", &instance.region),
        ("failure-domain.beta.kubernetes.io/region", &instance.region),
        // The kubelet's own addresses stay.
        ("kubernetes.io/hostname", &instance.name),
    ];
    for (key, value) in labels {
        assert_eq!(node.labels().get(key), Some(value), "{key} of {}", instance.name);
    }
    let internal = ("InternalIP".to_owned(), instance.addresses[0].address.clone());
    let hostname = ("Hostname".to_owned(), instance.name.clone());
    assert_eq!(addresses(node), [internal, hostname]);
}

/// No pod was ever admitted to a node without addresses.
#[track_caller]
fn assert_addresses_came_first(writes: &[AuditWrite], made: &[Instance]) {
    let mut of_nodes = BTreeMap::<_, Vec<_>>::new();
    for write in writes.iter().filter(|write| write.resource.starts_with("nodes")) {
        of_nodes.entry(&*write.name).or_default().push((&*write.verb, &*write.resource, write.code));
    }
    assert_eq!(of_nodes.len(), made.len());
    for (name, writes) in of_nodes {
        assert_eq!(writes, [("patch", "nodes/status", 200), ("patch", "nodes", 200)], "{name}");
    }
}

fn addresses(node: &Node) -> Vec<(String, String)> {
    let addresses = node.status.iter().flat_map(|status| status.addresses.iter().flatten());
    addresses.map(|it| (it.type_.clone(), it.address.clone())).collect()
}

fn provider_id(node: &Node) -> Option<String> {
    node.spec.as_ref()?.provider_id.clone()
}
