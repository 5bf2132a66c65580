//! The content of the cluster: instances, nodes with the status that kubelets report, and Services of users.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use anyhow::{Context, anyhow};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::{ContainerImage, Node, NodeCondition, Service};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::objects::{NodeBuilder, node, service};
use crate::simcloud::Simcloud;

/// The pod networks of all nodes, by address family.
pub(super) const CLUSTER_CIDR: &str = "10.128.0.0/9,fd01::/48";
const EXCLUDED: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
/// Number of parallel requests, because kubelets do not wait for each other.
const AT_ONCE: usize = 64;
/// The interval at which a kubelet reports an unchanged status.
const REPORT_EVERY: Duration = Duration::from_secs(300);
/// The maximum number of images that a kubelet reports; it reports the largest ones.
const IMAGES: u32 = 50;

/// The name of a node and of its instance. Numbers begin with 1.
pub(super) fn node_name(number: usize) -> String {
    format!("node-{number:05}")
}

/// The two bytes of a node's addresses that depend on its number.
fn offset(number: usize) -> anyhow::Result<u16> {
    u16::try_from(number).with_context(|| format!("no addresses for node {number}"))
}

fn address_v4(number: usize) -> anyhow::Result<Ipv4Addr> {
    Ok(Ipv4Addr::from(0x0a00_0000 + u32::from(offset(number)?)))
}

fn pods_v4(number: usize) -> anyhow::Result<String> {
    Ok(format!("{}/24", Ipv4Addr::from(0x0a80_0000 + u32::from(offset(number)?) * 256)))
}

fn pods_v6(number: usize) -> anyhow::Result<String> {
    Ok(format!("{}/64", Ipv6Addr::new(0xfd01, 0, 0, offset(number)?, 0, 0, 0, 0)))
}

/// Creates instances with an address of each family, and returns their IDs in order.
pub(super) async fn make_machines(
    cloud: &Simcloud,
    numbers: impl Iterator<Item = usize>,
) -> anyhow::Result<Vec<String>> {
    let make = |number: usize| async move {
        let name = node_name(number);
        let v6 = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, offset(number)?);
        let order = json!({ "name": name, "addresses": [
            { "kind": "internal", "address": address_v4(number)? },
            { "kind": "internal", "address": v6 },
            { "kind": "hostname", "address": name },
        ] });
        let made = cloud.create_instances(&order).await?.into_iter().next();
        Ok(made.with_context(|| format!("instance {name} was not created"))?.id)
    };
    stream::iter(numbers).map(make).buffered(AT_ONCE).try_collect().await
}

/// A node object of realistic size, with conditions and images.
fn full_node(number: usize, member: bool) -> anyhow::Result<Node> {
    let name = node_name(number);
    let built = node(&name).pods(&pods_v4(number)?).pods(&pods_v6(number)?);
    let built = if member { built } else { built.label(EXCLUDED, "") };
    let labels = (1..=10).fold(built, |node: NodeBuilder, nth| {
        node.label(&format!("bench.example/label-{nth}"), &format!("of-some-length-{number}"))
    });
    let mut node = labels.build()?;
    let status = node.status.get_or_insert_default();
    let condition = |(type_, reason): (&str, &str)| NodeCondition {
        type_: type_.to_owned(),
        status: "False".to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(format!("kubelet says {reason} of this node")),
        ..NodeCondition::default()
    };
    let more = [
        ("MemoryPressure", "KubeletHasSufficientMemory"),
        ("DiskPressure", "KubeletHasNoDiskPressure"),
        ("PIDPressure", "KubeletHasSufficientPID"),
    ];
    status.conditions.get_or_insert_default().extend(more.map(condition));
    let image = |nth: u32| ContainerImage {
        names: Some(vec![
            format!("registry.example/team-{nth}/some-image-of-usual-length@sha256:{:064x}", nth * 7919),
            format!("registry.example/team-{nth}/some-image-of-usual-length:v1.{nth}.0"),
        ]),
        size_bytes: Some(i64::from(nth) * 10_000_000),
    };
    status.images = Some((1..=IMAGES).map(image).collect());
    Ok(node)
}

/// Registers these nodes, all at once. Returns each node's name with the time at which its registration began.
pub(super) async fn register(
    client: &Client,
    numbers: impl Iterator<Item = usize>,
    members: usize,
) -> anyhow::Result<Vec<(String, Instant)>> {
    let nodes: Api<Node> = Api::all(client.clone());
    let register = |number: usize| {
        let nodes = nodes.clone();
        async move {
            let node = full_node(number, number <= members)?;
            let began = Instant::now();
            nodes.create(&PostParams::default(), &node).await.context("cannot register a node")?;
            anyhow::Ok((node_name(number), began))
        }
    };
    stream::iter(numbers).map(register).buffer_unordered(AT_ONCE).try_collect().await
}

/// Changes many nodes in the same way, all at once.
pub(super) async fn patch_nodes(
    client: &Client,
    names: &[String],
    patch: &Value,
    status: bool,
) -> anyhow::Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    let change = |name: &String| {
        let (nodes, name) = (nodes.clone(), name.clone());
        async move {
            let (params, patch) = (PatchParams::default(), Patch::Strategic(patch));
            let done = if status {
                nodes.patch_status(&name, &params, &patch).await
            } else {
                nodes.patch(&name, &params, &patch).await
            };
            done.map(drop).with_context(|| format!("cannot change {name}"))
        }
    };
    stream::iter(names).map(change).buffer_unordered(AT_ONCE).try_collect().await
}

/// Creates these Services, all at once. Returns each Service's name with the time at which its request began.
pub(super) async fn create_services(
    client: &Client,
    names: impl Iterator<Item = String>,
) -> anyhow::Result<Vec<(String, Instant)>> {
    let create = |name: String| async move {
        let began = Instant::now();
        service(&name).port(80).create(client).await?;
        anyhow::Ok((name, began))
    };
    stream::iter(names).map(create).buffer_unordered(AT_ONCE).try_collect().await
}

/// Deletes these Services, all at once. Their finalizers may keep them for some time.
pub(super) async fn delete_services(client: &Client, names: &[String]) -> anyhow::Result<()> {
    let services: Api<Service> = Api::default_namespaced(client.clone());
    let delete = |name: &String| {
        let (services, name) = (services.clone(), name.clone());
        async move { services.delete(&name, &Default::default()).await.map(drop).context("cannot delete") }
    };
    stream::iter(names).map(delete).buffer_unordered(AT_ONCE).try_collect().await
}

/// Reports the status of all nodes every five minutes, one node after the other, as kubelets do. Ends only with an error, when the API
/// server rejects a report of an existing node.
pub(super) async fn report_statuses(
    client: Client,
    mut names: impl FnMut() -> Vec<String>,
) -> anyhow::Result<()> {
    let nodes: Api<Node> = Api::all(client);
    loop {
        let round = names();
        let count = u32::try_from(round.len()).unwrap_or(u32::MAX).max(1);
        let mut due = interval(REPORT_EVERY / count);
        due.set_missed_tick_behavior(MissedTickBehavior::Skip);
        if round.is_empty() {
            due.tick().await;
        }
        for name in round {
            due.tick().await;
            let beat = json!({ "status": { "conditions": [heartbeat()] } });
            match nodes.patch_status(&name, &PatchParams::default(), &Patch::Strategic(beat)).await {
                Ok(_) => (),
                Err(kube::Error::Api(status)) if status.code == 404 => (),
                Err(error) => {
                    return Err(anyhow!(error).context(format!("cannot report the status of {name}")));
                }
            }
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the status has a heartbeat time")]
fn heartbeat() -> Value {
    json!({ "type": "MemoryPressure", "lastHeartbeatTime": Timestamp::now() })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{address_v4, full_node, pods_v4, pods_v6};

    #[test]
    fn ten_thousand_nodes_have_distinct_networks() {
        let networks: BTreeSet<_> =
            (1..=10_000).flat_map(|n| [pods_v4(n).unwrap(), pods_v6(n).unwrap()]).collect();
        assert_eq!(networks.len(), 20_000);
        assert_eq!(
            (pods_v4(256).unwrap(), pods_v6(1).unwrap()),
            ("10.129.0.0/24".into(), "fd01:0:0:1::/64".into())
        );
        assert_eq!(address_v4(10_000).unwrap().to_string(), "10.0.39.16");
        assert!(pods_v4(70_000).is_err());
    }

    #[test]
    fn node_objects_have_a_realistic_size() {
        let (member, other) = (full_node(1, true).unwrap(), full_node(2, false).unwrap());
        let size = serde_json::to_string(&member).unwrap().len();
        assert!((8_000..20_000).contains(&size), "{size}");
        let excluded =
            |node: &super::Node| node.metadata.labels.as_ref().unwrap().contains_key(super::EXCLUDED);
        assert_eq!((excluded(&member), excluded(&other)), (false, true));
    }
}
