//! Each controller is scaled from one process to three and back while users work: the work is shared, and nothing is done twice.

use std::collections::{BTreeMap, BTreeSet};

use adapter_sim::simcloud::{Operation, counts::Counts};
use anyhow::{Context, ensure};
use e2e::{CONTROLLERS, Load, Outcome, eventually};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::Api;
use kube::api::ListParams;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::bed::{Bed, NAMESPACE, WITHIN, scenario, tell};
use crate::inside::{Container, get};

/// The number of nodes. On the host network, port conflicts keep replicas on different nodes.
const NODES: u8 = 3;
const SHARDS: usize = 3;
/// Rounds of user work in each step.
const ROUNDS: usize = 6;
/// Label of the nodes that run pods, in contrast to nodes that users register.
const REAL: &str = "cluster.test/runs-pods";

#[test]
fn each_controller_is_scaled_under_load_and_its_shards_follow() {
    scenario(NODES, async |bed| {
        bed.kubectl(&["label", "nodes", "--all", &format!("{REAL}=yes")]).await?;
        bed.install(&values()).await?;
        bed.until_initialised().await?;
        let mut load = Load::beside(bed.client.clone(), &bed.cloud).await?;
        load.rounds(ROUNDS).await?;
        bed.step("users are at work");
        for controller in CONTROLLERS {
            let others = processes_beside(bed, controller).await?;
            for replicas in [3, 1] {
                scale(bed, controller, replicas).await?;
                load.rounds(ROUNDS).await?;
                bed.step("users have worked on");
            }
            let now = processes_beside(bed, controller).await?;
            ensure!(
                now == others,
                "{controller} was scaled, but the other pods changed from {others:?} to {now:?}"
            );
        }
        let outcome = load.stop().await?;
        settled(bed, &outcome).await?;
        nothing_twice(bed, &outcome).await
    });
}

fn values() -> Value {
    let real = json!({ REAL: "yes" });
    let shared = json!({ "shards": SHARDS, "nodeSelector": real });
    json!({
        // Routes to deleted instances are removed as soon as a listing shows the deletion.
        "adapter": { "nodeSelector": real, "cache": { "routes": { "maxAge": "5s" } } },
        "nodeController": shared, "routeController": shared, "serviceController": shared,
    })
}

/// Scales a controller as an operator does, and waits until the shards are shared equally.
async fn scale(bed: &Bed, controller: &str, replicas: usize) -> anyhow::Result<()> {
    let begin = Instant::now();
    let (deployment, replicas_arg) = (format!("deployment/{controller}"), format!("--replicas={replicas}"));
    bed.kubectl(&["scale", &deployment, &replicas_arg, "--namespace", NAMESPACE]).await?;
    eventually(&format!("{replicas} replicas of {controller} share {SHARDS} shards"), WITHIN, || async {
        let shares = shares(bed, controller).await?;
        let holders: BTreeSet<_> = holders(bed, controller).await?.into_iter().collect();
        let fair = shares.values().all(|own| own.len() == SHARDS / replicas);
        let all: BTreeSet<_> = shares.values().flatten().collect();
        ensure!(
            fair && shares.len() == replicas && all.len() == SHARDS && holders.len() == replicas,
            "pods say {shares:?}, Leases {holders:?}"
        );
        Ok(())
    })
    .await?;
    bed.step(&format!(
        "{controller}: {replicas} replicas share {SHARDS} shards, {:.1?} after scale",
        begin.elapsed()
    ));
    Ok(())
}

/// The shards that each pod of a controller holds according to its metrics. Pods that are about to end are included.
async fn shares(bed: &Bed, controller: &str) -> anyhow::Result<BTreeMap<String, BTreeSet<usize>>> {
    let mut shares = BTreeMap::new();
    for container in Container::of_release(bed).await?.iter().filter(|it| it.name == controller) {
        let page = get(container.at("http")?, "/metrics").await?;
        let has = |shard: &usize| {
            let name = lease(controller, *shard);
            page.contains(&format!("leader_election_master_status{{name=\"{name}\"}} 1\n"))
        };
        shares.insert(container.pod_name().to_owned(), (0..SHARDS).filter(has).collect());
    }
    Ok(shares)
}

/// The holder of each shard's Lease, from the API server.
async fn holders(bed: &Bed, controller: &str) -> anyhow::Result<Vec<String>> {
    let leases: Api<Lease> = Api::namespaced(bed.client.clone(), NAMESPACE);
    let mut holders = Vec::new();
    for shard in 0..SHARDS {
        let name = lease(controller, shard);
        let holder = leases.get(&name).await?.spec.and_then(|spec| spec.holder_identity);
        holders.push(
            holder.filter(|holder| !holder.is_empty()).with_context(|| format!("{name} has no holder"))?,
        );
    }
    Ok(holders)
}

fn lease(controller: &str, shard: usize) -> String {
    if shard == 0 { format!("cloud-{controller}") } else { format!("cloud-{controller}-{shard}") }
}

/// The pods of all other Deployments, and their restart counts.
async fn processes_beside(bed: &Bed, controller: &str) -> anyhow::Result<BTreeMap<String, i32>> {
    let pods: Api<Pod> = Api::namespaced(bed.client.clone(), NAMESPACE);
    let others =
        format!("app.kubernetes.io/name=cloud-controllers,app.kubernetes.io/component!={controller}");
    let pods = pods.list(&ListParams::default().labels(&others)).await?.items;
    let starts = |pod: &Pod| {
        let containers = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
        containers.map(|container| container.restart_count).sum()
    };
    Ok(pods.iter().map(|pod| (pod.metadata.name.clone().unwrap_or_default(), starts(pod))).collect())
}

/// Waits until each Service has one complete load balancer with the address in its status, each node has its route, and nothing else is
/// left.
async fn settled(bed: &Bed, outcome: &Outcome) -> anyhow::Result<()> {
    let real = bed.pod_networks().await?;
    ensure!(real.len() == usize::from(NODES), "{real:?}");
    bed.until_cloud("each object exists exactly once", |state| outcome.check(state, &real)).await?;
    for name in &outcome.services {
        let shown = bed.address(name).await?;
        let vips = bed.cloud.state().await?.balancer(name)?.vips.clone();
        ensure!(vips.iter().any(|vip| vip.to_string() == shown), "{name} shows {shown}, but has {vips:?}");
    }
    Ok(())
}

/// Checks that one load balancer was created for each Service, and deleted once with the Service. Each node must have been initialised once
/// each time it joined.
async fn nothing_twice(bed: &Bed, outcome: &Outcome) -> anyhow::Result<()> {
    let counts: Counts = bed.cloud.counts().await?;
    let there = outcome.services.len();
    for (operation, wanted) in [
        (Operation::CreateLoadBalancer, outcome.n_services),
        (Operation::DeleteLoadBalancer, outcome.n_services - there),
    ] {
        let n = counts.of(operation);
        ensure!(n == u64::try_from(wanted)?, "{operation:?}: {n}, wanted {wanted}: {counts:?}");
    }
    nothing_written_twice(bed, outcome).await?;
    let events: Api<Event> = Api::all(bed.client.clone());
    let events = events.list(&ListParams::default()).await?.items;
    let synced = events.iter().filter(|event| {
        let of_users = event.involved_object.name.as_deref().is_some_and(|name| name.starts_with("load-"));
        of_users && event.reason.as_deref() == Some("Synced")
    });
    let synced: i32 = synced.map(|event| event.count.unwrap_or(1)).sum();
    ensure!(
        synced == i32::try_from(outcome.n_joined)?,
        "{synced} Events Synced for {} nodes that joined",
        outcome.n_joined
    );
    let warnings = events.iter().filter(|event| {
        let by = event.source.iter().filter_map(|source| source.component.as_deref());
        let ours = by.chain(event.reporting_component.as_deref()).any(|by| REPORTERS.contains(&by));
        // A Service that is created just before the first node is ready may get an Event that there is no node yet.
        let early = event.reason.as_deref() == Some("UnAvailableLoadBalancer");
        event.type_.as_deref() == Some("Warning") && ours && !early
    });
    let warnings: Vec<_> = warnings.map(|event| (&event.involved_object.name, &event.message)).collect();
    ensure!(warnings.is_empty(), "{warnings:#?}");
    tell(&format!(
        "  {} Services and {} nodes came and went; calls to the cloud: {:?}",
        outcome.n_services, outcome.n_joined, counts.by_operation
    ));
    Ok(())
}

/// Checks the number of writes. A load balancer is completed once for each change by its user, and its backends change no more often than
/// nodes do. A duplicate write by two replicas would exceed these numbers.
async fn nothing_written_twice(bed: &Bed, outcome: &Outcome) -> anyhow::Result<()> {
    let log = bed.cloud.requests().await?;
    ensure!(bed.cloud.counts().await?.total == u64::try_from(log.len())?, "the log is incomplete");
    // Each node of a user joins, and all of these nodes except the remaining ones were deleted. Nodes that run pods only join.
    let other_nodes = 2 * outcome.n_joined - outcome.networks.len() + usize::from(NODES);
    let laid: Vec<_> = log.iter().filter(|entry| entry.operation == Operation::BatchRoutes).collect();
    ensure!(laid.len() <= other_nodes, "{} writes of routes for {other_nodes} changes of nodes", laid.len());
    ensure!(laid.iter().all(|entry| entry.status == Some(200)), "{laid:?}");
    for (operation, at_most) in [
        // The user first wants one port, and then two.
        (Operation::UpdateLoadBalancer, WISHES),
        (Operation::CreateListener, WISHES),
        (Operation::UpdateListener, 0),
        (Operation::CreatePool, WISHES),
        (Operation::UpdatePool, 0),
        (Operation::SetMembers, 1),
        (Operation::UpdateMembers, other_nodes),
        (Operation::DeleteLoadBalancer, 1),
    ] {
        let mut by_object = BTreeMap::<_, usize>::new();
        for entry in log.iter().filter(|entry| entry.operation == operation) {
            *by_object.entry(entry.object.as_deref().unwrap_or_default()).or_default() += 1;
        }
        let most = by_object.iter().max_by_key(|(_, n)| **n);
        tell(&format!("  {operation:?}: {most:?} of {} objects, at most {at_most}", by_object.len()));
        ensure!(
            most.is_none_or(|(_, n)| *n <= at_most),
            "{operation:?}: {most:?}, expected at most {at_most}"
        );
    }
    Ok(())
}

/// How often a user changes the ports of a Service.
const WISHES: usize = 2;

/// Names under which the controllers emit Events.
const REPORTERS: [&str; 4] =
    ["cloud-node-controller", "cloud-node-lifecycle-controller", "route_controller", "service-controller"];
