//! Tests operations on a cluster in use: upgrades, a rollback, drained nodes.

use std::collections::BTreeSet;
use std::fs;

use anyhow::{bail, ensure};
use e2e::CONTROLLERS;
use e2e_tools::cluster::layout::Node;
use serde_json::{Value, json};

use crate::bed::{Bed, NAMESPACE, RELEASE, scenario};
use crate::processes::pods;
use crate::users::Users;

const DEPLOYMENTS: [&str; 4] = ["cloud-adapter", "node-controller", "route-controller", "service-controller"];

/// Two replicas of the service-controller, one of them a standby.
fn narrow() -> Value {
    json!({ "serviceController": { "replicas": 2 } })
}

/// Values with which both replicas share the work, and every pod has changed flags.
fn wide() -> Value {
    json!({
        "logLevel": "info,service_controller=debug",
        "serviceController": { "replicas": 2, "shards": 2 },
    })
}

#[test]
fn upgrades_and_rollbacks_lose_and_duplicate_nothing() {
    scenario(2, async |bed| {
        bed.install(&narrow()).await?;
        bed.until_initialised().await?;
        let users = Users::default();
        let mut former = pods(bed, ".metadata.uid").await?;
        users.work_while(bed, "upgrade", bed.upgrade(&wide())).await?;
        all_pods_are_new(bed, &mut former).await?;
        let back = ["rollback", RELEASE, "1", "--wait", "--timeout", "5m"];
        users.work_while(bed, "rollback", bed.helm(&back)).await?;
        all_pods_are_new(bed, &mut former).await?;
        // Objects that the rollback left must not disturb the next upgrade.
        users.work_while(bed, "again", bed.upgrade(&wide())).await?;
        all_pods_are_new(bed, &mut former).await?;
        users.nothing_lost_or_twice(bed).await
    });
}

async fn all_pods_are_new(bed: &Bed, former: &mut Vec<String>) -> anyhow::Result<()> {
    let now = pods(bed, ".metadata.uid").await?;
    let stay: Vec<_> = now.iter().filter(|id| former.contains(id)).collect();
    ensure!(!now.is_empty() && stay.is_empty(), "{stay:?} of {now:?} are former pods");
    *former = now;
    let leases = ["get", "leases", "--namespace", NAMESPACE, "--output"];
    let names = bed.kubectl(&[&leases[..], &["jsonpath={.items[*].metadata.name}"]].concat()).await?;
    bed.step(&format!("all pods are new; Leases: {names}"));
    Ok(())
}

#[test]
fn a_drained_node_loses_its_controllers_and_stays_a_backend() {
    scenario(2, async |bed| {
        bed.kubectl(&["cordon", "node-2"]).await?;
        bed.install(&json!({})).await?;
        bed.until_initialised().await?;
        run_on(bed, &["node-1"]).await?;
        bed.kubectl(&["uncordon", "node-2"]).await?;
        let users = Users::default();
        users.make(bed, "web").await?;
        behind(bed, &[Node(1), Node(2)]).await?;

        // Each Deployment has one replica, so no PodDisruptionBudget can delay the drain.
        users.work_while(bed, "drain", drain(bed, "node-1")).await?;
        run_on(bed, &["node-2"]).await?;
        // A cordoned node stays a backend, because pods of other workloads may serve there. Only the label excludes a node.
        behind(bed, &[Node(1), Node(2)]).await?;
        let label = "node.kubernetes.io/exclude-from-external-load-balancers";
        bed.kubectl(&["label", "node", "node-1", &format!("{label}=true")]).await?;
        behind(bed, &[Node(2)]).await?;
        bed.kubectl(&["label", "node", "node-1", &format!("{label}-")]).await?;
        behind(bed, &[Node(1), Node(2)]).await?;
        bed.kubectl(&["uncordon", "node-1"]).await?;

        // Each controller has two replicas on two nodes, and a PodDisruptionBudget that allows one of them to be missing.
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

/// Waits until each controller may lose this number of pods.
async fn budgets_allow(bed: &Bed, each: usize) -> anyhow::Result<()> {
    let path = r"jsonpath={range .items[*]}{.metadata.name}={.status.disruptionsAllowed} {end}";
    let args = ["get", "poddisruptionbudgets", "--namespace", NAMESPACE, "--output", path];
    let wanted = BTreeSet::from(CONTROLLERS.map(|controller| format!("{controller}={each}")));
    let allow = |all: &str| all.split_whitespace().map(str::to_owned).collect::<BTreeSet<_>>() == wanted;
    bed.until(&format!("the budgets allow {each} disruptions of each controller"), &args, allow)
        .await
        .map(drop)
}

/// Checks that an eviction of the last running pod of each controller is refused.
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
        // The eviction is a raw request, because `kubectl drain` and the test's own client would retry.
        let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/{name}/eviction");
        let asked = bed.kubectl(&["create", "--raw", &path, "--filename", &file.display().to_string()]).await;
        let Err(refused) = asked else {
            bail!("{name} is evicted, although its budget allows no disruption")
        };
        ensure!(format!("{refused:#}").contains("disruption budget"), "{refused:#}");
        bed.step(&format!("{name} is not evicted"));
        let ends = ["get", "pod", &name, "--namespace", NAMESPACE, "--output"];
        let ends = bed.kubectl(&[&ends[..], &["jsonpath={.metadata.deletionTimestamp}"]].concat()).await?;
        ensure!(ends.is_empty(), "{name} is being deleted since {ends}");
    }
    Ok(())
}

/// Drains a node, and waits until its pods are ready elsewhere or cannot be scheduled.
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

/// Waits until running pods are on exactly these nodes.
async fn run_on(bed: &Bed, nodes: &[&str]) -> anyhow::Result<()> {
    let args =
        ["get", "pods", "--namespace", NAMESPACE, "--field-selector", "status.phase=Running", "--output"];
    let args = [&args[..], &["jsonpath={.items[*].spec.nodeName}"]].concat();
    let only = |names: &str| {
        names.split_whitespace().collect::<BTreeSet<_>>() == BTreeSet::from_iter(nodes.iter().copied())
    };
    bed.until(&format!("our pods are on {nodes:?}"), &args, only).await.map(drop)
}

async fn behind(bed: &Bed, nodes: &[Node]) -> anyhow::Result<()> {
    bed.until_cloud(&format!("{nodes:?} are backends of the load balancer"), |state| {
        let members = state.balancer("web")?.pools.iter().flat_map(|pool| &pool.members);
        let there: BTreeSet<_> = members.map(|it| it.address.to_string()).collect();
        ensure!(there == nodes.iter().map(|node| node.address()).collect(), "{there:?}");
        Ok(())
    })
    .await
}
