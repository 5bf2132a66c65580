//! Steps in which nodes join and leave.

use std::net::Ipv4Addr;
use std::time::Duration;

use adapter_sim::simcloud::Family;
use anyhow::{Context, ensure};
use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;
use kube::{Api, Client};
use tokio::task::JoinSet;

use crate::demo::cost::{Cost, check_initialisation};
use crate::demo::facts::{connected, initialised, laid};
use crate::demo::report::{Fact, NodeFact, Report, RouteFact};
use crate::demo::stage::Stage;
use crate::demo::teller::Teller;
use crate::{delete_node, eventually, node};

use super::services;

/// The first pod network.
const PODS: Ipv4Addr = Ipv4Addr::new(10, 240, 0, 0);
/// The size of a node's pod network: each node has a /24.
const ADDRESSES_A_NODE: usize = 256;

/// Creates instances, and registers their nodes all at once, as kubelets do.
pub(super) async fn join(stage: &mut Stage, teller: &Teller, n: u16) -> anyhow::Result<Cost> {
    let n = usize::from(n);
    stage.cluster.cloud.make_machines(n).await?;
    stage.before_nodes = stage.counts().await?;
    let mut registered = JoinSet::new();
    for number in 1..=n {
        let client = stage.client();
        registered.spawn(async move { register(&client, number).await });
    }
    while let Some(done) = registered.join_next().await {
        done.context("a kubelet panicked")??;
    }
    stage.nodes = n;
    let nodes = all_initialised(stage).await?;
    teller.tell(&Report::Fact(Fact::Nodes { nodes }));
    let max = stage.cluster.cloud.initialisation_max();
    let cost = check_initialisation(&stage.cost_since(&stage.before_nodes).await?, max)?;
    let promise =
        format!("{n} tainted nodes were initialised for {cost}; guaranteed maximum: {max}, no writes");
    teller.tell(&Report::Fact(Fact::note(promise)));
    Ok(cost)
}

/// Waits for the routes of all nodes. Routes are created while nodes are initialised, so all route calls since then are counted here.
pub(super) async fn routes(stage: &mut Stage, teller: &Teller) -> anyhow::Result<Cost> {
    let routes = all_routed(stage).await?;
    let n = routes.len();
    teller.tell(&Report::Fact(Fact::Routes { routes }));
    teller.tell(&Report::Fact(Fact::note(format!("NetworkUnavailable is False on all {n} nodes"))));
    Ok(stage.cost_since(&stage.before_nodes).await?.of(&[Family::Network]))
}

/// Adds a node, and waits for its route and for its membership in the load balancer.
pub(super) async fn one_more(stage: &mut Stage, teller: &Teller) -> anyhow::Result<Cost> {
    let number = stage.nodes + 1;
    stage.cluster.cloud.make_machine(&name(number)).await?;
    let before = stage.counts().await?;
    register(&stage.client(), number).await?;
    stage.nodes = number;
    let newest = all_initialised(stage).await?.into_iter().filter(|node| node.name == name(number));
    teller.tell(&Report::Fact(Fact::Nodes { nodes: newest.collect() }));
    let routes = all_routed(stage).await?;
    let destination = format!("{}/24", pods(number)?);
    let newest = routes.into_iter().filter(|route| route.destination == destination);
    teller.tell(&Report::Fact(Fact::Routes { routes: newest.collect() }));
    let balancer = services::balanced(stage, services::FIRST).await?;
    teller.tell(&Report::Fact(Fact::Balancer(balancer)));
    stage.cost_since(&before).await
}

/// Removes the newest node: first the Node object, then the instance, as users do.
pub(super) async fn one_less(stage: &mut Stage, teller: &Teller) -> anyhow::Result<Cost> {
    let before = stage.counts().await?;
    let leaving = name(stage.nodes);
    teller.tell(&Report::Fact(Fact::Command { line: format!("kubectl delete node {leaving}") }));
    delete_node(&stage.client(), &leaving).await?;
    stage.nodes -= 1;
    let routes = all_routed(stage).await?;
    let balancer = services::balanced(stage, services::FIRST).await?;
    teller.tell(&Report::Fact(Fact::note(format!("{} routes are left", routes.len()))));
    teller.tell(&Report::Fact(Fact::Balancer(balancer)));
    let cost = stage.cost_since(&before).await?;
    stage.cluster.cloud.delete_machine(&leaving).await?;
    teller.tell(&Report::Fact(Fact::note(format!("instance {leaving} was deleted after its Node object"))));
    Ok(cost)
}

async fn register(client: &Client, number: usize) -> anyhow::Result<()> {
    node(&name(number)).pods(&format!("{}/24", pods(number)?)).register(client).await.map(drop)
}

fn name(number: usize) -> String {
    format!("node-{number}")
}

/// The first address of the pod network of a node.
fn pods(number: usize) -> anyhow::Result<Ipv4Addr> {
    let offset = number.checked_sub(1).and_then(|index| index.checked_mul(ADDRESSES_A_NODE));
    let offset = offset.and_then(|offset| u32::try_from(offset).ok());
    let first = offset.and_then(|offset| PODS.to_bits().checked_add(offset));
    Ok(Ipv4Addr::from_bits(first.with_context(|| format!("no pod network for node {number}"))?))
}

async fn all_initialised(stage: &Stage) -> anyhow::Result<Vec<NodeFact>> {
    eventually("all nodes are initialised", patience(stage), || async {
        registered(stage).await?.iter().map(initialised).collect()
    })
    .await
}

async fn all_routed(stage: &Stage) -> anyhow::Result<Vec<RouteFact>> {
    eventually("all nodes have their routes", patience(stage), || async {
        registered(stage).await?.iter().try_for_each(connected)?;
        let routes = stage.cluster.cloud.routes().await?;
        ensure!(routes.len() == stage.nodes, "{} routes for {} nodes", routes.len(), stage.nodes);
        routes.iter().map(laid).collect()
    })
    .await
}

async fn registered(stage: &Stage) -> anyhow::Result<Vec<Node>> {
    let nodes: Api<Node> = Api::all(stage.client());
    let mut nodes = nodes.list(&ListParams::default()).await.context("cannot list nodes")?.items;
    ensure!(nodes.len() == stage.nodes, "{} nodes are registered, {} joined", nodes.len(), stage.nodes);
    nodes.sort_by_key(|node| node.metadata.name.as_ref().map(|name| (name.len(), name.clone())));
    Ok(nodes)
}

/// Time limit for nodes. They take a second, plus a few milliseconds per node; the rest is for a busy host.
fn patience(stage: &Stage) -> Duration {
    let nodes = u32::try_from(stage.nodes).unwrap_or(u32::MAX);
    stage.cluster.cloud.patience() + Duration::from_millis(200).saturating_mul(nodes)
}

#[cfg(test)]
mod tests {
    use super::pods;

    #[test]
    fn each_node_has_a_distinct_network() {
        let networks = [1, 2, 257, 1001].map(|number| pods(number).unwrap().to_string());
        assert_eq!(networks, ["10.240.0.0", "10.240.1.0", "10.241.0.0", "10.243.232.0"]);
        assert!(pods(0).is_err());
    }
}
