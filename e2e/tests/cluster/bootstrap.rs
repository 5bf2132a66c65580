//! A new cluster: no node is initialised, and what initialises nodes must run on one of them.

use std::fs;
use std::os::unix::fs::MetadataExt;

use anyhow::{Context, ensure};
use e2e::service;
use e2e_cluster::layout::{Node, Place};
use serde_json::json;
use tokio::time::Instant;

use crate::bed::{Bed, IMAGES, Wanted, play_on, scenario, tell};

/// An ordinary pod, which tolerates nothing.
async fn ordinary_pod(bed: &Bed, name: &str) -> anyhow::Result<()> {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name },
        "spec": { "containers": [{ "name": "pause", "image": "localhost/pause:cluster", "imagePullPolicy": "Never" }] },
    });
    bed.apply(&pod).await
}

async fn runs(bed: &Bed, name: &str) -> anyhow::Result<()> {
    let args = ["get", "pod", name, "--output", "jsonpath={.status.phase}"];
    bed.until(&format!("pod {name} runs"), &args, |phase| phase == "Running").await.map(drop)
}

/// Else nobody would have anything to initialise.
async fn waits_for_the_cloud(bed: &Bed, pod: &str) -> anyhow::Result<()> {
    let taints =
        bed.kubectl(&["get", "nodes", "--output", "jsonpath={.items[*].spec.taints[*].key}"]).await?;
    ensure!(taints.contains("node.cloudprovider.kubernetes.io/uninitialized"), "{taints}");
    let message = "jsonpath={.status.conditions[?(@.type==\"PodScheduled\")].message}";
    let args = ["get", "pod", pod, "--output", message];
    bed.until(&format!("pod {pod} finds no node"), &args, |why| why.contains("taint")).await.map(drop)
}

#[test]
fn a_tainted_node_is_initialised_by_pods_that_run_on_it() {
    scenario(1, async |bed| {
        ordinary_pod(bed, "ordinary").await?;
        service("web").port(80).create(&bed.client).await?;
        waits_for_the_cloud(bed, "ordinary").await?;
        bed.step("helm install begins");
        let begin = Instant::now();
        let after = |what: &str| {
            tell(&format!("  {what} {:.1} s after helm install began", begin.elapsed().as_secs_f64()));
        };
        let nothing = json!({});
        let (installed, initialised, served) = tokio::join!(
            bed.install(&nothing),
            async { bed.until_initialised().await.inspect(|()| after("the node is initialised")) },
            async { bed.address("web").await.inspect(|_| after("the first Service has its address")) },
        );
        installed?;
        initialised?;
        served?;
        runs(bed, "ordinary").await?;
        tell(&bed.kubectl(&["get", "nodes,services", "--all-namespaces", "--output", "wide"]).await?);
        tell(&bed.kubectl(&["get", "pods", "--all-namespaces", "--output", "wide"]).await?);
        tell(&memory()?);
        Ok(())
    });
}

/// VmRSS of each of our processes on the node, as the kernel counts it.
fn memory() -> anyhow::Result<String> {
    let mut lines = Vec::new();
    let network = fs::metadata(Place::Node(Node(1)).namespace_file())?.ino();
    let there = |process: &fs::DirEntry| {
        fs::metadata(process.path().join("ns/net")).is_ok_and(|its| its.ino() == network)
    };
    for entry in fs::read_dir("/proc")?.flatten().filter(there) {
        let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        // The kernel keeps 15 characters of a name.
        let Some(image) = IMAGES.iter().find(|image| image.starts_with(name.trim()) && name.len() > 8) else {
            continue;
        };
        let status = fs::read_to_string(entry.path().join("status")).unwrap_or_default();
        let rss = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
        lines.push(format!("  {image}: RSS {}", rss.trim()));
    }
    ensure!(lines.len() == IMAGES.len(), "not all of our processes run: {lines:?}");
    lines.sort();
    Ok(lines.join("\n"))
}

#[test]
fn the_node_is_initialised_where_the_image_of_the_adapter_comes_late() {
    play_on(Wanted { nodes: 1, complete: false }, async |bed| {
        for image in IMAGES.iter().filter(|image| **image != "adapter-sim") {
            bed.load(image)?;
        }
        let waits = async {
            let reasons = "jsonpath={.items[*].status.containerStatuses[*].state.waiting.reason}";
            let args = ["get", "pods", "--namespace", "kube-system", "--output", reasons];
            bed.until("the adapter waits for its image", &args, |all| all.contains("ErrImageNeverPull"))
                .await?;
            let ready = [
                "get",
                "pods",
                "--namespace",
                "kube-system",
                "--output",
                "jsonpath={.items[*].status.phase}",
            ];
            bed.until("the controllers run without it", &ready, |all| all.matches("Running").count() == 3)
                .await?;
            bed.load("adapter-sim")
        };
        let unchanged = json!({});
        let (installed, late) = tokio::join!(bed.install(&unchanged), waits);
        late?;
        installed?;
        bed.until_initialised().await?;
        // Only now does the CNI come, as those do that tolerate no uninitialised node.
        bed.give_pods_a_network(1).await?;
        ordinary_pod(bed, "ordinary").await?;
        runs(bed, "ordinary").await
    });
}
