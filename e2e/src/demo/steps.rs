//! The steps on a running cluster.

use std::net::Ipv4Addr;
use std::time::Duration;

use adapter_sim::simcloud::Family;
use anyhow::{Context, ensure};
use k8s_openapi::api::core::v1::{Node, Service};
use kube::api::{DeleteParams, ListParams};
use kube::{Api, Client};
use tokio::task::JoinSet;

use crate::metrics::sum;
use crate::{ADAPTER, CONTROLLERS, delete_node, events_on, eventually, node, seconds, service};

use super::cost::Cost;
use super::facts;
use super::stage::Stage;

/// The first pod network.
const PODS: Ipv4Addr = Ipv4Addr::new(10, 240, 0, 0);
/// The size of a node's pod network: each node has a /24.
const ADDRESSES_A_NODE: usize = 256;
/// The Service of the first steps.
const FIRST: &str = "web";
/// The Service that is created while the adapter does not run.
const SECOND: &str = "shop";
/// A metric of the service-controller: the number of nodes that it uses as backends.
const TARGETS: &str = "cloud_controller_load_balancer_targets";
/// The maximum number of similar lines shown.
const SHOWN: usize = 5;

/// Creates instances, and registers their nodes all at once, as kubelets do.
pub(super) async fn nodes_join(stage: &mut Stage, count: usize) -> anyhow::Result<Cost> {
    stage.cluster.cloud.create_instances(count).await?;
    stage.before_nodes = stage.counts().await?;
    let mut registered = JoinSet::new();
    for number in 1..=count {
        let client = stage.client();
        registered.spawn(async move { register(&client, number).await });
    }
    while let Some(done) = registered.join_next().await {
        done.context("a kubelet panicked")??;
    }
    stage.nodes = count;
    show_some(stage, &all_initialised(stage).await?, "nodes");
    // Route calls, which begin at the same time, are counted in their own step.
    let after = stage.counts().await?;
    let cost = |families: &[Family]| Cost::between(&stage.before_nodes, &after, families);
    let initialisation = cost(&[Family::Compute, Family::Identity]);
    let others = cost(&[Family::Loadbalancer]);
    let max = stage.cluster.cloud.initialisation_max();
    let (reads, writes) = (initialisation.reads, initialisation.writes + others.writes);
    ensure!(
        reads <= max && writes == 0,
        "initialising the nodes should cost at most {max} reads and no writes, but cost {initialisation}; others: {others}"
    );
    stage.output.note(format!("guaranteed maximum: {max} vendor reads, no writes"));
    Ok(initialisation)
}

/// Waits for the routes of all nodes. Routes are created while nodes are initialised, so all route calls since then are counted here.
pub(super) async fn routes_exist(stage: &mut Stage) -> anyhow::Result<Cost> {
    show_some(stage, &all_routed(stage).await?, "routes");
    stage.output.note(format!("NetworkUnavailable is False on all {} nodes", stage.nodes));
    Ok(Cost::between(&stage.before_nodes, &stage.counts().await?, &[Family::Network]))
}

/// Creates a Service with two ports, and waits until its load balancer is complete.
pub(super) async fn service_is_created(stage: &mut Stage) -> anyhow::Result<Cost> {
    // A Service that is created before all nodes are backends gets them one by one, with more calls than this step should show.
    let (wanted, pod) = (stage.nodes.to_string(), &*stage.cluster.pods.get("service-controller")?);
    let all_are_backends =
        eventually("load balancers would get all nodes as members", seconds(30), || async {
            let targets = sum(&pod.metrics().await?, TARGETS).to_string();
            ensure!(targets == wanted, "{targets} nodes would be members");
            Ok(())
        });
    all_are_backends.await?;
    let before = stage.counts().await?;
    service(FIRST).port(80).port(443).create(&stage.client()).await?;
    balanced(stage, FIRST).await?;
    stage.cost_since(&before).await
}

/// Adds a node, and removes it as users do: first the Node object, then the instance. Waits until the node's route and its membership in
/// the load balancer follow each change.
pub(super) async fn node_joins_and_leaves(stage: &mut Stage) -> anyhow::Result<Cost> {
    let name = format!("node-{}", stage.nodes + 1);
    stage.cluster.cloud.create_instance(&name).await?;
    let before = stage.counts().await?;
    register(&stage.client(), stage.nodes + 1).await?;
    stage.nodes += 1;
    all_initialised(stage).await?;
    all_routed(stage).await?;
    balanced(stage, FIRST).await?;
    stage.output.command(&format!("kubectl delete node {name}"));
    delete_node(&stage.client(), &name).await?;
    stage.nodes -= 1;
    all_routed(stage).await?;
    balanced(stage, FIRST).await?;
    let cost = stage.cost_since(&before).await?;
    stage.cluster.cloud.delete_instance(&name).await?;
    Ok(cost)
}

/// Kills the adapter while it creates a load balancer: no request is lost, and no object is created twice.
pub(super) async fn adapter_is_killed(stage: &mut Stage) -> anyhow::Result<Cost> {
    // Wait first, because otherwise remaining work for the first Service would be interrupted and reported in this step, too.
    stage.quiet("service-controller").await?;
    let before = stage.counts().await?;
    let old: Vec<_> = stage.cluster.cloud.balancers().await?.into_iter().map(|it| it.id).collect();
    stage.cluster.cloud.build_slowly(true).await?;
    service(SECOND).port(8080).create(&stage.client()).await?;
    let time_limit = stage.cluster.cloud.time_limit();
    let half_built = eventually("the cloud begins to create the load balancer", time_limit, || async {
        let all = stage.cluster.cloud.balancers().await?;
        all.into_iter().find(|it| !old.contains(&it.id)).context("the load balancer does not exist yet")
    });
    let half_built = half_built.await?;

    stage.cluster.pods.get(ADAPTER)?.kill().await?;
    stage
        .output
        .note(format!("{ADAPTER} was killed (SIGKILL) while {} was {}", half_built.id, half_built.status));
    let event = eventually("an Event on the Service shows the missing adapter", seconds(60), || async {
        let events = events_on(&stage.client(), "Service", SECOND).await?;
        let failures =
            |it: &&String| it.starts_with("SyncLoadBalancerFailed: ") && it.contains("cloud adapter");
        events.iter().find(failures).cloned().with_context(|| format!("its Events are {events:?}"))
    });
    let event = event.await?;
    stage.output.command(&format!("kubectl describe service {SECOND}"));
    stage.output.note(event);

    let adapter = stage.cluster.pods.get(ADAPTER)?;
    adapter.start()?;
    adapter.wait_ready(seconds(60)).await?;
    stage.output.note(format!("{ADAPTER} is back"));
    let complete = balanced(stage, SECOND).await?;
    stage.cluster.cloud.build_slowly(false).await?;
    let cost = stage.cost_since(&before).await?;
    let creations = cost.calls_of(stage.cluster.cloud.creation());
    let made = stage.cluster.cloud.balancers().await?.len() - old.len();
    ensure!(
        complete == half_built.id && made == 1 && creations == 1,
        "Service {SECOND} has {complete}, but its creation began with {}; the cloud has {made} new load balancers after \
         {creations} creations",
        half_built.id
    );
    stage.output.note("exactly one load balancer was created, by one call");
    Ok(cost)
}

/// Restarts all three controllers, one after the other. They must not write to the cloud, nor to the API server except for their Leases.
pub(super) async fn controllers_restart(stage: &mut Stage) -> anyhow::Result<Cost> {
    for name in CONTROLLERS {
        stage.quiet(name).await?;
    }
    let (before, audit) = (stage.counts().await?, stage.cluster.control_plane.audit_log());
    let mark = audit.mark()?;
    let mut users = Vec::new();
    for name in CONTROLLERS {
        let pod = stage.cluster.pods.get(name)?;
        pod.terminate().await?;
        pod.start()?;
        pod.wait_ready(seconds(60)).await?;
        users.push(pod.user().to_owned());
        stage.quiet(name).await?;
        stage.output.note(format!("{name} was restarted, and is ready and idle"));
    }
    let mut writes = Vec::new();
    for user in &users {
        writes.extend(audit.writes_since(mark, user)?);
    }
    let cost = stage.cost_since(&before).await?;
    writes.retain(|write| !write.keeps_a_lease());
    ensure!(writes.is_empty(), "the restart wrote to the API server: {writes:?}");
    ensure!(cost.writes == 0, "the restart wrote to the cloud: {cost}");
    stage.output.note("no writes to the API server except Leases, and no vendor writes");
    Ok(cost)
}

/// Deletes both Services, and waits until the cluster and the cloud contain no part of them.
pub(super) async fn services_are_deleted(stage: &mut Stage) -> anyhow::Result<Cost> {
    let before = stage.counts().await?;
    let services: Api<Service> = Api::namespaced(stage.client(), "default");
    for name in [FIRST, SECOND] {
        stage.output.command(&format!("kubectl delete service {name}"));
        services.delete(name, &DeleteParams::default()).await.context("cannot delete the Service")?;
    }
    let what = "both Services and their load balancers are gone";
    let gone = eventually(what, stage.cluster.cloud.time_limit(), || async {
        for name in [FIRST, SECOND] {
            let left = services.get_opt(name).await.context("cannot get the Service")?;
            ensure!(left.is_none(), "Service {name} waits for its finalizer");
        }
        let left = stage.cluster.cloud.left().await?;
        ensure!(left == 0, "{left} load balancers or addresses are left");
        Ok(())
    });
    gone.await?;
    stage.output.note("no Services, finalizers and load balancers are left");
    stage.cost_since(&before).await
}

/// Waits until a Service's load balancer is complete and has all nodes as members. Returns its ID.
async fn balanced(stage: &Stage, name: &str) -> anyhow::Result<String> {
    let services: Api<Service> = Api::namespaced(stage.client(), "default");
    let what = format!("Service {name} has its load balancer");
    let complete = eventually(&what, stage.cluster.cloud.time_limit(), || async {
        let service = services.get(name).await.context("cannot get the Service")?;
        let balancers = stage.cluster.cloud.balancers().await?;
        let (address, balancer) = facts::balanced(&service, &balancers, stage.nodes)?;
        Ok((address, balancer.clone()))
    });
    let (address, balancer) = complete.await?;
    let (listeners, id) = (balancer.members.len(), balancer.id);
    stage.output.note(format!(
        "Service {name}: {address}, {id}, listeners {listeners}, members of each {}",
        stage.nodes
    ));
    Ok(id)
}

/// Returns one line per node.
async fn all_initialised(stage: &Stage) -> anyhow::Result<Vec<String>> {
    eventually("all nodes are initialised", time_limit(stage), || async {
        nodes(stage).await?.iter().map(facts::initialised).collect()
    })
    .await
}

/// Returns one line per route.
async fn all_routed(stage: &Stage) -> anyhow::Result<Vec<String>> {
    eventually("all nodes have their routes", time_limit(stage), || async {
        nodes(stage).await?.iter().try_for_each(facts::connected)?;
        let routes = stage.cluster.cloud.routes().await?;
        ensure!(routes.len() == stage.nodes, "{} active routes for {} nodes", routes.len(), stage.nodes);
        Ok(routes)
    })
    .await
}

async fn nodes(stage: &Stage) -> anyhow::Result<Vec<Node>> {
    let nodes: Api<Node> = Api::all(stage.client());
    let mut nodes = nodes.list(&ListParams::default()).await.context("cannot list nodes")?.items;
    ensure!(nodes.len() == stage.nodes, "{} nodes are registered, {} joined", nodes.len(), stage.nodes);
    nodes.sort_by_key(|node| node.metadata.name.as_ref().map(|name| (name.len(), name.clone())));
    Ok(nodes)
}

async fn register(client: &Client, number: usize) -> anyhow::Result<()> {
    node(&format!("node-{number}")).pods(&format!("{}/24", pods(number)?)).register(client).await.map(drop)
}

/// The first address of the pod network of a node.
fn pods(number: usize) -> anyhow::Result<Ipv4Addr> {
    let offset = number.checked_sub(1).and_then(|index| index.checked_mul(ADDRESSES_A_NODE));
    let offset = offset.and_then(|offset| u32::try_from(offset).ok());
    let first = offset.and_then(|offset| PODS.to_bits().checked_add(offset));
    Ok(Ipv4Addr::from_bits(first.with_context(|| format!("no pod network for node {number}"))?))
}

/// Time limit for nodes. They take a second, plus a few milliseconds per node. The limit is higher because the host may be busy.
fn time_limit(stage: &Stage) -> Duration {
    let nodes = u32::try_from(stage.nodes).unwrap_or(u32::MAX);
    stage.cluster.cloud.time_limit() + Duration::from_millis(200).saturating_mul(nodes)
}

/// Prints the first lines, and the number of the other ones.
fn show_some(stage: &Stage, lines: &[String], what: &str) {
    for line in lines.iter().take(SHOWN) {
        stage.output.note(line);
    }
    if lines.len() > SHOWN {
        stage.output.note(format!("... and {} more {what}", lines.len() - SHOWN));
    }
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
