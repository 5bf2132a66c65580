//! What operators do to a cluster that is in use: upgrades, a rollback, nodes that are drained.

use std::collections::BTreeSet;
use std::fs;

use anyhow::{bail, ensure};
use e2e::CONTROLLERS;
use e2e_cluster::layout::Node;
use serde_json::{Value, json};

use crate::bed::{Bed, NAMESPACE, RELEASE, scenario};
use crate::processes::pods;
use crate::users::Users;

/// All that there are.
const DEPLOYMENTS: [&str; 4] = ["cloud-adapter", "node-controller", "route-controller", "service-controller"];

/// Two processes for Services, of which one stands by.
fn narrow() -> Value {
    json!({ "serviceController": { "replicas": 2 } })
}

/// Both share the work, and every pod is told something else.
fn wide() -> Value {
    json!({
        "logLevel": "info,service_controller=debug",
        "serviceController": { "replicas": 2, "shards": 2 },
    })
}

#[test]
fn upgrades_and_a_rollback_lose_no_service_and_make_none_twice() {
    scenario(2, async |bed| {
        bed.install(&narrow()).await?;
        bed.until_initialised().await?;
        let users = Users::default();
        let mut former = pods(bed, ".metadata.uid").await?;
        users.work_while(bed, "upgrade", bed.upgrade(&wide())).await?;
        all_anew(bed, &mut former).await?;
        let back = ["rollback", RELEASE, "1", "--wait", "--timeout", "5m"];
        users.work_while(bed, "rollback", bed.helm(&back)).await?;
        all_anew(bed, &mut former).await?;
        // What the rollback left must not be in the way.
        users.work_while(bed, "again", bed.upgrade(&wide())).await?;
        all_anew(bed, &mut former).await?;
        users.nothing_lost_or_twice(bed).await
    });
}

/// None of these pods is left.
async fn all_anew(bed: &Bed, former: &mut Vec<String>) -> anyhow::Result<()> {
    let now = pods(bed, ".metadata.uid").await?;
    let stay: Vec<_> = now.iter().filter(|id| former.contains(id)).collect();
    ensure!(!now.is_empty() && stay.is_empty(), "{stay:?} of {now:?} were there before");
    *former = now;
    let leases = ["get", "leases", "--namespace", NAMESPACE, "--output"];
    let names = bed.kubectl(&[&leases[..], &["jsonpath={.items[*].metadata.name}"]].concat()).await?;
    bed.step(&format!("all pods are new; Leases: {names}"));
    Ok(())
}

#[test]
fn a_drained_node_gives_up_its_controllers_and_stays_behind_load_balancers() {
    scenario(2, async |bed| {
        bed.kubectl(&["cordon", "node-2"]).await?;
        bed.install(&json!({})).await?;
        bed.until_initialised().await?;
        run_on(bed, &["node-1"]).await?;
        bed.kubectl(&["uncordon", "node-2"]).await?;
        let users = Users::default();
        users.make(bed, "web").await?;
        behind(bed, &[Node(1), Node(2)]).await?;

        // One of each: there is no budget that could hold the drain up.
        users.work_while(bed, "drain", drain(bed, "node-1")).await?;
        run_on(bed, &["node-2"]).await?;
        // It is no health check that a cordon stands for: pods of others may serve there. The label is what takes a node out.
        behind(bed, &[Node(1), Node(2)]).await?;
        let label = "node.kubernetes.io/exclude-from-external-load-balancers";
        bed.kubectl(&["label", "node", "node-1", &format!("{label}=true")]).await?;
        behind(bed, &[Node(2)]).await?;
        bed.kubectl(&["label", "node", "node-1", &format!("{label}-")]).await?;
        behind(bed, &[Node(1), Node(2)]).await?;
        bed.kubectl(&["uncordon", "node-1"]).await?;

        // Two of each, on two nodes that both are full then, each pair with a budget of one.
        let pairs = json!({
            "nodeController": { "replicas": 2 },
            "serviceController": { "replicas": 2 },
            "routeController": { "replicas": 2 },
        });
        bed.upgrade(&pairs).await?;
        users.work_while(bed, "budget", drain(bed, "node-2")).await?;
        run_on(bed, &["node-1"]).await?;
        budgets_allow(bed, 0).await?;
        the_last_ones_stay(bed).await?;
        bed.kubectl(&["uncordon", "node-2"]).await?;
        all_ready(bed).await?;
        budgets_allow(bed, 1).await?;
        users.nothing_lost_or_twice(bed).await
    });
}

/// Each controller may lose so many pods now.
async fn budgets_allow(bed: &Bed, each: usize) -> anyhow::Result<()> {
    let path = r"jsonpath={range .items[*]}{.metadata.name}={.status.disruptionsAllowed} {end}";
    let args = ["get", "poddisruptionbudgets", "--namespace", NAMESPACE, "--output", path];
    let wanted = BTreeSet::from(CONTROLLERS.map(|controller| format!("{controller}={each}")));
    let allow = |all: &str| all.split_whitespace().map(str::to_owned).collect::<BTreeSet<_>>() == wanted;
    bed.until(&format!("the budgets allow {each} of each"), &args, allow).await.map(drop)
}

/// The one of each controller that runs is not evicted, by whoever asks.
async fn the_last_ones_stay(bed: &Bed) -> anyhow::Result<()> {
    for controller in CONTROLLERS {
        let component = format!("app.kubernetes.io/component={controller}");
        let running = ["get", "pods", "--namespace", NAMESPACE, "--field-selector", "status.phase=Running"];
        let names = ["--selector", &component, "--output", "jsonpath={.items[*].metadata.name}"];
        let name = bed.kubectl(&[&running[..], &names].concat()).await?;
        ensure!(!name.is_empty() && !name.contains(' '), "{controller}: {name:?} run");
        let eviction = json!({
            "apiVersion": "policy/v1", "kind": "Eviction",
            "metadata": { "name": name, "namespace": NAMESPACE },
        });
        let file = bed.layout().home.join("eviction.json");
        fs::write(&file, eviction.to_string())?;
        // `kubectl drain` and our own client would ask again and again.
        let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/{name}/eviction");
        let asked = bed.kubectl(&["create", "--raw", &path, "--filename", &file.display().to_string()]).await;
        let Err(refused) = asked else { bail!("{name} is evicted, and its budget allows none") };
        ensure!(format!("{refused:#}").contains("disruption budget"), "{refused:#}");
        bed.step(&format!("{name} is not evicted"));
        let ends = ["get", "pod", &name, "--namespace", NAMESPACE, "--output"];
        let ends = bed.kubectl(&[&ends[..], &["jsonpath={.metadata.deletionTimestamp}"]].concat()).await?;
        ensure!(ends.is_empty(), "{name} goes since {ends}");
    }
    Ok(())
}

/// Drains a node, and waits until all that was there is ready elsewhere or has no place to go.
async fn drain(bed: &Bed, node: &str) -> anyhow::Result<()> {
    bed.kubectl(&["drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=90s"]).await?;
    bed.step(&format!("{node} is drained"));
    let args = ["get", "deployments", "--namespace", NAMESPACE, "--output"];
    let path = ["jsonpath={.items[*].status.availableReplicas}"];
    let each = |counts: &str| counts.split_whitespace().count() == DEPLOYMENTS.len();
    bed.until("each controller runs elsewhere", &[&args[..], &path].concat(), each).await.map(drop)
}

async fn all_ready(bed: &Bed) -> anyhow::Result<()> {
    for name in DEPLOYMENTS {
        let name = format!("deployment/{name}");
        bed.kubectl(&["rollout", "status", "--namespace", NAMESPACE, &name, "--timeout=90s"]).await?;
    }
    bed.step("all Deployments are complete again");
    Ok(())
}

/// Running pods are on these nodes and no other.
async fn run_on(bed: &Bed, nodes: &[&str]) -> anyhow::Result<()> {
    let args =
        ["get", "pods", "--namespace", NAMESPACE, "--field-selector", "status.phase=Running", "--output"];
    let args = [&args[..], &["jsonpath={.items[*].spec.nodeName}"]].concat();
    let only = |names: &str| {
        names.split_whitespace().collect::<BTreeSet<_>>() == BTreeSet::from_iter(nodes.iter().copied())
    };
    bed.until(&format!("our pods are on {nodes:?}"), &args, only).await.map(drop)
}

/// These nodes are behind the load balancer of `web`.
async fn behind(bed: &Bed, nodes: &[Node]) -> anyhow::Result<()> {
    bed.until_cloud(&format!("{nodes:?} are behind the load balancer"), |state| {
        let members = state.balancer("web")?.pools.iter().flat_map(|pool| &pool.members);
        let there: BTreeSet<_> = members.map(|it| it.address.to_string()).collect();
        ensure!(there == nodes.iter().map(|node| node.address()).collect(), "{there:?}");
        Ok(())
    })
    .await
}
